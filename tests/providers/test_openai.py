"""The OpenAI provider by the real SDK against a server on loopback: answers, streams and counts."""

import json

import pytest

from compaction.engine import exact
from compaction.engine.errors import ProviderFailed
from compaction.providers import sse
from compaction.providers.openai import OpenAIProvider
from tests.providers.loopback import KEY, drained
from tests.providers.openai_played import (
    LONG,
    NORMAL,
    call,
    chat_answer,
    chat_chunks,
    responses_answer,
    responses_events,
)


def name_sent(server):
    tool = server.asked[0].body["tools"][0]
    return tool.get("function", tool)["name"]


EXPECTED = (
    '[{"type":"text","text":"Looking."},'
    f'{{"type":"tool_use","id":"call_1","name":"{LONG}","input":{{"b":1.50, "a":2}}}}]'
)


def test_a_whole_answer_is_one_of_the_messages_api_and_keeps_the_providers_own(server, api):
    provider = OpenAIProvider(KEY, f"{server.url}/v1", api)
    server.body = {
        "id": "x",
        "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
        "output": [],
    }
    provider.send(call())  # to learn the name that the tool was given
    server.body = (chat_answer if api == "chat" else responses_answer)(name_sent(server))
    reply = provider.send(call())
    assert (reply.blocks, reply.stop_reason, reply.text, reply.called_tool) == (
        EXPECTED,
        "tool_use",
        "Looking.",
        True,
    )
    assert reply.usage == NORMAL
    assert json.loads(reply.raw) == server.body
    asked = server.asked[-1]
    assert asked.path == ("/v1/chat/completions" if api == "chat" else "/v1/responses")
    headers = {name.lower(): value for name, value in asked.headers.items()}
    assert headers["x-hango-purpose"] == "summarize"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert "traceparent" not in headers
    assert asked.body["max_tokens" if api == "chat" else "max_output_tokens"] == 100
    if api == "responses":
        assert asked.body["store"] is False


def test_a_stream_is_passed_on_as_events_of_the_messages_api(server, api):
    provider = OpenAIProvider(KEY, f"{server.url}/v1", api)
    server.events = []
    with pytest.raises(ProviderFailed):
        drained(provider.stream(call()))
    server.events = (chat_chunks if api == "chat" else responses_events)(name_sent(server))
    events, reply = drained(provider.stream(call()))
    assert reply.blocks == EXPECTED
    assert reply.usage == NORMAL
    assert [e.name for e in events] == [
        "message_start", "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    # The events alone, read as a client of the Messages API reads them, give the same answer.
    lines = [line for e in events for line in (f"event: {e.name}", f"data: {e.data}", "")]
    again = sse.drain(sse.events(lines))
    assert json.loads(again.blocks) == json.loads(reply.blocks)
    assert (again.stop_reason, again.usage) == (reply.stop_reason, reply.usage)
    assert all(json.loads(e.data)["type"] == e.name for e in events)
    assert server.asked[-1].body["stream"] is True
    assert ("stream_options" in server.asked[-1].body) == (api == "chat")


def test_text_that_came_only_with_its_finished_item_is_passed_on_too(server):
    server.events = [e for e in responses_events("f") if e[0] != "response.output_text.delta"]
    events, reply = drained(OpenAIProvider(KEY, server.url, "responses").stream(call()))
    assert [json.loads(e.data)["delta"]["text"] for e in events if "text_delta" in e.data] == ["Looking."]
    assert reply.text == "Looking."


def test_parallel_calls_without_indexes_and_arguments_that_are_no_json(server):
    parts = [{"id": f"call_{n}", "function": {"name": "f", "arguments": '{"a'}} for n in (1, 2)]
    server.events = [
        (None, {"choices": [{"delta": {"tool_calls": [part]}, "finish_reason": None}]}) for part in parts
    ]
    server.events.append((None, {"choices": [{"delta": {}, "finish_reason": "stop"}]}))
    events, reply = drained(OpenAIProvider(KEY, server.url).stream(call()))
    assert [b["id"] for b in json.loads(reply.blocks)] == ["call_1", "call_2"]
    assert {exact.dumps(b["input"]) for b in json.loads(reply.blocks)} == {'{"_raw":"{\\"a"}'}
    assert (reply.stop_reason, reply.usage) == ("tool_use", {})
    assert sum(e.name == "content_block_start" for e in events) == 2


def test_only_responses_counts(server):
    counting, silent = OpenAIProvider(KEY, server.url, "responses"), OpenAIProvider(KEY, server.url)
    assert (counting.capabilities.counts_tokens, silent.capabilities.counts_tokens) == (True, False)
    assert not counting.capabilities.prompt_caching
    server.body = {"object": "response.input_tokens", "input_tokens": 42}
    assert counting.count(call()) == 42
    assert server.asked[0].path == "/responses/input_tokens"
    assert set(server.asked[0].body) <= {"model", "input", "instructions", "tools", "tool_choice"}
    for wrong in ({}, {"input_tokens": True}, {"input_tokens": 0}, "[]", ""):
        server.body = wrong
        with pytest.raises(ProviderFailed, match="no number"):
            counting.count(call())
    with pytest.raises(ProviderFailed) as caught:
        silent.count(call())
    assert caught.value.kind == "no-count"
    assert len(server.asked) == 6


def test_a_listener_that_leaves_ends_the_call(server):
    server.events, server.pause_s = [(None, {"choices": [{"delta": {"content": "x"}}]})] * 50, 0.01
    stream = OpenAIProvider(KEY, server.url).stream(call())
    next(stream)
    stream.close()
    with pytest.raises(StopIteration):
        next(stream)
