"""What goes wrong at an OpenAI-compatible server is a `ProviderFailed`, with nothing of the key or the prompt in it."""

import pytest

from compaction.engine.errors import ProviderFailed
from compaction.engine.overflow import Kind, classify
from compaction.providers.openai import OpenAIProvider
from tests.providers.loopback import KEY, SECRET, drained
from tests.providers.openai_played import call, chat_chunks, responses_events


@pytest.mark.parametrize(
    ("status", "headers", "error", "kind", "retry_after_s", "may_pass"),
    [
        (429, {"retry-after": "7"}, {"code": "rate_limit_exceeded", "type": "tokens"}, "rate_limit_exceeded", 7, True),
        (429, {"retry-after-ms": "250", "retry-after": "9"}, {"type": "tokens"}, "tokens", 0.25, True),
        (500, {}, {"type": "server_error", "code": None}, "server_error", None, True),
        (503, {"retry-after": "soon"}, "overloaded", "http-503", None, True),
        (400, {}, {"code": "context_length_exceeded", "type": "x"}, "context_length_exceeded", None, False),
        (400, {}, {"code": 400, "type": "invalid_request_error"}, "invalid_request_error", None, False),
        (401, {}, {"code": KEY + " " + SECRET}, "http-401", None, False),
        (422, {}, None, "http-422", None, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("streamed", [False, True])
def test_an_error_answer_is_a_failure_that_tells_nothing(
    server, api, status, headers, error, kind, retry_after_s, may_pass, streamed
):
    if isinstance(error, dict):
        error = {**error, "message": f"{SECRET} {KEY}"}
    server.status, server.headers, server.body = status, headers, {"error": error} if error else "<html>"
    provider = OpenAIProvider(KEY, server.url, api)
    with pytest.raises(ProviderFailed) as caught:
        drained(provider.stream(call())) if streamed else provider.send(call())
    assert (caught.value.kind, caught.value.http_status) == (kind, status)
    assert (caught.value.retry_after_s, caught.value.may_pass) == (retry_after_s, may_pass)
    assert_tells_nothing(caught.value)
    assert len(server.asked) == 1  # the SDK retries nothing


def assert_tells_nothing(error):
    for shown in (str(error), error.kind, str(error.__cause__), str(error.extra)):
        assert KEY not in shown
        assert SECRET not in shown


def test_the_providers_words_are_kept_to_classify_by(server, api):
    server.status, server.body = 400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}
    with pytest.raises(ProviderFailed) as caught:
        OpenAIProvider(KEY, server.url, api).send(call())
    error = caught.value
    kind = classify(provider="openai", status=error.http_status, type=error.kind, message=error.message)
    assert kind is Kind.OVERFLOW


@pytest.mark.parametrize("streamed", [False, True])
def test_a_provider_that_does_not_answer_in_time(server, api, streamed):
    server.latency_s, server.events = 1.0, [] if streamed else None
    provider = OpenAIProvider(KEY, server.url, api)
    with pytest.raises(ProviderFailed) as caught:
        drained(provider.stream(call(timeout_s=0.1))) if streamed else provider.send(call(timeout_s=0.1))
    assert (caught.value.kind, caught.value.may_pass) == ("connection", True)
    assert_tells_nothing(caught.value)


def test_an_answer_that_drips_is_ended_in_time(server):
    server.events = [(None, {"choices": [{"delta": {"content": "x"}}]})] * 100
    server.pause_s = 0.05
    with pytest.raises(ProviderFailed) as caught:
        drained(OpenAIProvider(KEY, server.url).stream(call(timeout_s=0.3)))
    assert (caught.value.kind, caught.value.may_pass) == ("connection", True)


@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_that_breaks_off_is_no_answer(server, api, cut):
    server.events = (chat_chunks if api == "chat" else responses_events)("f")[:3]
    server.cut = cut
    with pytest.raises(ProviderFailed) as caught:
        drained(OpenAIProvider(KEY, server.url, api).stream(call()))
    assert (caught.value.kind, caught.value.may_pass) == ("connection", True)
    assert_tells_nothing(caught.value)


@pytest.mark.parametrize(
    ("api", "event", "kind", "may_pass"),
    [
        ("chat", {"error": {"code": "server_error", "message": SECRET}}, "server_error", True),
        ("chat", {"error": {"code": 429, "message": SECRET}}, "429", False),
        ("chat", {"error": SECRET}, "stream-error", False),
        ("responses", {"type": "error", "code": "rate_limit_exceeded", "message": SECRET}, "rate_limit_exceeded", True),
        (
            "responses",
            {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": SECRET}}},
            "context_length_exceeded",
            False,
        ),
        ("responses", {"type": "response.failed"}, "stream-error", False),
    ],
)  # fmt: skip
def test_an_error_in_a_stream(server, api, event, kind, may_pass):
    server.events = [(None, event)]
    with pytest.raises(ProviderFailed) as caught:
        drained(OpenAIProvider(KEY, server.url, api).stream(call()))
    assert (caught.value.kind, caught.value.http_status, caught.value.may_pass) == (kind, None, may_pass)
    assert_tells_nothing(caught.value)


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"choices":[]}', '{"output":[{}]}', '{"choices":[{"message":[]}]}', "no"]
)
def test_an_answer_that_is_none(server, api, body):
    server.body = body
    with pytest.raises(ProviderFailed) as caught:
        OpenAIProvider(KEY, server.url, api).send(call())
    assert caught.value.kind == "bad-answer"


@pytest.mark.parametrize(
    "data", ["{", '{"choices": 5}', '{"type":"response.output_item.done","item":{"type":"function_call"}}']
)
def test_an_event_that_cannot_be_read(server, api, data):
    server.events = [(None, data)]
    with pytest.raises(ProviderFailed) as caught:
        drained(OpenAIProvider(KEY, server.url, api).stream(call()))
    assert caught.value.kind in ("bad-answer", "connection")


def test_nobody_listens(api):
    with pytest.raises(ProviderFailed) as caught:
        OpenAIProvider(KEY, "http://127.0.0.1:9", api).send(call())
    assert caught.value.kind == "connection"
