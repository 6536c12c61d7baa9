"""Turns: closed once, by the first of an answer, an append or the end of the ladder; overflows climb strictly smaller."""

from __future__ import annotations

import json

import pytest

from compaction.engine.errors import ProviderFailed
from compaction.models import Turn
from tests.api.client import (
    SMALL,
    TOOLS,
    accepted,
    assistant,
    calls,
    chat,
    label,
    members,
    prose,
    results,
    user,
)

PROMPT_TOO_LONG = {
    "type": "invalid_request_error",
    "message": "prompt is too long: 9000 tokens > 8000 maximum",
    "status": 400,
}
OVERFLOW_STOP = "model_context_window_exceeded"


def opened(api, **fields) -> str:
    """A session whose turn 1 waits for its answer."""
    session = api.session(**fields)
    api.build(session, messages=[user("hi")])
    return session


# --- complete


def test_completing_stores_the_answer_and_closes_the_turn(api):
    session = opened(api)
    usage = {
        "input_tokens": 70,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 10,
        "output_tokens": 4,
    }
    done = api.complete(session, 1, "hello", usage=usage).expect(200)
    assert done["status"] == "completed"
    assert [(m["role"], m["content"]) for m in api.transcript(session)] == [
        ("user", "hi"),
        ("assistant", "hello"),
    ]
    shown = api.get(f"{session}/")
    assert (shown["last_input_tokens"], shown["compactions"]) == (100, 0)
    turn = Turn.objects.get()
    assert (turn.status, turn.stop_reason, turn.usage) == ("completed", "end_turn", usage)
    assert api.build(session, messages=[user("more")])["turn"] == 2


def test_the_answers_bytes_are_stored(api):
    session = opened(api, tools=TOOLS)
    content = '[{"id":"c","type":"tool_use","input":{"b":1.0,"a":1e2,"u":"\\u00e9"},"name":"read_file"}]'
    body = f'{{"message":{{"role":"assistant","content":{content}}},"stop_reason":"tool_use","usage":{{}}}}'
    api.post(f"{session}/turns/1/complete/", raw=body).expect(200)
    assert content in api.get(f"{session}/messages/").text


