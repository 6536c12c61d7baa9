"""`POST …/turns/`: hango calls the provider itself, as JSON or as the provider's events."""

from __future__ import annotations

import json
import logging

import pytest
from django.core import signals
from django.db import close_old_connections
from django.test import RequestFactory

from compaction import views
from compaction.engine import exact
from compaction.engine.errors import ProviderFailed
from compaction.models import Turn
from compaction.providers.base import Event, Reply
from sessions_app.models import IdempotentAnswer
from tests.api.client import SMALL, accepted, assistant, chat, user
from tests.upstream import strict_anthropic

USAGE = {"input_tokens": 321, "output_tokens": 9}
KEY = "sk-ant-never-to-be-seen-0123456789"


@pytest.fixture
def session(api) -> str:
    return api.session("s")


def run(api, session, *messages, key=None, accept=None, **body):
    headers = ({"Idempotency_Key": key} if key else {}) | ({"Accept": accept} if accept else {})
    return api.post(f"{session}/turns/", {"messages": list(messages), **body}, **headers)


def events(answer):
    """(name, data) of each event of a stream."""
    found = []
    for part in answer.text.split("\n\n")[:-1]:
        name, data = part.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert answer.text.endswith("\n\n")
    return found


def refused(status=400, message="prompt is too long", **more):
    fields = {"kind": "invalid_request_error", "http_status": status, "message": message} | more
    return ProviderFailed(f"the provider answered {status}", **fields)


# --- as JSON


@pytest.mark.parametrize("value", [{}, "x", 5, True, [5], [{"role": "system", "content": "x"}], False, 0, ""])
def test_messages_that_are_none_are_a_422_and_no_call(api, session, provider, value):
    api.say(session, user())
    assert api.post(f"{session}/turns/", {"messages": value}).pointers()[0].startswith("/messages")
    assert len(api.transcript(session)) == 1
    assert not provider.calls
    assert not Turn.objects.exists()


def test_a_turn_is_run_and_its_message_stored(api, session, provider):
    provider.play(Reply("Hello back.", "end_turn", USAGE))
    done = run(api, session, user("Hello."), max_tokens=99).expect(200)
    assert {k: done[k] for k in ("turn", "status", "stop_reason", "usage", "compaction")} == {
        "turn": 1, "status": "completed", "stop_reason": "end_turn", "usage": USAGE, "compaction": None,
    }  # fmt: skip
    assert done["message"] == assistant([{"type": "text", "text": "Hello back."}])
    assert [(a["rung"], a["outcome"]) for a in done["attempts"]] == [("first", "completed")]
    (call,) = provider.calls
    assert accepted(call.body)
    assert (call.purpose, call.max_tokens) == ("chat", 99)
    stored = api.transcript(session)
    assert [m["role"] for m in stored] == ["user", "assistant"]
    assert api.get(f"{session}/turns/1/request/").member("request") == call.body
    assert api.get(f"{session}/").expect(200)["last_input_tokens"] == 321


def test_the_models_bytes_are_passed_on_and_stored_as_they_came(api, session, provider):
    content = (
        '[{"type":"tool_use","id":"c","name":"read_file","input":{"b":1.0,"a":12345678901234567890.10}}]'
    )
    provider.play(Reply.of(content, "tool_use", USAGE))
    done = run(api, session, user("Read."))
    assert content in done.text
    assert content in api.get(f"{session}/messages/").text


def test_memory_and_earlier_messages_go_in(api, session, provider):
    api.say(session, user("First."), assistant("Yes."))
    run(api, session, user("Second."), memory="It is Monday.").expect(200)
    assert all(said in provider.calls[0].body for said in ("First.", "Second.", "It is Monday."))


def test_the_ladder_is_climbed_and_told(api, provider):
    long = api.session("long", limits={**SMALL, "max_wait_s": 20})
    api.say(long, *chat(9))
    provider.play(refused(), "SUMMARY", refused(), Reply("Made it.", "end_turn", USAGE))
    done = run(api, long, user("Go on.")).expect(200)
    assert [(a["rung"], a["outcome"]) for a in done["attempts"]] == [
        ("first", "overflow"), ("overflow", "overflow"), ("truncate", "completed"),
    ]  # fmt: skip
    assert (done["compaction"]["reason"], done["compaction"]["applied_now"]) == ("overflow", True)
    assert api.get(f"{long}/").expect(200)["compactions"] == 1


