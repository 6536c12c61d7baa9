"""What a stand-in for OpenAI is asked and plays: the same answer whole and streamed, in both APIs."""

from compaction.engine import exact
from compaction.providers.base import Call
from tests.providers.loopback import SECRET

LONG = "read_" + "x" * 80  # a name that OpenAI does not take
BODY = exact.dumps(
    {
        "model": "gpt-test",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": LONG, "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": SECRET}],
    }
)
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
NORMAL = {
    "input_tokens": 40,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 60,
    "output_tokens": 7,
}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}


def call(body=BODY, timeout_s=5.0):
    return Call(body, timeout_s, "summarize")


def chat_answer(name, arguments='{"b":1.50, "a":2}', finish="tool_calls"):
    made = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": "Looking.", "tool_calls": [made], "reasoning_content": "hm"}
    return {"id": "c1", "choices": [{"message": message, "finish_reason": finish}], "usage": USAGE}


def responses_answer(name, arguments='{"b":1.50, "a":2}', **more):
    output = [
        REASONING,
        {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Looking."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments},
    ]
    usage = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 60}}
    return {"id": "r1", "status": "completed", "error": None, "output": output, "usage": usage, **more}


def chat_chunks(name):
    def chunk(finish=None, **delta):
        return None, {"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def part(**function):
        return {"tool_calls": [{"index": 0, "function": function}]}

    return [
        chunk(role="assistant", content=""),
        chunk(content="Look"),
        chunk(content="ing."),
        chunk(tool_calls=[{"index": 0, "id": "call_1", "function": {"name": name, "arguments": ""}}]),
        chunk(**part(arguments='{"b":1.50, ')),
        chunk(**part(arguments='"a":2}')),
        chunk(finish="tool_calls"),
        (None, {"id": "c1", "choices": [], "usage": USAGE}),
        (None, "[DONE]"),
    ]


def responses_events(name):
    answer = responses_answer(name)
    reasoning, message, function = answer["output"]
    said = {"output_index": 1, "content_index": 0}
    return [
        ("response.created", {"type": "response.created", "response": {"id": "r1"}}),
        *[
            (e["type"], e)
            for e in (
                {"type": "response.output_item.done", "output_index": 0, "item": reasoning},
                {"type": "response.output_text.delta", "delta": "Look", **said},
                {"type": "response.output_text.delta", "delta": "ing.", **said},
                {"type": "response.output_item.done", "output_index": 1, "item": message},
                {"type": "response.function_call_arguments.delta", "delta": "{", "output_index": 2},
                {"type": "response.output_item.done", "output_index": 2, "item": function},
                {"type": "response.completed", "response": answer},
            )
        ],
    ]
