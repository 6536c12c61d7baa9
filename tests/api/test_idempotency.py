"""`Idempotency-Key`: a call that is sent again has its effect once and its first answer again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from compaction import tasks
from compaction.models import Compaction
from sessions_app import idempotency
from sessions_app.models import IdempotentAnswer, Message, Session
from tests.api.client import MODEL, SMALL, chat, label, user


@pytest.fixture
def long(api) -> str:
    session = api.session("long", limits=SMALL)
    api.say(session, *chat(8))
    return session


# what takes the key: path, a good body, another good body
CALLS = {
    "create": ("/sessions/", {"model": MODEL}, {"model": "other"}),
    "append": ("/sessions/long/messages/", {"messages": [user("once")]}, {"messages": [user("twice")]}),
    "compact": ("/sessions/long/compactions/", {}, {"instructions": "short"}),
    "wait for a compaction": (
        "/sessions/long/compactions/",
        {"wait": True},
        {"wait": True, "instructions": "short"},
    ),
    "import a compaction": (
        "/sessions/long/compactions/",
        {"summary": "a", "kept_from": 2},
        {"summary": "b", "kept_from": 2},
    ),
}
EVERY = pytest.mark.parametrize(("path", "body", "another"), CALLS.values(), ids=list(CALLS))


def counts() -> list[int]:
    return [model.objects.count() for model in (Session, Message, Compaction)]


@EVERY
def test_the_same_key_and_body_gives_the_first_answer_again_and_no_second_effect(
    api, long, provider, path, body, another
):
    first = api.post(path, body, Idempotency_Key="k")
    assert first.status in (201, 202)
    before, asked = counts(), len(provider.calls)
    for _ in range(3):
        again = api.post(path, body, Idempotency_Key="k")
        assert (again.status, again.raw) == (first.status, first.raw)
    assert counts() == before
    assert len(provider.calls) == asked


@EVERY
def test_the_same_key_with_another_body_is_a_409_and_has_no_effect(api, long, provider, path, body, another):
    first = api.post(path, body, Idempotency_Key="k")
    before, asked = counts(), len(provider.calls)
    api.post(path, another, Idempotency_Key="k").problem(409)
    assert counts() == before
    assert len(provider.calls) == asked
    assert api.post(path, body, Idempotency_Key="k").raw == first.raw


@EVERY
def test_another_key_is_another_call(api, long, work, path, body, another):
    first = api.post(path, body, Idempotency_Key="one")
    work()
    api.say(long, *chat(8))
    second = api.post(path, body, Idempotency_Key="two")
    assert second.status == first.status
    assert second.raw != first.raw


@EVERY
def test_without_a_key_each_call_counts(api, long, path, body, another):
    api.post(path, body)
    assert not IdempotentAnswer.objects.exists()


def test_the_answer_is_the_first_one_even_when_things_have_changed(api, long, work):
    first = api.post(f"{long}/compactions/", {}, Idempotency_Key="k").expect(202)
    assert [job.status for job in work()] == ["ready"]
    again = api.post(f"{long}/compactions/", {}, Idempotency_Key="k")
    assert (again.status, again.raw) == (202, first.raw)


def test_bytes_come_back_as_they_were(api):
    raw = '{"id":"s","model":"m","metadata":{"b":1.0,"a":1e2,"u":"\\ud800"},"system":"é"}'
    first = api.post("/sessions/", raw=raw, Idempotency_Key="k").expect(201)
    assert api.post("/sessions/", raw=raw, Idempotency_Key="k").raw == first.raw


def test_the_same_key_at_another_address_is_a_409(api, long):
    api.session("another")
    body = {"messages": [user("once")]}
    api.post(f"{long}/messages/", body, Idempotency_Key="k").expect(201)
    api.post("/sessions/another/messages/", body, Idempotency_Key="k").problem(409)
    assert api.transcript("/sessions/another") == []


REFUSED = [
    ("/sessions/", {"model": ""}, {"model": MODEL}), ("/sessions/", {"id": "../x", "model": MODEL}, {"id": "x", "model": MODEL}),
    ("/sessions/", {"id": "long", "model": MODEL}, {"id": "longer", "model": MODEL}),
    ("/sessions/long/messages/", {"messages": [{"role": "x", "content": "y"}]}, {"messages": [user()]}),
    ("/sessions/long/messages/", {"messages": [user()], "expected_seq": 0}, {"messages": [user()], "expected_seq": 17}),
    ("/sessions/long/compactions/", {"reason": "because"}, {"reason": "manual"}),
    ("/sessions/long/compactions/", {"summary": "x", "kept_from": 99}, {"summary": "x", "kept_from": 9}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "bad", "good"), REFUSED, ids=label)
def test_a_refused_call_is_not_stored_so_that_it_can_be_corrected(api, long, path, bad, good):
    refused = api.post(path, bad, Idempotency_Key="k")
    assert 400 <= refused.status < 500
    assert not IdempotentAnswer.objects.exists()
    assert api.post(path, good, Idempotency_Key="k").status < 300


def test_a_call_to_a_session_that_is_none_is_not_stored(api):
    api.post("/sessions/s/messages/", {"messages": [user()]}, Idempotency_Key="k").problem(404)
    api.session()
    api.post("/sessions/s/messages/", {"messages": [user()]}, Idempotency_Key="k").expect(201)


def test_a_call_that_broke_is_not_stored_and_left_nothing(api, long, monkeypatch):
    from sessions_app import views

    with monkeypatch.context() as patch:
        patch.setattr(views, "appended", _raise_after(views.appended))
        api.http.raise_request_exception = False
        api.post(f"{long}/messages/", {"messages": [user("once")]}, Idempotency_Key="k").problem(500)
    assert not IdempotentAnswer.objects.exists()
    assert len(api.transcript(long)) == 17
    api.post(f"{long}/messages/", {"messages": [user("once")]}, Idempotency_Key="k").expect(201)
    assert len(api.transcript(long)) == 18


def _raise_after(call):
    def broken(*args, **kwargs):
        call(*args, **kwargs)
        raise RuntimeError("after the effect")

    return broken


@pytest.mark.parametrize("key", ["", " ", "k" * 256, "a\tb", "\xff" * 300])
def test_a_key_that_is_none_is_a_400_and_has_no_effect(api, key):
    answer = api.post("/sessions/", {"id": "s", "model": MODEL}, Idempotency_Key=key)
    if key != " ":
        answer.problem(400)
        assert not Session.objects.exists()


@pytest.mark.parametrize(
    "key", ["k", "k" * 255, "6f1c0b7e-8d8e-4d0e-9b57-0c0f3f4e7b11", '"quoted"', "é", "a b"]
)
def test_any_printable_key_will_do(api, key):
    first = api.post("/sessions/", {"model": MODEL}, Idempotency_Key=key).expect(201)
    assert api.post("/sessions/", {"model": MODEL}, Idempotency_Key=key).raw == first.raw


def test_an_append_with_a_key_and_client_ids_is_stored_once(api, long):
    body = {"messages": [user("once", client_id="c")]}
    api.post(f"{long}/messages/", body, Idempotency_Key="k").expect(201)
    api.post(f"{long}/messages/", body, Idempotency_Key="k").expect(201)
    api.post(f"{long}/messages/", body, Idempotency_Key="other").expect(201)
    assert len(api.transcript(long)) == 18


def test_answers_are_forgotten_after_two_days_a_batch_at_a_time(api):
    for n in range(3):
        api.post("/sessions/", {"model": MODEL}, Idempotency_Key=f"k{n}").expect(201)
    rows = IdempotentAnswer.objects
    rows.exclude(key="k2").update(created_at=timezone.now() - idempotency.KEPT - timedelta(minutes=1))
    assert idempotency.forget_old(limit=1) == 1
    assert rows.count() == 2
    tasks.expire()
    assert rows.get().key == "k2"