def test_a_third_overflow_is_an_answer_that_says_failed(api, provider):
    long = api.session("long", limits={**SMALL, "max_wait_s": 20})
    api.say(long, *chat(9))
    provider.play(refused(), "SUMMARY", refused(), refused())
    done = run(api, long, user("Go on.")).expect(200)
    assert (done["status"], done["message"], len(done["attempts"])) == ("failed", None, 3)
    assert done["detail"]
    assert api.transcript(long)[-1]["content"] == "Go on."


def test_an_error_that_is_no_overflow_is_a_problem_and_loses_nothing(api, session, provider):
    provider.play(refused(401, "invalid x-api-key", kind="authentication_error"))
    run(api, session, user("Hello.")).problem(502, "provider-failed")
    assert [m["content"] for m in api.transcript(session)] == ["Hello."]
    assert Turn.objects.get().status == "failed"
    assert run(api, session).expect(200)["turn"] == 2  # the next call answers what was stored


@pytest.mark.parametrize("stream", [False, True])
def test_without_a_provider_it_is_a_problem(api, session, settings, stream):
    settings.HANGO_PROVIDER = "extractive"
    problem = run(api, session, user("Hello."), stream=stream).problem(502, "provider-failed")
    assert "ANTHROPIC_API_KEY" in problem["detail"]


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_to_send_is_a_problem_whatever_was_asked_for(api, session, provider, stream):
    run(api, session, stream=stream).problem(409, "nothing-to-send")
    assert provider.calls == []


def test_another_projects_session_is_not_there(api, other, session, provider):
    run(other, session, user("Hello.")).problem(404)
    assert provider.calls == []


# --- as events


ASKED_FOR = pytest.mark.parametrize(
    "asked", [{"stream": True}, {"accept": "text/event-stream"}], ids=["body", "header"]
)


