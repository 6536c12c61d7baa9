"""What a key may do and until when; limits of a key and of a project (RELIABILITY 3, decision 0014)."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.utils import timezone

from compaction.models import Compaction, Turn
from compaction.providers.base import Reply
from sessions_app import auth
from sessions_app.models import ApiKey, Project, Spending
from tests.api.client import MODEL, SMALL, Api, chat, user
from tests.api.test_tenants import OF_A_SESSION, TABLE, at, theirs  # noqa: F401 - a fixture

NEEDED = {"get": "read", "delete": "admin"}
RANKS = ["read", "write", "admin"]
USAGE = {"input_tokens": 700, "cache_read_input_tokens": 250, "output_tokens": 50}


def key_of(api: Api, **values: object) -> Api:
    project = ApiKey.objects.get(digest=auth.digest(api.key or "")).project
    return Api(auth.make_key(project, **values))  # type: ignore[arg-type]


def said(command: str, *args: str) -> str:
    out = StringIO()
    call_command(command, *args, stdout=out)
    return out.getvalue().strip()


# --- scopes


@pytest.mark.parametrize("scope", RANKS)
@pytest.mark.parametrize(("method", "route"), sorted(TABLE))
def test_a_call_needs_the_scope_of_its_method(other, theirs, scope, method, route):  # noqa: F811
    needed = NEEDED.get(method, "write")
    answer = key_of(other, scope=scope).call(method.upper(), at(route, theirs), TABLE[method, route])
    if RANKS.index(scope) >= RANKS.index(needed):
        assert answer.status < 300
    else:
        assert f"scope {needed}" in answer.problem(403)["detail"]


def test_a_narrow_key_learns_nothing_of_another_projects_session(api, other, theirs):  # noqa: F811
    key = key_of(api, scope="read")
    for method, route in OF_A_SESSION:
        if method == "get":
            key.call("GET", at(route, theirs)).problem(404)


# --- expiry, rotation, last use


def test_an_expired_key_is_a_401_that_says_so(api):
    key = key_of(api, expires_at=timezone.now() + timedelta(hours=1))
    key.get("/sessions/").expect(200)
    ApiKey.objects.update(expires_at=timezone.now())
    assert "expired" in key.get("/sessions/").problem(401)["detail"]


def test_rotation_makes_a_like_key_and_leaves_the_old_one_for_a_while(api):
    api.session("s")
    ApiKey.objects.update(scope="write", name="runtime")
    prefix = ApiKey.objects.get().prefix
    new = Api(said("keys", "--rotate", prefix, "--grace", "2"))
    old, young = ApiKey.objects.order_by("created_at")
    assert (young.scope, young.name, young.expires_at) == ("write", "runtime", None)
    assert timedelta(hours=1.9) < old.expires_at - timezone.now() <= timedelta(hours=2)
    for key in (api, new):
        key.get("/sessions/s/").expect(200)
    said("keys", "--rotate", prefix, "--grace", "99")
    old.refresh_from_db()
    assert old.expires_at - timezone.now() <= timedelta(hours=2)  # never longer than it had


def test_a_revoked_key_ends_at_once_and_the_list_tells_it(api):
    api.get("/sessions/").expect(200)
    row = ApiKey.objects.get()
    listed = said("keys")
    assert listed.startswith(f"{row.prefix}…  ours  admin  expires never  last used 20")
    assert (api.key or "") not in listed
    said("keys", "--revoke", row.prefix)
    api.get("/sessions/").problem(401)
    assert "revoked" in said("keys")


@pytest.mark.parametrize("prefix", ["nothing", "hango_"])
def test_a_prefix_that_names_no_single_key_changes_nothing(api, other, prefix):
    with pytest.raises(CommandError, match=prefix):
        said("keys", "--revoke", prefix)
    assert not ApiKey.objects.exclude(revoked_at=None).exists()


def test_a_key_is_made_with_scope_and_end(db):
    key = said("make_key", "team", "--scope", "read", "--expires", "30", "--name", "dashboard")
    row = ApiKey.objects.get(digest=auth.digest(key))
    assert (row.scope, row.name, row.project.name) == ("read", "dashboard", "team")
    assert timedelta(days=29.9) < row.expires_at - timezone.now() <= timedelta(days=30)


def test_the_last_use_is_written_once_a_minute(api, django_assert_num_queries):
    api.get("/sessions/").expect(200)
    used = ApiKey.objects.get().last_used_at
    assert used is not None
    with django_assert_num_queries(2):  # the key, the sessions: nothing is written
        api.get("/sessions/").expect(200)
    ApiKey.objects.update(last_used_at=used - timedelta(seconds=61))
    api.get("/sessions/").expect(200)
    assert ApiKey.objects.get().last_used_at > used - timedelta(seconds=61)


def test_no_record_holds_a_providers_key():
    """They stand in the environment alone, so that there is nothing to encrypt at rest."""
    from django.apps import apps

    names = {
        f.name
        for label in ("transcript", "compaction")
        for m in apps.get_app_config(label).get_models()
        for f in m._meta.fields
    }
    assert not {n for n in names if "secret" in n or "api_key" in n or n.endswith("_token")}
    assert {n for n in names if "key" in n} == {"key", "key_digest"}  # of idempotency; a circuit's SHA-256


# --- requests a minute


@pytest.fixture
def minute(monkeypatch):
    """A minute that does not end, and no request counted yet."""
    from sessions_app import limits

    cache.clear()
    monkeypatch.setattr(limits.time, "time", lambda: 1_000_000_020.0)
    yield
    cache.clear()


def test_a_key_over_its_limit_is_a_429_with_the_time_to_wait(api, other, settings, minute):
    settings.HANGO_RATE_LIMIT_PER_MINUTE, settings.HANGO_WEB_WORKERS = 6, 2
    for _ in range(3):  # this process's share
        api.get("/sessions/").expect(200)
    refused = api.post("/sessions/", {"model": MODEL})
    refused.problem(429)
    assert 0 < int(refused.headers["Retry-After"]) <= 61
    assert api.get("/sessions/").status == 429
    other.get("/sessions/").expect(200)
    assert Project.objects.get(name="ours").sessions.count() == 0


def test_a_projects_own_limit_wins_and_0_is_none(api, other, settings, minute):
    settings.HANGO_RATE_LIMIT_PER_MINUTE, settings.HANGO_WEB_WORKERS = 1, 1
    Project.objects.filter(name="ours").update(rate_limit_per_minute=2)
    Project.objects.filter(name="theirs").update(rate_limit_per_minute=0)
    assert [api.get("/sessions/").status for _ in range(3)] == [200, 200, 429]
    assert {other.get("/sessions/").status for _ in range(5)} == {200}


# --- tokens a day


@pytest.fixture
def budget(api):
    project = Project.objects.get(name="ours")
    project.daily_token_budget = 1_000
    project.save()
    return project


def run(api, session, text="Hello.", **more):
    return api.post(f"{session}/turns/", {"messages": [user(text)], **more})


def test_a_spent_budget_is_told_before_the_model_is_called_and_loses_nothing(api, provider, budget):
    session = api.session()
    provider.play(Reply("Hi.", "end_turn", USAGE), Reply("Again.", "end_turn", USAGE))
    run(api, session).expect(200)
    assert Spending.objects.get().tokens == 1_000
    refused = run(api, session, "More.")
    refused.problem(429, "budget-spent")
    assert 0 < int(refused.headers["Retry-After"]) <= 86_401
    assert run(api, session, "And more.", stream=True).status == 429
    assert len(provider.calls) == 1
    assert [m["content"] for m in api.transcript(session)][2:] == ["More.", "And more."]
    assert Turn.objects.count() == 1
    api.build(session)  # a runtime that calls the model itself goes on
    Spending.objects.update(day=timezone.now().date() - timedelta(days=1))
    run(api, session, "New day.").expect(200)


def test_a_summary_waits_for_the_next_day_and_the_session_says_why(api, work, provider, budget):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    Spending.objects.create(project=budget, day=timezone.now().date(), tokens=1_000)
    api.post(f"{session}/compactions/", {}).expect(202)
    work()
    job = Compaction.objects.get()
    assert (job.status, job.attempts) == ("requested", 0)
    assert timedelta(0) < job.next_at - timezone.now() <= timedelta(days=1)
    assert provider.calls == []
    api.say(session, user("Go on."))
    built = api.build(session)
    assert built["work"] == {"state": "requested", "code": "budget-spent", "compaction": str(job.pk)}


def test_a_build_that_has_to_fit_takes_an_extract_when_nothing_may_be_spent(api, provider, budget):
    session = api.session(limits={**SMALL, "precompute_frac": None, "max_wait_s": 20})
    api.say(session, *chat(30), user("Go on."))
    Spending.objects.create(project=budget, day=timezone.now().date(), tokens=1_000)
    assert api.build(session)["compaction"]["kind"] == "extractive"
    assert [c for c in provider.calls if c.purpose == "summarize"] == []


def test_what_a_summary_takes_is_counted_too(api, work, provider, budget):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    provider.play(Reply("SUMMARY of it all.", "end_turn", USAGE))
    api.post(f"{session}/compactions/", {}).expect(202)
    work()
    assert Spending.objects.get().tokens == 1_000


def test_without_a_budget_nothing_is_counted(api, provider):
    run(api, api.session()).expect(200)
    assert not Spending.objects.exists()