def test_completing_again_with_the_same_body_gives_the_same_answer(api):
    session = opened(api, tools=TOOLS)
    body = {
        "message": calls("c"),
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    first = api.post(f"{session}/turns/1/complete/", body).expect(200)
    again = api.post(f"{session}/turns/1/complete/", body).expect(200)
    assert again.raw == first.raw
    assert len(api.transcript(session)) == 2
    api.build(session, messages=[results("c")])
    assert api.post(f"{session}/turns/1/complete/", body).expect(200).raw == first.raw


def test_the_same_answer_holds_its_warnings_too(api):
    session = opened(api)
    api.say(session, user("one more thing"))
    body = {"message": assistant(""), "stop_reason": "end_turn", "usage": {}}
    first = api.post(f"{session}/turns/1/complete/", body).expect(200)
    assert len(first["warnings"]) == 2
    assert api.post(f"{session}/turns/1/complete/", body).expect(200).raw == first.raw


@pytest.mark.parametrize(
    "change",
    [{"message": assistant("other")}, {"usage": {"input_tokens": 1}}, {"stop_reason": "max_tokens"}],
    ids=label,
)
def test_completing_again_with_another_body_is_a_409(api, change):
    session = opened(api)
    body = {"message": assistant("hello"), "stop_reason": "end_turn", "usage": {"input_tokens": 10}}
    api.post(f"{session}/turns/1/complete/", body).expect(200)
    api.post(f"{session}/turns/1/complete/", body | change).problem(409)
    assert [m["content"] for m in api.transcript(session)] == ["hi", "hello"]
    assert api.get(f"{session}/")["last_input_tokens"] == 10


def test_an_appended_assistant_message_closes_the_turn(api):
    session = opened(api)
    estimated = api.build(session)["budget"]["input_tokens"]
    api.say(session, assistant("hello"))
    turn = Turn.objects.get()
    assert (turn.status, turn.usage) == ("completed", None)
    assert api.get(f"{session}/")["last_input_tokens"] == estimated
    assert api.build(session, messages=[user("more")])["turn"] == 2


def test_completing_a_turn_that_an_append_closed_is_a_409(api):
    session = opened(api)
    api.say(session, assistant("hello"))
    api.complete(session, 1, "hello").problem(409)
    assert len(api.transcript(session)) == 2


def test_an_appended_user_message_closes_nothing(api):
    session = opened(api)
    api.say(session, user("wait"))
    assert Turn.objects.get().status == "open"


@pytest.mark.parametrize("number", [0, 2, 10**20])
@pytest.mark.parametrize("call", ["complete", "overflow"])
def test_a_turn_that_is_none_is_a_404(api, number, call):
    session = opened(api)
    body = {"message": assistant(), "stop_reason": "end_turn", "usage": {}} if call == "complete" else {}
    api.post(f"{session}/turns/{number}/{call}/", body).problem(404)
    assert len(api.transcript(session)) == 1


BAD_ANSWERS = [
    ({}, "/message"), ({"message": None}, "/message"), ({"message": "hello"}, "/message"), ({"message": []}, "/message"),
    ({"message": user("x")}, "/message/role"), ({"message": {"content": "x"}}, "/message/role"), ({"message": {"role": "assistant"}}, "/message/content"),
    ({"message": assistant(5)}, "/message/content"), ({"message": assistant([{"type": "tool_use", "id": "c"}])}, "/message/content/0/name"),
    ({"message": assistant([{"type": "tool_result", "tool_use_id": "c"}])}, "/message/content/0"),
    ({"message": assistant(), "stop_reason": 5}, "/stop_reason"), ({"message": assistant(), "stop_reason": "x" * 61}, "/stop_reason"),
    ({"message": assistant(), "stop_reason": "\ud800"}, "/stop_reason"), ({"message": assistant(), "stop_reason": "\x00"}, "/stop_reason"),
    ({"message": assistant(), "usage": []}, "/usage"), ({"message": assistant(), "usage": "many"}, "/usage"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "pointer"), BAD_ANSWERS, ids=label)
def test_a_malformed_answer_is_a_422_and_the_turn_stays_open(api, body, pointer):
    session = opened(api)
    assert pointer in api.post(f"{session}/turns/1/complete/", body).pointers()
    assert Turn.objects.get().status == "open"
    assert len(api.transcript(session)) == 1
    api.complete(session, 1).expect(200)


def test_an_unknown_field_of_the_body_is_refused(api):
    session = opened(api)
    answer = api.complete(session, 1, stopreason="x")
    assert 400 <= answer.status < 500
    assert answer.pointers(answer.status) == ["/stopreason"]


USAGES = [
    {"input_tokens": None}, {"input_tokens": "10"}, {"input_tokens": -5}, {"input_tokens": 1.5}, {"input_tokens": 10**30}, {"input_tokens": 2**31},
    {"input_tokens": True}, {"iterations": "x"}, {"iterations": [5]}, {"x": "\ud800"}, {"x": "\x00"}, {"input_tokens": {}}, {},
]  # fmt: skip


@pytest.mark.parametrize("usage", USAGES, ids=label)
def test_a_usage_that_makes_no_sense_is_no_server_error_and_spoils_no_budget(api, usage):
    session = opened(api)
    answer = api.complete(session, 1, usage=usage)
    assert answer.status < 500
    if answer.status != 200:
        assert answer.pointers()
        api.complete(session, 1).expect(200)
    assert api.build(session, messages=[user("more")])["budget"]["input_tokens"] < 1000


@pytest.mark.parametrize(
    "body",
    [{"message": assistant("x")}, {"message": assistant("x"), "usage": None, "stop_reason": None}],
    ids=label,
)
def test_usage_and_stop_reason_may_be_unknown(api, body):
    session = opened(api)
    api.post(f"{session}/turns/1/complete/", body).expect(200)
    assert api.get(f"{session}/")["last_input_tokens"] > 0


def test_what_the_providers_client_dumps_is_taken_as_it_is(api):
    """A whole answer with all its fields, and blocks with the nulls that a client library writes."""
    session = opened(api)
    message = {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "container": None, "stop_details": None,
        "content": [{"type": "text", "text": "hello", "citations": None}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 2, "cache_creation": {"ephemeral_5m_input_tokens": 0}, "service_tier": "standard"},
    }  # fmt: skip
    api.post(
        f"{session}/turns/1/complete/",
        {"message": message, "stop_reason": "end_turn", "usage": message["usage"]},
    ).expect(200)
    stored = api.transcript(session)[1]
    assert (stored["role"], stored["content"]) == ("assistant", message["content"])
    assert api.get(f"{session}/")["last_input_tokens"] == 10
    api.build(session, messages=[user("more")])


def test_an_answer_to_an_older_request_is_stored_after_what_came_since(api):
    """Its usage is no anchor, and the answer says so."""
    session = opened(api)
    api.say(session, user("one more thing"))
    done = api.complete(session, 1, "hello", usage={"input_tokens": 5000}).expect(200)
    assert any("messages-since-build" in w for w in done["warnings"])
    assert [m["content"] for m in api.transcript(session)] == ["hi", "one more thing", "hello"]
    budget = api.build(session, messages=[user("more")])["budget"]
    assert budget["source"] == "estimate"
    assert budget["input_tokens"] < 1000


def test_an_answer_to_the_newest_request_has_no_warning(api):
    assert api.complete(opened(api), 1).expect(200)["warnings"] == []


def test_a_blank_answer_is_stored_and_told(api):
    session = opened(api)
    done = api.complete(session, 1, "").expect(200)
    assert any("R4" in w for w in done["warnings"])
    api.build(session, messages=[user("again")])


def test_the_counter_of_compactions_counts_adopted_ones_once(api):
    session = api.session(limits=SMALL)
    api.say(session, *chat(8))
    for n in (1, 2, 3):
        if n == 2:
            assert api.post(f"{session}/compactions/", {"wait": True}).expect(201)["outcome"] == "done"
        api.build(session, messages=[user("more")] if n > 1 else [])
        api.build(session)
        api.complete(session, n).expect(200)
        assert api.get(f"{session}/")["compactions"] == (0 if n == 1 else 1)


def test_answers_stop_at_max_tokens_and_still_close(api):
    session = opened(api)
    assert api.complete(session, 1, "cut o", stop_reason="max_tokens").expect(200)["status"] == "completed"


# --- overflow


def full(api, **fields) -> str:
    """A session near its window, with turn 1 open."""
    session = api.session(**{"limits": {**SMALL, "max_wait_s": 5}, "max_tokens": 500, **fields})
    api.say(session, *chat(12))
    api.build(session)
    return session


def overflow(api, session: str, error: object = PROMPT_TOO_LONG, turn: int = 1):
    return api.post(f"{session}/turns/{turn}/overflow/", {} if error is None else {"error": error})


def test_the_ladder_is_compaction_then_truncation_then_failure(api):
    session = full(api)
    sizes = [len(api.build(session).member("request"))]
    rungs = []
    for _ in range(2):
        answer = overflow(api, session).expect(200)
        assert answer["status"] == "retry"
        assert answer["turn"] == 1
        request = answer.member("request")
        assert accepted(request)
        rungs.append(answer["rung"])
        sizes.append(len(request))
        assert api.get(f"{session}/turns/1/request/").member("request") == request
    assert rungs == ["overflow", "truncate"]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    failed = overflow(api, session).expect(200)
    assert failed["status"] == "failed"
    assert "request" not in failed.json
    assert Turn.objects.get().status == "failed"


def test_each_step_tells_what_a_build_tells(api):
    session = full(api)
    told = set(api.build(session).json)
    answer = overflow(api, session).expect(200)
    assert set(answer.json) >= (told - {"warnings"}) | {"status", "rung"}
    assert answer["compaction"]["applied_now"] is True
    assert answer["prefix_changed"] is True
    assert answer["coverage"]["summarised"][0] == 0


def test_a_ladder_that_finds_no_model_still_climbs(api, provider):
    session = full(api)
    provider.play(
        *[ProviderFailed("overloaded", kind="overloaded_error", http_status=529, retryable=True)] * 5
    )
    first = overflow(api, session).expect(200)
    assert first["status"] == "retry"
    assert accepted(first.member("request"))
    assert first["compaction"]["kind"] == "extractive"


def test_a_session_of_one_giant_message_goes_straight_to_truncation(api):
    session = api.session(limits={**SMALL, "max_wait_s": 0}, max_tokens=500)
    built = api.build(session, messages=[user(prose(6000))])
    answer = overflow(api, session).expect(200)
    assert (answer["status"], answer["rung"]) == ("retry", "truncate")
    assert len(answer.member("request")) < len(built.member("request"))
    assert accepted(answer.member("request"))
    again = overflow(api, session).expect(200)  # only the third time it fails
    assert (again["status"], again["rung"]) == ("retry", "truncate")
    assert len(again.member("request")) < len(answer.member("request"))
    assert overflow(api, session).expect(200)["status"] == "failed"


def test_a_short_session_that_overflows_fails_and_loses_nothing(api):
    session = opened(api)
    answers = [overflow(api, session) for _ in range(1)]
    assert answers[-1].expect(200)["status"] == "failed"
    assert [m["content"] for m in api.transcript(session)] == ["hi"]


def test_a_failed_turn_is_closed_and_the_session_usable(api):
    session = full(api)
    while overflow(api, session).expect(200)["status"] == "retry":
        pass
    overflow(api, session).problem(409)
    api.complete(session, 1).problem(409)
    after = api.build(session)
    assert after["turn"] == 2
    assert api.complete(session, 2).expect(200)["status"] == "completed"
    assert len(api.transcript(session)) == 26


def test_a_turn_that_was_cured_is_completed_as_any_other(api):
    session = full(api)
    assert overflow(api, session).expect(200)["status"] == "retry"
    assert (
        api.complete(session, 1, "hello", usage={"input_tokens": 3000}).expect(200)["status"] == "completed"
    )
    shown = api.get(f"{session}/")
    assert (shown["compactions"], shown["last_input_tokens"]) == (1, 3000)
    following = api.build(session, messages=[user("more")])
    assert following["turn"] == 2
    assert following["compaction"]["applied_now"] is False


def test_what_was_cut_stays_cut_in_the_next_turn(api):
    session = full(api)
    overflow(api, session).expect(200)
    cut = overflow(api, session).expect(200)
    api.complete(session, 1).expect(200)
    following = api.build(session, messages=[user("more")])
    assert following["coverage"]["verbatim"][0] == cut["coverage"]["verbatim"][0]
    assert following["prefix_changed"] is False


def test_an_overflow_touches_no_stored_message(api):
    session = full(api)
    before = api.get(f"{session}/messages/?limit=1000").raw
    for _ in range(3):
        overflow(api, session).expect(200)
    assert api.get(f"{session}/messages/?limit=1000").raw == before


def test_an_overflow_of_a_completed_turn_is_a_409(api):
    session = opened(api)
    api.complete(session, 1).expect(200)
    overflow(api, session).problem(409)


ERRORS = [
    None, {}, PROMPT_TOO_LONG, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}},
    {"status": 413, "error": {"type": "request_too_large"}}, "prompt is too long", {"code": "context_length_exceeded", "message": "é\ud800\x00"},
    {"type": "x" * 10_000}, {"type": {"deep": [1]}, "status": None, "code": 5}, {"type": "\ud800", "code": "\x00"},
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=label)
def test_any_error_of_a_provider_climbs(api, error):
    session = full(api)
    assert overflow(api, session, error).expect(200)["status"] == "retry"