@ASKED_FOR
def test_the_providers_events_are_passed_on_in_order_and_the_message_stored(api, session, provider, asked):
    provider.play(Reply("Streamed.", "end_turn", USAGE))
    answer = run(api, session, user("Hello."), **asked).expect(200)
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["X-Hango-Turn"] == "1"
    said = events(answer)
    assert [name for name, _ in said] == [
        "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert all(data["type"] == name for name, data in said)
    assert said[1][1]["content_block"] == {"type": "text", "text": "Streamed."}
    assert api.transcript(session)[-1]["content"] == [{"type": "text", "text": "Streamed."}]
    turn = Turn.objects.get()
    assert (turn.status, turn.usage) == ("completed", USAGE)


def test_stream_false_is_json(api, session):
    assert run(api, session, user("Hello."), stream=False).headers["Content-Type"] == "application/json"


def test_an_overflow_before_the_first_content_is_never_seen(api, provider):
    long = api.session("long", limits={**SMALL, "max_wait_s": 20})
    api.say(long, *chat(9))
    provider.play(refused(), "SUMMARY", Reply("Made it.", "end_turn", USAGE))
    answer = run(api, long, user("Go on."), stream=True)
    assert [name for name, _ in events(answer)].count("message_start") == 1
    assert Turn.objects.get().rung == "overflow"


def test_a_turn_that_failed_before_the_first_event_is_answered_as_json(api, provider):
    long = api.session("long", limits={**SMALL, "max_wait_s": 20})
    api.say(long, *chat(9))
    provider.play(refused(), "SUMMARY", refused(), refused())
    done = run(api, long, user("Go on."), stream=True).expect(200)
    assert (done["status"], len(done["attempts"])) == ("failed", 3)


def test_an_error_before_the_first_event_is_a_problem(api, session, provider):
    provider.play(refused(404, "no such model", kind="not_found_error"))
    run(api, session, user("Hello."), stream=True).problem(502, "provider-failed")


def breaking_off(after, error):
    """A provider's stream that fails after so many events."""

    def stream(call):
        sent = [
            {"type": "message_start", "message": {"usage": USAGE}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Ha"}},
            {"type": "content_block_stop", "index": 0},
        ]
        for data in sent[:after]:
            yield Event(data["type"], exact.dumps(data))
        raise error

    return stream


def test_a_failure_after_the_first_content_becomes_an_error_event(api, session, provider, monkeypatch):
    """It is not tried again, though it may pass: half an answer was shown."""
    error = refused(529, f"overloaded {KEY}", kind="overloaded_error", retryable=True)
    monkeypatch.setattr(provider, "stream", breaking_off(2, error))
    answer = run(api, session, user("Hello."), stream=True).expect(200)
    *shown, (name, data) = events(answer)
    assert [n for n, _ in shown] == ["message_start", "content_block_start"]
    assert (name, data["type"], data["error"]["type"]) == ("error", "error", "provider-failed")
    assert KEY not in answer.text
    assert [m["content"] for m in api.transcript(session)] == ["Hello."]
    turn = Turn.objects.get()
    assert (turn.status, turn.attempts[-1]["outcome"]) == ("failed", "overloaded_error")


# --- a client that leaves


@pytest.fixture
def kept_connection():
    """The end of a request does not close the test's own database connection."""
    signals.request_finished.disconnect(close_old_connections)
    yield
    signals.request_finished.connect(close_old_connections)


def begun(api, session, *messages, key=None):
    """(the response, its chunks) of a stream that nobody has read yet, as a server holds them."""
    headers = {"Authorization": f"Bearer {api.key}"} | ({"Idempotency-Key": key} if key else {})
    request = RequestFactory().generic(
        "POST", f"/api/v1{session}/turns/", json.dumps({"messages": list(messages), "stream": True}),
        content_type="application/json", headers=headers,
    )  # fmt: skip
    response = views.Turns.as_view()(request, public_id=session.rsplit("/", 1)[1])
    assert response.streaming
    return response, iter(response)


@pytest.mark.parametrize("read", [0, 1, 2, 4])
def test_a_client_that_leaves_does_not_lose_the_message(api, session, provider, kept_connection, read):
    provider.play(Reply("Nobody listens.", "end_turn", USAGE))
    response, chunks = begun(api, session, user("Hello."), key="k")
    for _ in range(read):
        next(chunks)
    response.close()
    assert api.transcript(session)[-1]["content"] == [{"type": "text", "text": "Nobody listens."}]
    turn = Turn.objects.get()
    assert (turn.status, turn.usage) == ("completed", USAGE)
    again = run(api, session, user("Hello."), key="k", stream=True).expect(200)
    assert "Nobody listens." in again.text
    assert (again.headers["Content-Type"], Turn.objects.count()) == ("text/event-stream", 1)


def test_a_failure_that_nobody_is_there_to_hear_of_disturbs_nobody(
    api, session, provider, kept_connection, monkeypatch
):
    monkeypatch.setattr(provider, "stream", breaking_off(3, refused(500, kind="api_error", retryable=True)))
    response, chunks = begun(api, session, user("Hello."), key="k")
    next(chunks)
    response.close()
    assert Turn.objects.get().status == "failed"
    monkeypatch.undo()
    run(api, session, user("Hello."), key="k", stream=True).expect(200)
    assert [m["role"] for m in api.transcript(session)] == ["user", "assistant"]


# --- Idempotency-Key


def test_the_same_key_gives_the_same_answer_and_no_second_call(api, session, provider):
    first = run(api, session, user("Hello."), key="k").expect(200)
    again = run(api, session, user("Hello."), key="k")
    assert (again.status, again.raw) == (200, first.raw)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (len(provider.calls), Turn.objects.count(), len(api.transcript(session))) == (1, 1, 2)
    assert run(api, session, user("Hello."), key="another").expect(200)["turn"] == 2


def test_a_failed_turn_is_an_answer_too(api, provider):
    long = api.session("long", limits={**SMALL, "max_wait_s": 20})
    api.say(long, *chat(9))
    provider.play(refused(), "SUMMARY", refused(), refused())
    first = run(api, long, user("Go on."), key="k").expect(200)
    assert first["status"] == "failed"
    assert run(api, long, user("Go on."), key="k").raw == first.raw


@pytest.mark.parametrize("stream", [False, True])
def test_while_it_runs_the_same_key_is_a_409(api, session, provider, stream):
    seen = []
    provider.during = lambda _: seen.append(run(api, session, user("Hello."), key="k", stream=stream))
    run(api, session, user("Hello."), key="k", stream=stream).expect(200)
    (meanwhile,) = seen
    meanwhile.problem(409, "conflict")
    assert (len(provider.calls), Turn.objects.count()) == (1, 1)


def test_another_body_under_the_same_key_is_a_409_also_while_it_runs(api, session, provider):
    seen = []
    provider.during = lambda _: seen.append(run(api, session, user("Other."), key="k"))
    run(api, session, user("Hello."), key="k").expect(200)
    seen[0].problem(409, "conflict")
    run(api, session, user("Other."), key="k").problem(409, "conflict")
    assert len(provider.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_failed_is_tried_again_under_its_key_without_appending_twice(
    api, session, provider, stream
):
    provider.play(refused(401, "invalid x-api-key", kind="authentication_error"))
    run(api, session, user("Hello."), key="k", stream=stream).problem(502)
    run(api, session, user("Other."), key="k", stream=stream).problem(409, "conflict")
    assert [m["content"] for m in api.transcript(session)] == ["Hello."]
    again = run(api, session, user("Hello."), key="k", stream=stream).expect(200)
    assert [m["role"] for m in api.transcript(session)] == ["user", "assistant"]
    assert (len(provider.calls), Turn.objects.count()) == (2, 2)
    assert run(api, session, user("Hello."), key="k", stream=stream).raw == again.raw
    assert len(provider.calls) == 2


def test_messages_that_are_refused_leave_the_key_free(api, session, provider):
    bad = {"role": "user", "content": 7}
    assert run(api, session, bad, key="k").status == 422
    assert run(api, session, user("Hello."), key="k").expect(200)["status"] == "completed"


def test_a_stream_that_came_to_its_end_is_told_again_under_its_key(api, session, provider):
    _, chunks = begun(api, session, user("Hello."), key="k")
    first = next(chunks)
    run(api, session, user("Hello."), key="k").problem(409, "conflict")
    told = first + b"".join(chunks)
    assert b"message_stop" in told
    run(api, session, user("Again."), key="k").problem(409, "conflict")
    assert IdempotentAnswer.objects.get().body.encode() == told
    assert Turn.objects.count() == 1


def test_the_key_of_a_call_whose_process_died_is_free_after_its_time(api, session, provider, settings):
    settings.HANGO_CALL_TIMEOUT_S = -60  # whatever runs is over its time at once
    seen = []
    provider.during = lambda _: seen.append(run(api, session, user("Hello."), key="k"))
    run(api, session, user("Hello."), key="k")
    assert seen[0].status != 409


# --- keys


@pytest.fixture
def upstream(settings):
    """The strict upstream as the provider in use, with a key that no answer may show."""
    server = strict_anthropic.serve()
    settings.HANGO_PROVIDER = "anthropic"
    settings.ANTHROPIC_API_KEY = KEY
    settings.ANTHROPIC_BASE_URL = "http://{}:{}".format(*server.server_address)
    yield server.RequestHandlerClass.state
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("stream", [False, True])
def test_the_providers_key_is_in_no_answer_no_record_and_no_log(api, session, upstream, caplog, stream):
    caplog.set_level(logging.DEBUG, logger="compaction")
    upstream.rules = [
        {"times": 1, "error": {"status": 401, "type": "authentication_error", "message": f"bad key {KEY}"}},
        {"reply": "Fine."},
    ]
    answers = [run(api, session, user("Hello."), stream=stream) for _ in range(2)]
    answers[0].problem(502, "provider-failed")
    assert "Fine." in answers[1].expect(200).text
    assert [c["purpose"] for c in upstream.log] == ["chat", "chat"]
    told = "".join(a.text + str(a.headers) for a in answers) + caplog.text
    told += json.dumps(list(Turn.objects.values_list("attempts", flat=True)))
    assert KEY not in told
