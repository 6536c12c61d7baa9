"""Taking a client's patterns out of what leaves: decoded text only, structure kept, signed thinking whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction.engine import assemble, redact, tokens
from compaction.engine.tokens import HeuristicEstimator
from compaction.engine.types import Block, Frame, Head, Message, View, blocks_of
from tests.engine import strategies
from tests.engine.strategies import Json, assistant, call, result, text, thinking, user

ESTIMATOR = HeuristicEstimator()


def without(value: str) -> str:
    return value.replace("SECRET", "[redacted]")


def block(data: Json) -> Json:
    (made,) = redact.blocks((Block.of(data),), without)
    return made.data


def test_matches_are_taken_out_of_text_arguments_and_results_however_deep() -> None:
    assert block(text("a SECRET b")) == text("a [redacted] b")
    given = {"path": "/SECRET", "n": 1, "deep": [{"x": ["SECRET", None, True, 1.5]}]}
    assert block(call("c", given=given))["input"] == {
        "path": "/[redacted]", "n": 1, "deep": [{"x": ["[redacted]", None, True, 1.5]}],
    }  # fmt: skip
    assert block(result("c", "SECRET"))["content"] == "[redacted]"
    assert block(result("c", [text("SECRET")]))["content"] == [text("[redacted]")]


@pytest.mark.parametrize("name", sorted(redact.STRUCTURE - {"type"}))
def test_what_holds_a_request_together_is_no_text(name: str) -> None:
    data = {"type": "tool_use", "id": "x", "name": "bash", "input": {}} | {name: "SECRET"}
    assert block(data) == data


def test_what_is_encoded_as_base64_is_left_alone() -> None:
    """Only members of the block itself are structure: a base64 source is a member further down."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    assert block(image) == image


def test_escapes_are_matched_as_what_they_stand_for() -> None:
    blocks, _ = blocks_of('[{"type":"text","text":"SEC\\u0052ET \\ud83d\\ude42"}]')
    (made,) = redact.blocks(blocks, without)
    assert made.data == text("[redacted] 🙂")
    assert "SEC" not in made.raw


def test_thinking_with_a_match_is_left_out_since_its_signature_allows_no_edit() -> None:
    said = (Block.of(thinking("about SECRET")), Block.of(thinking("harmless")), Block.of(text("done")))
    assert redact.blocks(said, without) == said[1:]
    hidden = Block.of({"type": "redacted_thinking", "data": "SECRET"})
    assert redact.blocks((hidden,), without) == (hidden,)


def test_what_has_no_match_is_the_same_object_byte_for_byte() -> None:
    blocks, _ = blocks_of('[{"text" : "caf\\u00e9","type":"text"}]')
    assert redact.blocks(blocks, without) is blocks
    message = Message(3, "user", blocks, tokens=7)
    assert redact.message(message, without, ESTIMATOR) is message


def test_a_cut_message_keeps_its_place_ids_and_marks_and_is_weighed_anew() -> None:
    marked = replace(Block.of(text("SECRET " * 50)), marked=True)
    stored = Message(4, "user", (marked,), tokens=999, pinned=True, produced_on="x")
    made = redact.message(stored, lambda t: t.replace("SECRET ", ""), ESTIMATOR)
    assert (made.seq, made.role, made.pinned, made.produced_on) == (4, "user", True, "x")
    assert made.blocks[0].marked
    assert made.tokens == tokens.message_tokens(ESTIMATOR, made.blocks) < 20


def test_a_list_of_texts_is_redacted_one_by_one() -> None:
    assert redact.texts(["SECRET", "fine"], without) == ["[redacted]", "fine"]


def test_everything_of_a_request_is_redacted_before_it_is_cut() -> None:
    """The match stands where truncation would cut through it: what is left shows neither half."""
    secret = "SECRET" * 400
    said = [
        user("go SECRET"),
        assistant(thinking("SECRET"), text("I do"), call("c", given={"command": "x" * 1_500 + secret})),
        user(result("c", "y" * 1_500 + secret)),
        assistant(text("done")),
        user("next"),
    ]
    messages = [
        replace(m, tokens=tokens.message_tokens(ESTIMATOR, m.blocks)) for m in strategies.as_messages(said)
    ]
    tool = {"name": "bash", "description": "runs SECRET", "input_schema": {"type": "object"}}
    frame = Frame(
        "m", (Block.of(text("You know SECRET.")),), (Block.of(tool),), (Block.of(text("memory SECRET")),)
    )
    made = assemble.assemble(
        frame, View("c", args_cut_before=4, last_seq=4), Head("summary SECRET", "left out SECRET"), messages,
        max_tokens=100, estimator=ESTIMATOR, where="/h.md", without=without,
    )  # fmt: skip
    body = made.request.body()
    assert "SECRET" not in body
    assert "SECR" not in body
    assert "thinking" not in body
    assert body.count("[redacted]") >= 6
    joined = tokens.MESSAGE_OVERHEAD  # the head and the first message are sent as one
    assert made.tokens == ESTIMATOR.estimate_request(made.request) + joined
    assert made.request.truncated == 2


def test_memory_within_the_messages_is_redacted_too() -> None:
    memory = (Block.of(text("memory SECRET")),)
    frame = Frame("m", memory=memory, memory_placement="message")
    made = assemble.assemble(
        frame, View(memories=((0, "now"),), last_seq=0), Head(), strategies.as_messages([user("go")]),
        max_tokens=100, estimator=ESTIMATOR, where="/h.md", without=without, memories={"now": memory},
    )  # fmt: skip
    assert "memory [redacted]" in made.request.body()