@pytest.mark.parametrize("error", [5, [], True], ids=label)
def test_an_error_that_is_none_is_a_422(api, error):
    session = full(api)
    assert overflow(api, session, error).pointers() == ["/error"]
    assert Turn.objects.get().attempts == []


def test_the_attempts_of_a_failed_turn_are_told(api):
    session = full(api)
    for _ in range(3):
        answer = overflow(api, session).expect(200)
    assert [a["rung"] for a in answer["attempts"]] == ["first", "overflow", "truncate"]
    assert {a["outcome"] for a in answer["attempts"]} == {"overflow"}
    assert members(answer.text)["attempts"].find("prompt is too long") == -1  # texts may hold what was said


def test_an_answer_that_stopped_at_the_window_is_an_overflow(api):
    session = full(api)
    before = len(api.build(session).member("request"))
    answer = api.complete(session, 1, "cut o", stop_reason=OVERFLOW_STOP).expect(200)
    assert (answer["status"], answer["rung"]) == ("retry", "overflow")
    assert len(answer.member("request")) < before
    assert accepted(answer.member("request"))
    assert "cut o" not in json.dumps(api.transcript(session))
    assert Turn.objects.get().status == "open"
    assert api.complete(session, 1, "whole").expect(200)["status"] == "completed"


def test_an_answer_that_stopped_at_the_window_may_be_empty(api):
    session = full(api)
    body = {"message": assistant([]), "stop_reason": OVERFLOW_STOP, "usage": {"input_tokens": 9000}}
    assert api.post(f"{session}/turns/1/complete/", body).expect(200)["status"] == "retry"


def test_with_open_calls_in_the_way_the_ladder_keeps_rounds_whole(api):
    session = api.session(limits={**SMALL, "max_wait_s": 5}, tools=TOOLS, max_tokens=500)
    rounds = [
        m
        for i in range(12)
        for m in (calls(f"a{i}", f"b{i}", path=prose(60)), results(f"a{i}", f"b{i}", text=prose(120)))
    ]
    api.build(session, messages=[user("go"), *rounds])
    for _ in range(2):
        answer = overflow(api, session).expect(200)
        if answer["status"] == "retry":
            assert accepted(answer.member("request"))
