"""FLOW 5: close the turn, once, and write the session's two counters in one UPDATE (SPEC N5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from compaction import budget, counting, facts, gather, jobs
from compaction.engine import exact, integrity, tokens, types
from compaction.engine.errors import Conflict, NotFound
from compaction.models import Turn
from sessions_app import append
from sessions_app.models import Message, Session


@dataclass(frozen=True, slots=True)
class Closed:
    """What completing a turn answers; `turn` as it is stored now."""

    turn: Turn
    seq: int | None
    warnings: tuple[str, ...]


def get(session: Session, number: int) -> Turn:
    turn = session.turns.select_related("frame", "compaction").filter(number=number).first()
    if turn is None:
        raise NotFound(f"there is no turn {number}")
    turn.session = session
    return turn


def open_turn(session: Session) -> Turn | None:
    """The turn that waits for its answer."""
    last = session.turns.order_by("-number").first()
    return last if last and last.status == Turn.Status.OPEN else None


def complete(
    session: Session,
    number: int,
    message: append.NewMessage,
    stop_reason: str,
    usage: dict[str, Any] | None,
    answer: str,
    *,
    own_call: bool = False,
    raw: str = "",
) -> Closed:
    """Stores the assistant's message and closes the turn. Completing again with the same body gives the same answer.

    `answer`: the body's text, to know it again; `own_call`: hango called the model itself, so that the usage teaches what
    holds for every session of that model; `raw`: the provider's own answer, where its shape is another. Raises `Conflict` when the turn was closed by something else.
    """
    turn = get(session, number)
    digest = types.digest_of(answer)
    with transaction.atomic():
        if not _close(
            turn,
            Turn.Status.COMPLETED,
            stop_reason=stop_reason,
            usage=usage,
            answer_digest=digest,
            raw_answer=raw,
        ):
            turn.refresh_from_db()
            if turn.answer_digest != digest:
                raise Conflict(f"turn {number} is {turn.status} already, by another answer", turn=number)
            told = turn.attempts[-1]
            return Closed(turn, told["seq"], tuple(told["warnings"]))
        stored = append.append(session, [message], produced_on=turn.sent_digest)
        seq = stored.rows[0].seq
        warnings = [exact.stored_form(f"{w.rule}: {w.detail}") for w in stored.warnings]
        if seq != turn.last_seq + 1:
            warnings.insert(
                0,
                "messages-since-build: the answer was stored after messages that it has not seen; its usage is no anchor",
            )
            turn.warnings = warnings[:1]
        answered = {"rung": turn.rung or "first", "outcome": "completed", "seq": seq, "warnings": warnings}
        Turn.objects.filter(pk=turn.pk).update(warnings=turn.warnings, attempts=[*turn.attempts, answered])
        _count(session, turn, usage)
        if not tokens.context_of(usage or {}):
            counting.count_later(turn)
        note_compact_tool(session, stored.rows)
        jobs.ring_if_due(session)
    if own_call and usage:
        facts.learn_factor(session.model, tokens.context_of(usage), turn.estimated_tokens)
    turn.refresh_from_db()
    return Closed(turn, seq, tuple(warnings))


def fail(session: Session, turn: Turn, outcome: str = "") -> bool:
    """Closes the turn as failed: the ladder is exhausted, or the provider's error is no overflow (then `outcome` names
    it). False when something else closed it first."""
    with transaction.atomic():
        turn.refresh_from_db()
        attempts = (
            [*turn.attempts, {"rung": turn.rung or "first", "outcome": outcome}] if outcome else turn.attempts
        )
        closed = _close(turn, Turn.Status.FAILED, attempts=attempts)
        if closed:
            _count(session, turn, None)
            jobs.ring_if_due(session)
    return closed


def close_by_append(session: Session, turn: Turn | None, rows: Sequence[Message]) -> bool:
    """An assistant message appended right after what the open turn showed closes it, with the usage unknown."""
    if turn is None or not any(r.role == "assistant" and r.seq == turn.last_seq + 1 for r in rows):
        return False
    closed = _close(turn, Turn.Status.COMPLETED)
    if closed:
        _count(session, turn, None)
        counting.count_later(turn)
    return closed


def note_compact_tool(session: Session, rows: Sequence[Message]) -> None:
    """A call of `compact_conversation` asks for a compaction, shown from the next new turn on (SPEC F12)."""
    if not session.compact_tool:
        return
    calls = [b for row in rows if row.role == "assistant" for b in gather.message(row).calls]
    if any(call.data.get("name") == integrity.COMPACT_TOOL for call in calls):
        state = gather.state(session)
        size, at, _ = budget.standing(state)
        jobs.request(state, reason=types.Reason.TOOL, size=size, keep=at.keep)


def _close(turn: Turn, status: Turn.Status, **values: object) -> bool:
    """Compare-and-set on the status: the first one closes the turn."""
    return bool(
        Turn.objects.filter(pk=turn.pk, status=Turn.Status.OPEN).update(
            status=status, closed_at=timezone.now(), **values
        )
    )


def _count(session: Session, turn: Turn, usage: dict[str, Any] | None) -> None:
    """The one UPDATE of the session in a turn, at its boundary, whatever was retried inside it."""
    used = tokens.context_of(usage or {}) or turn.input_tokens
    values: dict[str, Any] = {
        "last_input_tokens": used,
        "compactions": F("compactions") + (1 if turn.adopted else 0),
    }
    if stated := [attempt["limit"] for attempt in turn.attempts if "limit" in attempt]:
        values["reported_limit"] = min(stated)
    Session.objects.filter(pk=session.pk).update(**values)
