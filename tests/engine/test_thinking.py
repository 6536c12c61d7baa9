"""Thinking that a model binds to its past (PROTOCOL R43): shown while that past is what was sent, else dropped for good."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from compaction.engine import assemble, thinking, tokens
from compaction.engine.tokens import HeuristicEstimator
from compaction.engine.types import Block, Frame, Head, Message, OutgoingMessage, OutgoingRequest, View
from tests.engine import strategies
from tests.engine.strategies import Json, assistant, call, result, text, user

ESTIMATOR = HeuristicEstimator()
BASH = Block.of({"name": "bash", "description": "runs", "input_schema": {"type": "object"}})
FRAME = Frame("claude-opus-5-5", (Block.of(text("careful")),), (BASH,), binds_thinking=True)


def request_of(*messages: OutgoingMessage, **more: object) -> OutgoingRequest:
    fields = {"system": (Block.of(text("careful")),), "tools": (), **more}
    return OutgoingRequest("m", 100, messages=messages, **fields)  # type: ignore[arg-type]


def said(role: str, *blocks: Json, sources: tuple[int, ...] = ()) -> OutgoingMessage:
    return OutgoingMessage(role, tuple(map(Block.of, blocks)), sources)  # type: ignore[arg-type]


ASK = said("user", text("go"), sources=(0,))
THOUGHT = strategies.thinking("hm")


# --- the digest


def test_the_digest_tells_apart_everything_that_thinking_is_bound_to() -> None:
    whole = request_of(ASK)
    others = [
        request_of(said("user", text("stop"))),
        request_of(said("assistant", text("go"))),
        request_of(ASK, said("user", text("more"))),
        replace(whole, system=()),
        replace(whole, memory=(Block.of(text("it is Monday")),)),
        replace(whole, tools=(Block.of({"name": "bash"}),)),
    ]
    assert len({thinking.sent_digest(r) for r in [whole, *others]}) == 1 + len(others)


def test_the_digest_does_not_look_at_marks_thinking_or_the_length_of_the_answer() -> None:
    whole = request_of(ASK, said("assistant", THOUGHT, text("done")))
    marked = replace(ASK, blocks=tuple(replace(b, marked=True) for b in ASK.blocks))
    for same in (
        request_of(marked, said("assistant", text("done"))),
        request_of(ASK, said("assistant", {"type": "redacted_thinking", "data": "x"}, text("done"))),
        replace(whole, max_tokens=5, model="other"),
    ):
        assert thinking.sent_digest(same) == thinking.sent_digest(whole)


def test_the_digest_takes_text_that_is_no_valid_unicode() -> None:
    broken = Block('{"type":"text","text":"\ud800"}', {"type": "text", "text": "\ud800"})
    assert thinking.sent_digest(request_of(OutgoingMessage("user", (broken,))))


# --- where it has to go


def test_thinking_stays_while_what_was_sent_before_it_stands() -> None:
    answer = said("assistant", THOUGHT, text("done"), sources=(1,))
    asked = thinking.sent_digest(request_of(ASK))
    assert thinking.cut_before(request_of(ASK, answer), {1: asked}) == 0


@pytest.mark.parametrize("known", [{}, {1: ""}, {1: "another past"}, {2: "of another message"}])
def test_thinking_of_an_unknown_or_another_past_goes(known: dict[int, str]) -> None:
    answer = said("assistant", THOUGHT, text("done"), sources=(1,))
    assert thinking.cut_before(request_of(ASK, answer), known) == 2


def test_messages_joined_from_several_have_no_past_of_their_own() -> None:
    asked = thinking.sent_digest(request_of(ASK))
    joined = said("assistant", THOUGHT, text("done"), sources=(1, 2))
    assert thinking.cut_before(request_of(ASK, joined), {1: asked, 2: asked}) == 3


def test_all_before_the_last_bound_one_goes_so_that_what_is_kept_is_one_run() -> None:
    one = said("assistant", THOUGHT, text("one"), sources=(1,))
    more = said("user", text("more"), sources=(2,))
    two = said("assistant", THOUGHT, text("two"), sources=(3,))
    asked = thinking.sent_digest(request_of(ASK))
    again = thinking.sent_digest(request_of(ASK, one, more))
    assert thinking.cut_before(request_of(ASK, one, more, two), {1: asked, 3: again}) == 0
    assert thinking.cut_before(request_of(ASK, one, more, two), {1: "other", 3: again}) == 2
    assert thinking.cut_before(request_of(ASK, one, more, two), {1: asked, 3: "other"}) == 4


def test_without_thinking_nothing_is_bound() -> None:
    assert thinking.cut_before(request_of(ASK, said("assistant", text("done"), sources=(1,))), {}) == 0


def test_a_message_without_its_thinking_is_weighed_anew_and_without_any_is_the_same() -> None:
    stored = Message(1, "assistant", (Block.of(THOUGHT), Block.of(text("done"))), tokens=99)
    made = thinking.without_thinking(stored, ESTIMATOR)
    assert [b.kind for b in made.blocks] == ["text"]
    assert made.tokens == tokens.message_tokens(ESTIMATOR, made.blocks)
    assert thinking.without_thinking(made, ESTIMATOR) is made


# --- in a whole request


def shown(messages: list[Message], frame: Frame = FRAME, **view: int) -> assemble.Assembled:
    messages = [replace(m, tokens=tokens.message_tokens(ESTIMATOR, m.blocks)) for m in messages]
    return assemble.assemble(
        frame, View(last_seq=messages[-1].seq, **view), Head(), messages,  # type: ignore[arg-type]
        max_tokens=100, estimator=ESTIMATOR, where="/h.md",
    )  # fmt: skip


def thoughts(made: assemble.Assembled) -> list[int]:
    """Which messages show thinking."""
    kinds = [[b["type"] for b in m["content"]] for m in json.loads(made.request.body())["messages"] if isinstance(m["content"], list)]  # fmt: skip
    return [i for i, blocks in enumerate(kinds) if "thinking" in blocks]


def loop() -> list[Message]:
    """Three rounds, each answered to what was really sent before it."""
    transcript = [user(text("go"))]
    for n in range(3):
        transcript += [
            assistant(strategies.thinking(f"hm {n}"), call(f"c{n}")),
            user(result(f"c{n}")),
        ]
    messages = strategies.as_messages(transcript)
    for at in (1, 3, 5):
        sent = thinking.sent_digest(shown(messages[:at]).request)
        messages[at] = replace(messages[at], produced_on=sent)
    return messages


def test_a_request_that_begins_as_it_did_keeps_all_thinking() -> None:
    made = shown(loop())
    assert thoughts(made) == [1, 3, 5]
    assert made.view.thinking_cut_before == 0


def test_a_changed_system_drops_it_and_the_view_says_so() -> None:
    made = shown(loop(), replace(FRAME, memory=(Block.of(text("changed")),)))
    assert (thoughts(made), made.view.thinking_cut_before) == ([], 6)
    assert made.tokens == ESTIMATOR.estimate_request(made.request)


def test_what_the_view_dropped_stays_dropped_though_it_would_be_valid_again() -> None:
    made = shown(loop(), thinking_cut_before=4)
    assert (thoughts(made), made.view.thinking_cut_before) == ([5], 4)


def test_on_other_models_thinking_is_not_looked_at() -> None:
    made = shown(loop(), replace(FRAME, binds_thinking=False, memory=(Block.of(text("changed")),)))
    assert (thoughts(made), made.view.thinking_cut_before) == ([1, 3, 5], 0)


def test_thinking_that_is_left_out_alone_leaves_no_empty_message() -> None:
    stored = strategies.as_messages(
        [user(text("go")), assistant(strategies.thinking("hm")), user(text("on"))]
    )
    made = shown(stored)
    assert [m["role"] for m in json.loads(made.request.body())["messages"]] == ["user"]
