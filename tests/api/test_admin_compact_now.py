"""The operator's "Compact now": asks first, needs its own permission, and only asks for the job."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from compaction import compact_now
from compaction.models import Compaction
from sessions_app.models import Message, Session
from tests.api.admin_rows import EVIL, SESSIONS, hostile, shown, staff, url

CONFIRM = f"{SESSIONS}compact-now/"


def choose(client: Client, *sessions: Session) -> Any:
    return client.post(
        SESSIONS, {"action": "compact_now", "_selected_action": [str(s.pk) for s in sessions], "index": "0"}
    )


def test_the_action_asks_first_and_then_asks_for_the_jobs(admin_client, api, admin_user):
    one, two = hostile(api, "one", limits={"max_input_tokens": 54_321}), hostile(api, "two")
    question = choose(admin_client, one, two)
    assert question.status_code == 200
    text = question.content.decode()
    assert "Compact 2 sessions now?" in text
    assert "54,321" in text
    assert f'value="{one.pk}"' in text
    assert not Compaction.objects.exists()

    done = admin_client.post(CONFIRM, {"session": [str(one.pk), str(two.pk)]}, follow=True)
    assert "one: a compaction is asked for" in done.content.decode()
    jobs = {job.session_id: job for job in Compaction.objects.all()}
    assert set(jobs) == {one.pk, two.pk}
    assert all((j.status, j.reason, j.apply) == ("requested", "manual", "next_build") for j in jobs.values())
    for session in (one, two):
        entry = LogEntry.objects.get(object_id=str(session.pk))
        assert entry.user == admin_user
        assert str(jobs[session.pk].pk) in entry.get_change_message()


def test_a_double_click_joins_the_job_of_the_first(admin_client, api):
    session = hostile(api)
    for _ in range(2):
        response = admin_client.post(CONFIRM, {"session": str(session.pk)}, follow=True)
    assert Compaction.objects.count() == 1
    assert "under way already" in response.content.decode()
    assert [e.get_change_message().split(" ")[2] for e in LogEntry.objects.order_by("pk")] == [
        "asked",
        "joined",
    ]


def test_opening_the_pages_changes_nothing(admin_client, api):
    session = hostile(api)
    assert admin_client.get(url(session, "compact-now"), follow=True).redirect_chain == [
        (f"{CONFIRM}?session={session.pk}", 302)
    ]
    assert not Compaction.objects.exists()
    assert not LogEntry.objects.exists()


def test_the_post_needs_the_csrf_token(admin_user, api):
    session = hostile(api)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(admin_user)
    assert strict.post(CONFIRM, {"session": str(session.pk)}).status_code == 403
    assert not Compaction.objects.exists()


def test_it_needs_its_own_permission(api):
    session = hostile(api)
    client = staff(
        "transcript.view_session",
        "transcript.change_session",
        "compaction.view_compaction",
        "compaction.change_compaction",
    )
    assert "compact_now" not in shown(client, SESSIONS)
    assert "Compact now" not in shown(client, url(session, "change"))
    assert choose(client, session).status_code == 403
    assert client.get(f"{CONFIRM}?session={session.pk}").status_code == 403
    assert client.post(CONFIRM, {"session": str(session.pk)}).status_code == 403
    assert not Compaction.objects.exists()


def test_the_permission_and_seeing_sessions_are_enough(api):
    session = hostile(api)
    client = staff("transcript.view_session", "compaction.force_compaction")
    assert "compact_now" in shown(client, SESSIONS)
    assert "Compact now" in shown(client, url(session, "change"))
    assert choose(client, session).status_code == 200
    assert client.post(CONFIRM, {"session": str(session.pk)}).status_code == 302
    assert Compaction.objects.get().session == session


def test_an_empty_session_an_unknown_one_and_too_many_are_told(admin_client, api, monkeypatch):
    empty = hostile(api, rounds=0)
    Message.objects.all().delete()
    told = admin_client.post(CONFIRM, {"session": str(empty.pk)}, follow=True).content.decode()
    assert "there is nothing to compact" in told
    for odd in ("x", "00000000-0000-0000-0000-000000000000", ""):
        assert "no such session" in admin_client.post(CONFIRM, {"session": odd}, follow=True).content.decode()
    monkeypatch.setattr(compact_now, "MOST_AT_ONCE", 1)
    other = hostile(api, "other")
    assert (
        "at most 1"
        in admin_client.post(
            CONFIRM, {"session": [str(empty.pk), str(other.pk)]}, follow=True
        ).content.decode()
    )
    assert choose(admin_client, empty, other).status_code == 302
    assert not Compaction.objects.exists()


def test_what_it_asked_for_is_written_by_the_worker_and_shown(admin_client, api, provider, work):
    session = hostile(api, rounds=12, limits={"max_input_tokens": 8000}, max_tokens=500)
    admin_client.post(CONFIRM, {"session": str(session.pk)})
    provider.play(f"The summary. {EVIL}")
    (job,) = work()
    text = shown(admin_client, reverse("admin:compaction_compaction_change", args=[job.pk]))
    job.refresh_from_db()
    assert job.status == "ready"
    assert "The summary. &lt;script&gt;" in text
    assert "<script>alert" not in text
