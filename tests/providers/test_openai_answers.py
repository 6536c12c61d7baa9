"""Chat completions and responses as answers of the Messages API."""

import pytest

from compaction.engine import exact
from compaction.providers import openai_answers as answers


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("tool_calls", "tool_use"),
        ("model_context_window_exceeded", "model_context_window_exceeded"), ("model_length", "model_context_window_exceeded"),
        ("odd", "end_turn"), (None, "end_turn"),
    ],
)  # fmt: skip
def test_why_an_answer_ended(finish, stop):
    raw = exact.dumps({"choices": [{"message": {"content": "x"}, "finish_reason": finish}]})
    assert answers.from_chat(raw, {}).stop_reason == stop


@pytest.mark.parametrize(
    ("more", "stop"),
    [
        ({"status": "completed"}, "end_turn"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_tokens"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "refusal"),
        ({"status": "incomplete"}, "end_turn"),
    ],
)
def test_why_a_response_ended(more, stop):
    assert answers.from_responses(exact.dumps({"output": [], **more}), {}).stop_reason == stop


def test_a_refusal_is_text_that_says_so():
    chat_raw = exact.dumps(
        {"choices": [{"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"}]}
    )
    part = {"type": "refusal", "refusal": "No."}
    raw = exact.dumps({"output": [{"type": "message", "content": [part]}], "status": "completed"})
    for reply in (answers.from_chat(chat_raw, {}), answers.from_responses(raw, {})):
        assert (reply.text, reply.stop_reason) == ("No.", "refusal")


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        ('{"b": 1, "a": 2}', '{"b": 1, "a": 2}'),
        ('{"a": ', '{"_raw":"{\\"a\\": "}'),
        ("[1]", '{"_raw":"[1]"}'),
        ('{"a":1,"a":2}', '{"_raw":"{\\"a\\":1,\\"a\\":2}"}'),
        ('{"a":1} x', '{"_raw":"{\\"a\\":1} x"}'),
        ("", "{}"),
        (None, "{}"),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_arguments_become_an_object(arguments, made):
    assert answers.input_text(arguments) == made


@pytest.mark.parametrize(
    ("usage", "made"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2}, (10, 0, 0, 2)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 1}}, (1, 1, 8, 0)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}}, (0, 0, 10, 0)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}, (6, 0, 4, 0)),
        ({"input_tokens": 10, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}, (6, 0, 4, 3)),
        ({"prompt_tokens": None, "prompt_tokens_details": None}, (0, 0, 0, 0)),
    ],
)  # fmt: skip
def test_usage_has_disjoint_parts(usage, made):
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    assert answers.usage_of(usage) == dict(zip(keys, made, strict=True))


def test_a_call_without_an_id_gets_one():
    made = [{"function": {"name": "f", "arguments": "{}"}}] * 2
    raw = exact.dumps({"id": "c1", "choices": [{"message": {"tool_calls": made}, "finish_reason": "stop"}]})
    reply = answers.from_chat(raw, {})
    assert [b["id"] for b in exact.loads(reply.blocks)] == ["c1-0", "c1-1"]
    assert reply.stop_reason == "tool_use"
