"""What holds for every transcript, however broken: the properties of repair and validator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import exact, integrity, repair, validator
from compaction.engine.types import Block, Message, OutgoingMessage
from tests import judges
from tests.engine import strategies


def _stored_again(messages: Sequence[OutgoingMessage]) -> list[Message]:
    return [Message(i, m.role, m.blocks, as_text=m.as_text) for i, m in enumerate(messages)]


@given(strategies.broken(), st.booleans())
def test_a_repaired_request_is_accepted_by_the_validator_and_by_both_judges(
    messages: list[Message], headed: bool
) -> None:
    lead = (Block.text_of("<summary>"), Block.text_of("pins")) if headed else ()
    outgoing, _ = repair.repair(messages, lead=lead, close=True)
    if outgoing:
        request = strategies.request_of(outgoing)
        assert validator.violations(request) == []
        judges.strict_check(request)


@given(strategies.healthy())
def test_a_healthy_transcript_passes_through_byte_for_byte_and_gives_no_warning(
    messages: list[Message],
) -> None:
    outgoing, repairs = repair.repair(messages, close=True)
    assert repairs == ()
    assert integrity.warnings(messages)[0] == []
    assert [(m.role, m.blocks, m.as_text, m.sources) for m in outgoing] == [
        (m.role, m.blocks, m.as_text, (m.seq,)) for m in messages
    ]
    assert all(
        new is old
        for out, m in zip(outgoing, messages, strict=True)
        for new, old in zip(out.blocks, m.blocks, strict=True)
    )
    judges.strict_check(strategies.request_of(outgoing))


@given(strategies.broken())
def test_repairing_a_repaired_transcript_changes_nothing(messages: list[Message]) -> None:
    once, _ = repair.repair(messages, close=True)
    again, repairs = repair.repair(_stored_again(once), close=True)
    assert repairs == ()
    assert [(m.role, m.blocks, m.as_text) for m in again] == [(m.role, m.blocks, m.as_text) for m in once]


@given(strategies.broken(server=False), st.data())
def test_appending_does_not_change_how_earlier_complete_rounds_are_shown(
    messages: list[Message], data: st.DataObject
) -> None:
    until = data.draw(st.integers(0, len(messages)))
    before, _ = repair.repair(messages[:until])
    after, _ = repair.repair(messages)
    settled = before[:-2]
    assert after[: len(settled)] == settled


@given(strategies.broken())
def test_every_message_that_is_changed_is_named_in_the_repairs(messages: list[Message]) -> None:
    outgoing, repairs = repair.repair(messages, close=True)
    told = {r.seq for r in repairs}
    shown = [b for m in outgoing for b in m.blocks]
    for message in (m for m in messages if m.seq not in told):
        assert all(
            b in shown for b in message.blocks if b.kind != "tool_result" and "cache_control" not in b.data
        )


@given(strategies.broken())
def test_no_text_that_was_said_is_lost(messages: list[Message]) -> None:
    outgoing, repairs = repair.repair(messages, close=True)
    shown = "\n".join(_texts([b.data for m in outgoing for b in m.blocks]))
    for message in messages:
        for said in _texts([b.data for b in message.blocks if b.kind in {"text", "tool_result"}]):
            assert exact.well_formed(said) in shown
    thoughts = [b for m in messages for b in m.blocks if b.kind == "thinking"]
    kept = [b for m in outgoing for b in m.blocks if b.kind == "thinking"]
    assert all(b in thoughts for b in kept)
    if not any(r.rule.startswith("thinking") for r in repairs):
        assert len(kept) == len(thoughts)


def _texts(blocks: Sequence[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    for block in blocks:
        inner = block.get("content")
        found += [block["text"]] if block["type"] == "text" and block["text"].strip() else []
        found += [inner] if isinstance(inner, str) else _texts(inner) if isinstance(inner, list) else []
    return found


@given(strategies.broken())
def test_what_the_judges_refuse_the_validator_refuses_too(messages: list[Message]) -> None:
    request = strategies.request_of([OutgoingMessage(m.role, m.blocks, as_text=m.as_text) for m in messages])
    if not validator.violations(request):
        judges.strict_check(request)


@given(strategies.broken_transcripts(), st.data())
def test_broken_transcripts_are_well_formed_and_give_the_same_open_calls_however_they_are_appended(
    said: list[dict[str, Any]], data: st.DataObject
) -> None:
    assert [f for m in said for f in integrity.malformed(m["role"], m["content"], "")] == []
    messages = strategies.as_messages(said)
    cut = data.draw(st.integers(0, len(messages)))
    _, first = integrity.warnings(messages[:cut])
    last = [m.role for m in messages[:cut] if any(b.kind != "text" or b.text.strip() for b in m.blocks)]
    _, second = integrity.warnings(messages[cut:], first, last[-1] if last else None)
    assert second == integrity.warnings(messages)[1]


@given(strategies.broken())
def test_the_ending_says_what_the_request_would_end_on(messages: list[Message]) -> None:
    outgoing, _ = repair.repair(messages)
    _, repairs = repair.repair(messages, close=True)
    end = repair.ending(messages)
    assert (end == "nothing") == (outgoing == ())
    assert (end == "answer") == any(r.rule == "continue R5" for r in repairs)
    if end == "calls":
        assert repair.NO_RESULT in [b.data.get("content") for b in outgoing[-1].blocks]
