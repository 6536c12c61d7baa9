"""FLOW 4: the overflow ladder (SPEC F10): compaction, then mechanical truncation, then failure. Each attempt is strictly
smaller than what was refused, and recorded on the turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compaction import budget, compact, gather, jobs, outgoing, ready, turns
from compaction import desk as desks
from compaction.engine import exact
from compaction.engine import overflow as ladder
from compaction.engine.errors import Conflict
from compaction.engine.types import Reason
from compaction.models import Compaction, Turn
from sessions_app.models import Session

MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Climbed:
    """The next request to try, or None when the turn has failed."""

    turn: Turn
    rung: str
    built: outgoing.Built | None


def overflow(session: Session, number: int, error: dict[str, Any] | None = None) -> Climbed:
    """The next rung after a provider said that the turn's request is too long. Raises `Conflict` for a closed turn.

    `error`: what the provider answered, as far as it is known; its type and status are recorded.
    """
    turn = turns.get(session, number)
    if turn.status != Turn.Status.OPEN:
        raise Conflict(f"turn {number} is {turn.status}", turn=number)
    state = gather.state(session, turn.max_tokens)
    desk = desks.open_desk(state, None)
    shown = desk.show(budget.view_of(turn))
    refused = max(1, shown.size)
    _note_attempt(turn, error)
    if turn.rung == Turn.Rung.NONE:
        smaller = _compacted(desk, shown, ladder.compaction_target(desk.lines, refused))
        if smaller is not None:
            return Climbed(turn, Turn.Rung.OVERFLOW, outgoing.store(desk, smaller, rung=Turn.Rung.OVERFLOW))
    # Also a second time when there was nothing to compact: only the third failure fails the turn.
    if len(turn.attempts) < MOST_ATTEMPTS:
        smaller = desks.drop(desk, shown, ladder.truncation_target(desk.lines, refused), best_effort=True)
        if smaller.size < refused:
            return Climbed(turn, Turn.Rung.TRUNCATE, outgoing.store(desk, smaller, rung=Turn.Rung.TRUNCATE))
    turns.fail(session, turn)
    return Climbed(turn, Turn.Rung.TRUNCATE, None)


def _compacted(desk: desks.Desk, shown: desks.Shown, target: int) -> desks.Shown | None:
    """The view with a compaction that brings it down to the target: a ready one, one made now, or an extractive one."""
    state = desk.state
    if waiting := _within(desk, shown, state.candidate, target):
        return waiting
    if state.limits.max_wait_s > 0 and jobs.may_call(state):
        job = state.live or jobs.request(
            state,
            reason=Reason.OVERFLOW,
            size=shown.size,
            keep=desk.lines.keep,
            turn=state.last.number if state.last else None,
        )
        compact.wait(job, state.limits.max_wait_s)
        state = desk.state = gather.state(state.session, state.limits.max_tokens)
        if made := _within(desk, shown, state.candidate, target):
            return made
    return _within(desk, shown, ready.extract(state, desk.lines, shown.size, Reason.OVERFLOW, target), target)


def _within(
    desk: desks.Desk, shown: desks.Shown, candidate: Compaction | None, target: int
) -> desks.Shown | None:
    newer = desks.newer(candidate, shown.view) if candidate else None
    swapped = desks.swap_in(desk, shown, newer) if newer else None
    return swapped if swapped is not None and swapped.size <= target else None


def _note_attempt(turn: Turn, error: dict[str, Any] | None) -> None:
    """Records on the turn that what it last sent was refused."""
    given = error or {}
    known = {k: exact.stored_form(str(given[k])[:100]) for k in ("status", "type", "code") if k in given}
    sent = {
        "rung": turn.rung or "first",
        "outcome": "overflow",
        "digest": turn.digest,
        "input_tokens": turn.input_tokens,
    }
    turn.attempts = [*turn.attempts, sent | known]
    Turn.objects.filter(pk=turn.pk).update(attempts=turn.attempts)
