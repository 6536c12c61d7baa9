"""The admin: everything can be looked at, nothing changed, and nothing that was stored is ever markup."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from compaction.models import Circuit, Compaction, Frame, ModelFact, Turn
from sessions_app import auth, readable
from sessions_app.models import ApiKey, Message, Project, Session
from tests.api.admin_rows import EVIL, SESSIONS, hostile, shown, staff, url
from tests.api.client import Api, assistant, user

MODELS = (Project, ApiKey, Session, Turn, Compaction, Frame, ModelFact, Circuit)
LISTS = [f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist" for model in MODELS]


@pytest.fixture
def full(api: Api) -> Session:
    """A session with turns, and compactions of several kinds and states."""
    session = hostile(api, rounds=4)
    auth.make_key(session.project, EVIL)
    api.post("/sessions/s/compactions/", {"summary": f"What was said. {EVIL}", "kept_from": 3}).expect(201)
    api.post("/sessions/s/requests/", {}).expect(200)
    api.say("/sessions/s", user("Anything else?"))
    ready = Compaction.objects.get()
    for status in ("failed", "requested"):
        Compaction.objects.create(
            session=session, reason="manual", status=status, apply="next_build", kept_from=5, base=ready, instructions=EVIL,
            partial=EVIL, error=EVIL, error_code="x", ledger=[EVIL], notes=[EVIL], summarizer_model=EVIL, head=EVIL,
            identifiers_found=[EVIL, "kept"], identifiers_kept=["kept"], cost_usd="0.0123", offload_path=session.history_path,
            usage={"input_tokens": 12345, "output_tokens": 67, "note": EVIL}, tokens_before=9000, tokens_after=1000,
        )  # fmt: skip
    ModelFact.objects.create(model=EVIL, base_url=EVIL, estimate_factor=1.1)
    Circuit.objects.create(key_digest="c0ffee00" * 8, error_code="overloaded")
    return session


def pages(session: Session) -> list[str]:
    """Every page of the admin with data in it."""
    found = [reverse(name) for name in LISTS]
    for model in admin.site._registry:
        for row in model.objects.all():
            change = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[row.pk])
            found += [change, change.replace("/change/", "/history/")]
    found += [url(session, page) for page in ("transcript", "turns", "compactions", "evicted", "compact-now")]
    found.append(url(session, "transcript") + "?from=2&whole=1")
    found.append(f"/admin/compaction/compaction/evicted/{session.pk}/?pattern=%3Cscript")
    return [*found, "/admin/", "/admin/auth/user/add/", "/admin/auth/group/add/"]


# --- looking


def test_every_page_answers_and_nothing_that_was_stored_is_markup(admin_client, full, api):
    digests = set(ApiKey.objects.values_list("digest", flat=True))
    escaped = 0
    for address in pages(full):
        text = shown(admin_client, address)
        assert "<script>alert" not in text, address
        escaped += "&lt;script&gt;alert" in text
        assert api.key not in text, address
        assert not any(digest in text for digest in digests), address
        assert "c0ffee00c0ffee00" not in text, address
    assert escaped >= 15  # it is there, as text


def test_the_transcript_shows_blocks_and_what_the_newest_turn_makes_of_them(admin_client, full):
    text = shown(admin_client, url(full, "transcript"))
    blocks = ("Find it. &lt;script&gt;", "Thinking", "read_file", "call_0", "Error", "Result")
    assert all(part in text for part in (*blocks, "pinned", "not sent yet"))
    assert text.count('class="hango-message') == full.messages.count()
    turn = full.turns.order_by("-number").first()
    assert turn is not None
    assert turn.kept_from > 0
    Turn.objects.filter(pk=turn.pk).update(first_seq=turn.kept_from + 2, args_cut_before=turn.last_seq + 1)
    full.messages.filter(seq=turn.last_seq).update(tokens=100_000)
    text = shown(admin_client, url(full, "transcript"))
    badges = re.findall(r"whitespace-nowrap[^>]*>\s*(summarised|dropped|shown, cut|shown|not sent yet)", text)
    kinds = ["summarised", "dropped", "shown", "shown, cut", "not sent yet"]
    assert [badges.count(kind) for kind in kinds] == [
        turn.kept_from,
        2,
        turn.last_seq - turn.kept_from - 2,
        1,
        1,
    ]


def test_the_transcript_is_paged_by_seq_and_reads_one_page_only(
    admin_client, api, django_assert_max_num_queries
):
    session = hostile(api, rounds=0)
    api.say("/sessions/s", *(user(f"number {n}.") for n in range(250)))
    with django_assert_max_num_queries(8):
        first = shown(admin_client, url(session, "transcript"))
    assert "number 98." in first
    assert "number 99." not in first
    assert 'href="?from=100"' in first
    second = shown(admin_client, url(session, "transcript") + "?from=100")
    assert "number 99." in second
    assert "number 198." in second
    assert "number 199." not in second
    assert 'href="?from=0"' in second
    assert "no messages here" in shown(admin_client, url(session, "transcript") + "?from=4000")
    for odd in ("-1", "x", "9" * 30, "", "²"):
        assert "number 5." in shown(admin_client, url(session, "transcript") + f"?from={odd}")


def test_long_blocks_are_clipped_with_a_way_to_the_whole(admin_client, api):
    session = hostile(api, rounds=0)
    api.say("/sessions/s", user("a" * 3 * readable.LONGEST + "the very end"))
    text = shown(admin_client, url(session, "transcript"))
    assert "characters left out" in text
    assert "?from=1&amp;whole=1" in text
    assert "a" * 2 * readable.LONGEST in shown(admin_client, url(session, "transcript") + "?from=1&whole=1")


def test_odd_blocks_and_characters_are_shown_not_fatal(admin_client, api):
    session = hostile(api, rounds=0)
    pixel = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 1000}}
    call = {"type": "tool_use", "id": "a", "name": "n", "input": {"k": "\udc00"}}
    other = {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}
    said = [
        user("lone \ud800 and \0 and \x1b[31m"),
        assistant([{"type": "redacted_thinking", "data": "zzz"}, call]),
        user([{"type": "tool_result", "tool_use_id": "a", "content": [pixel]}, pixel]),
        user([{"type": "tool_result", "tool_use_id": "b"}, {"type": "text", "text": ""}]),
        assistant([other]),
    ]
    api.say("/sessions/s", *said)
    text = shown(admin_client, url(session, "transcript"))
    assert "image/png, 3,000 bytes" in text
    assert "QUJDQUJD" not in text
    assert "Thinking, encrypted" in text
    assert "␀" in text
    assert "\0" not in text


def test_the_history_page_shows_the_evicted_lines_escaped_and_paged(admin_client, api):
    session = hostile(api, rounds=30)
    api.post("/sessions/s/compactions/", {"summary": "short", "kept_from": 59})
    address = f"/admin/compaction/compaction/evicted/{session.pk}/"
    text = shown(admin_client, address)
    assert "# Conversation s" in text
    assert "&lt;script&gt;" in text
    assert "?offset=500&amp;" in text
    assert "Lines <b>500–" in shown(admin_client, address + "?offset=500")
    assert "# Conversation" not in shown(admin_client, address + "?pattern=call_1")
    assert "at most 200" in shown(admin_client, address + f"?pattern={'x' * 201}")
    unknown = uuid.UUID(int=0)
    assert admin_client.get(f"/admin/compaction/compaction/evicted/{unknown}/").status_code == 404
    assert admin_client.get(f"{SESSIONS}{unknown}/transcript/").status_code == 404


def test_a_compaction_page_links_its_history_and_tells_usage_and_cost(admin_client, full):
    row = Compaction.objects.get(status="failed")
    text = shown(admin_client, reverse("admin:compaction_compaction_change", args=[row.pk]))
    for part in (f"evicted/{full.pk}/", full.history_path, "in 12,345 · out 67 · $0.0123", "9,000 → 1,000"):
        assert part in text


def test_lists_can_be_searched_and_filtered(admin_client, api, other):
    hostile(other, "hers", rounds=1)
    mine = hostile(api, "mine")
    api.post("/sessions/mine/compactions/", {"summary": "short", "kept_from": 3}).expect(201)
    turn = api.post("/sessions/mine/requests/", {}).expect(200)["turn"]
    api.complete("/sessions/mine", turn).expect(200)
    compactions, turns = "/admin/compaction/compaction/", "/admin/compaction/turn/"
    wanted = "q=mine&status__exact=ready&kind__exact=imported&reason__exact=imported"
    found = {
        f"{SESSIONS}?q=ours": {"mine"},
        f"{SESSIONS}?q=mine": {"mine"},
        f"{SESSIONS}?q=claude": {"mine", "hers"},
        f"{SESSIONS}?compacted=yes": {"mine"},
        f"{SESSIONS}?compacted=no": {"hers"},
        f"{SESSIONS}?project__id__exact={mine.project_id}": {"mine"},
        f"{compactions}?{wanted}": {"mine"},
        f"{compactions}?status__exact=failed": set(),
        f"{turns}?q=hers": {"hers"},
        f"{turns}?status__exact=completed": {"mine", "hers"},
        f"{turns}?status__exact=failed": set(),
    }
    for address, names in found.items():
        assert set(re.findall(">(mine|hers)</a>", shown(admin_client, address))) == names, address


def test_lists_take_as_many_queries_for_twenty_rows_as_for_two(
    admin_client, history_folder, django_assert_max_num_queries
):
    def more(numbers: range) -> None:
        for n in numbers:
            owner = Api(auth.make_key(Project.objects.create(name=f"p{n}")))
            session = hostile(owner, f"s{n}", rounds=1, system=f"system {n}")
            owner.post(f"/sessions/s{n}/compactions/", {"summary": "short", "kept_from": 1}).expect(201)
            Compaction.objects.create(session=session, reason="manual", apply="next_build")
            ModelFact.objects.create(model=f"m{n}")
            Circuit.objects.create(key_digest=f"{n:064}")

    def needed(name: str) -> int:
        with django_assert_max_num_queries(12) as queries:
            assert admin_client.get(reverse(name)).status_code == 200
        return len(queries)

    more(range(2))
    few = [needed(name) for name in LISTS for _ in range(2)][1::2]  # content types and the like are read once
    more(range(2, 20))
    assert [needed(name) for name in LISTS] == few


# --- not touching


def test_records_cannot_be_added_changed_or_deleted_even_by_a_superuser(admin_client, full):
    def stored() -> list[Any]:
        return [list(model.objects.order_by("pk").values()) for model in (*MODELS, Message)]

    before = stored()
    for model in MODELS:
        base = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        row = model.objects.first()
        assert row is not None
        change, every = reverse(f"{base}_change", args=[row.pk]), reverse(f"{base}_changelist")
        delete_all = {
            "action": "delete_selected",
            "_selected_action": [str(row.pk)],
            "post": "yes",
            "index": "0",
        }
        assert admin_client.post(reverse(f"{base}_add"), {"name": "x"}).status_code == 403
        if model is not Project:  # whose limits may be set, and nothing else
            assert admin_client.post(change, {"name": "x", "_save": "1"}).status_code == 403
            assert 'name="_save"' not in shown(admin_client, change)
        assert admin_client.post(reverse(f"{base}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
        admin_client.post(every, delete_all)
        assert "delete_selected" not in shown(admin_client, every)
    assert stored() == before


def test_a_projects_limits_are_set_in_the_admin_and_nothing_else_of_it(admin_client, api):
    project = Project.objects.get(name="ours")
    page = reverse("admin:transcript_project_change", args=[project.pk])
    sent = {"name": "x", "rate_limit_per_minute": "60", "daily_token_budget": "5000", "_save": "1"}
    assert admin_client.post(page, sent).status_code == 302
    project.refresh_from_db()
    assert (project.name, project.rate_limit_per_minute, project.daily_token_budget) == ("ours", 60, 5000)


def test_a_key_is_revoked_in_the_admin(admin_client, api, other):
    row = Project.objects.get(name="ours").keys.get()
    page = reverse("admin:transcript_apikey_changelist")
    admin_client.post(page, {"action": "revoke", "_selected_action": [str(row.pk)], "index": "0"})
    api.get("/sessions/").problem(401)
    other.get("/sessions/").expect(200)


def test_without_a_login_or_the_right_there_is_nothing_to_see(full):
    for address in pages(full):
        assert Client().get(address).status_code == 302, address
    nobody = staff()
    for address in pages(full):
        if address != "/admin/":
            assert nobody.get(address).status_code == 403, address


def test_whoever_may_see_sessions_only_does_not_read_their_messages(full):
    client = staff("transcript.view_session")
    page = shown(client, url(full, "change"))
    for closed in ("transcript", "evicted", "turns", "compactions", "compact-now"):
        assert client.get(url(full, closed)).status_code == 403
        assert url(full, closed) not in page
    assert client.get(f"/admin/compaction/compaction/evicted/{full.pk}/").status_code == 403


def test_whoever_may_see_turns_only_does_not_see_sessions(full):
    assert staff("compaction.view_turn").get(url(full, "turns")).status_code == 403


def test_users_and_groups_stay_editable_so_that_permissions_can_be_given(admin_client):
    password = "a-long-one-12"
    page = {"username": "new", "usable_password": "true", "password1": password, "password2": password}
    assert admin_client.post("/admin/auth/user/add/", page).status_code == 302
    assert User.objects.filter(username="new").exists()
    assert "Can force a compaction" in shown(admin_client, "/admin/auth/group/add/")
