"""Every healthy transcript as OpenAI's requests, and back."""

import json

from hypothesis import given

from compaction.engine import exact
from compaction.engine.types import OutgoingMessage
from compaction.providers import openai_answers as answers
from compaction.providers import openai_format as form
from tests.engine import strategies


def body_of(messages):
    outgoing = [OutgoingMessage(m.role, m.blocks, as_text=m.as_text) for m in messages]
    return strategies.request_of(outgoing).body()


@given(strategies.healthy())
def test_every_chat_request_keeps_o2_to_o6(messages):
    asked = form.chat(body_of(messages), official=True)
    json.dumps(asked)
    open_calls: list[str] = []
    for message in asked["messages"]:
        if open_calls:
            assert message["role"] == "tool"  # O3
            assert message["tool_call_id"] == open_calls.pop(0)
            assert isinstance(message["content"], str)  # O6
            continue
        assert message["role"] in ("system", "user", "assistant")  # O4
        assert message["content"] or message["tool_calls"]  # O2
        assert message.get("tool_calls") != []
        for made in message.get("tool_calls", []):
            assert isinstance(json.loads(made["function"]["arguments"]), dict)  # O5
            assert len(made["id"]) <= 40
            open_calls.append(made["id"])
    assert not open_calls
    assert "signature" not in json.dumps(asked)


@given(strategies.healthy())
def test_every_responses_request_keeps_p1_to_p3(messages):
    asked = form.responses(body_of(messages))
    calls: list[str] = []
    answered = False
    for item in asked["input"]:
        assert "id" not in item  # P1
        assert item["type"] in ("message", "function_call", "function_call_output")  # P3: no reasoning
        if item["type"] == "function_call":
            assert not answered
            calls.append(item["call_id"])
        elif item["type"] == "function_call_output":
            assert item["call_id"] == calls.pop(0)  # P2
            answered = bool(calls)
        else:
            assert not calls
            assert item["content"]


@given(strategies.healthy())
def test_an_assistants_words_and_calls_come_back_as_they_went(messages):
    """Chat's assistant messages, taken as answers, say what was said, but for thinking and server tools."""
    said = [m for m in messages if m.role == "assistant" and not m.of_kind("server_tool_use")]
    shown = [m for m in form.chat(body_of(said), official=False)["messages"] if m["role"] == "assistant"]
    blocks = []
    for message in shown:
        raw = exact.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
        blocks += exact.loads(answers.from_chat(raw, {}).blocks)
    calls = [b.data for m in said for b in m.calls]
    assert [b for b in blocks if b["type"] == "tool_use"] == calls
    assert "".join(b["text"] for b in blocks if b["type"] == "text") == "\n\n".join(
        b.text for m in said for b in m.of_kind("text")
    )
