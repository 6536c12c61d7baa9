"""The overflow ladder (SPEC F10): a shorter answer, compaction, mechanical truncation, failure; and thinking left out.

Each attempt is strictly smaller than what was refused, and recorded on the turn. hango's own calls (`call`) and runtimes
that call the model themselves climb the same rungs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compaction import compact, facts, gather, jobs, outgoing, ready, turns
from compaction import desk as desks
from compaction.engine import exact
from compaction.engine import overflow as rungs
from compaction.engine.errors import Conflict, Invalid
from compaction.engine.types import Reason
from compaction.models import Compaction, Turn
from sessions_app.models import Session

OVERFLOW_STOP = "model_context_window_exceeded"
MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Climbed:
    """The next request to try, or None when the turn has failed. `rung`: overflow or truncate."""

    turn: Turn
    rung: str
    built: outgoing.Built | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A provider's error as far as it is known."""

    kind: rungs.Kind
    status: int | None = None
    type: str = ""
    message: str = ""

    @classmethod
    def by_stop(cls) -> Refusal:
        """An answer that stopped because the window was full."""
        return cls(rungs.Kind.OVERFLOW, 200, OVERFLOW_STOP)


def reported(error: object) -> Refusal:
    """What a runtime reports as overflow: the provider's error body as it came, or its parts. Raises `Invalid` when it is
    clearly another fault, which no smaller request cures."""
    status, kind, message = _parts(error)
    found = rungs.classify(provider="", status=status, type=kind, message=message)
    if found in rungs.NO_OVERFLOW and found is not rungs.Kind.BINDING:
        raise Invalid(
            f"the provider's error is no overflow but {found}: a smaller request would not cure it",
            errors=[{"pointer": "/error", "detail": f"is {found}"}],
        )
    # An error that says nothing is an overflow all the same: the caller has seen more than the error.
    cured = found in rungs.CURABLE or found is rungs.Kind.BINDING
    return Refusal(found if cured else rungs.Kind.OVERFLOW, status, kind, message)


def _parts(error: object) -> tuple[int | None, str, str]:
    """(status, type or code, message) of an error object, a whole error body, or a text."""
    if not isinstance(error, dict):
        return None, "", error if isinstance(error, str) else ""
    inner = error.get("error")
    if isinstance(inner, dict):
        status, kind, message = _parts(inner)
        return _status(error.get("status")) or status, kind, message
    code = error.get("code")
    name = code if isinstance(code, str) else error.get("type")
    words = error.get("message") if error.get("message") is not None else inner
    return _status(error.get("status")), str(name or ""), str(words or "")


def _status(value: object) -> int | None:
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and 100 <= value <= 599 else None


def climb(session: Session, number: int, refusal: Refusal) -> Climbed:
    """The next rung for an open turn whose request was refused. Raises `Conflict` for a closed one."""
    turn = turns.get(session, number)
    if turn.status != Turn.Status.OPEN:
        raise Conflict(f"turn {number} is {turn.status}", turn=number)
    state = gather.state(session, turn.max_tokens)
    limit = rungs.limits_of(refusal.message).limit
    _note_attempt(turn, refusal, limit if limit and facts.believed(limit, state.limits.window) else None)
    if limit and limit < state.limits.window and facts.believed(limit, state.limits.window):
        state = replace(state, limits=replace(state.limits, window=limit))
    desk = desks.open_desk(state, None)
    shown = desk.show(gather.view_of(turn))
    refused = max(1, shown.size)
    if refusal.kind is rungs.Kind.BINDING:
        return _unbound(desk, turn, shown)
    if refusal.kind is rungs.Kind.OVERFLOW_OUT and (shorter := _shorter(desk, turn, refusal)):
        return Climbed(turn, Turn.Rung.OVERFLOW, shorter)
    if turn.rung == Turn.Rung.NONE and refusal.kind is not rungs.Kind.BODY:
        smaller = _compacted(desk, shown, rungs.compaction_target(desk.lines, refused))
        if smaller is not None:
            return Climbed(turn, Turn.Rung.OVERFLOW, outgoing.store(desk, smaller, rung=Turn.Rung.OVERFLOW))
    # Also a second time when there was nothing to compact: only the third failure fails the turn.
    if sum(a["outcome"] == "overflow" for a in turn.attempts) < MOST_ATTEMPTS:
        smaller = desks.drop(desk, shown, rungs.truncation_target(desk.lines, refused), best_effort=True)
        if smaller.size < refused:
            return Climbed(turn, Turn.Rung.TRUNCATE, outgoing.store(desk, smaller, rung=Turn.Rung.TRUNCATE))
    turns.fail(session, turn)
    return Climbed(turn, Turn.Rung.TRUNCATE, None)


def _unbound(desk: desks.Desk, turn: Turn, shown: desks.Shown) -> Climbed:
    """The same request without any thinking (PROTOCOL section 2, recovery for R43), which stays left out. It takes no rung
    away. Where none is left to leave out, no cure is known: the turn fails."""
    bare = desk.show(replace(shown.view, thinking_cut_before=shown.view.last_seq + 1))
    if bare.size < shown.size:
        return Climbed(turn, Turn.Rung.OVERFLOW, outgoing.store(desk, bare))
    turns.fail(desk.session, turn)
    return Climbed(turn, Turn.Rung.OVERFLOW, None)


def _shorter(desk: desks.Desk, turn: Turn, refusal: Refusal) -> outgoing.Built | None:
    """The same request with a lower `max_tokens`, before anything is compacted; once a turn."""
    if any(attempt.get("outcome") == "shortened" for attempt in turn.attempts):
        return None
    stated = rungs.limits_of(refusal.message)
    room = stated.limit - (stated.input or 0) if stated.limit and stated.input else turn.max_tokens // 2
    lowered = min(room - 16, turn.max_tokens - 1)  # a little less than stated: counts differ by a few tokens
    if lowered < rungs.LEAST_ANSWER:
        return None
    turn.attempts[-1]["outcome"] = "shortened"
    Turn.objects.filter(pk=turn.pk).update(attempts=turn.attempts)
    desk.state = replace(desk.state, limits=replace(desk.state.limits, max_tokens=lowered))
    return outgoing.store(desk, desk.show(gather.view_of(turn)))


def _compacted(desk: desks.Desk, shown: desks.Shown, target: int) -> desks.Shown | None:
    """The view with a compaction that brings it down to the target: a ready one, one made now, or an extractive one."""
    state = desk.state
    if waiting := _within(desk, shown, state.candidate, target):
        return waiting
    if desk.wait_left_s > 0 and jobs.may_call(state):
        number = state.last.number if state.last else None
        job = state.live or jobs.request(
            state,
            reason=Reason.OVERFLOW,
            size=shown.size,
            keep=desk.lines.keep,
            turn=number,
            for_worker=False,
        )
        with desk.waiting():
            compact.wait(job, desk.wait_left_s)
        state = desk.state = gather.state(state.session, state.limits.max_tokens)
        if made := _within(desk, shown, state.candidate, target):
            return made
    return _within(desk, shown, ready.extract(state, desk.lines, shown.size, Reason.OVERFLOW, target), target)


def _within(
    desk: desks.Desk, shown: desks.Shown, candidate: Compaction | None, target: int
) -> desks.Shown | None:
    newer = desks.newer(desk, candidate, shown.view)
    swapped = desks.swap_in(desk, shown, newer) if newer else None
    return swapped if swapped is not None and swapped.size <= target else None


def _note_attempt(turn: Turn, refusal: Refusal, limit: int | None) -> None:
    """Records on the turn that what it last sent was refused; never the provider's words, which may quote the prompt.

    `limit`: the window that the provider named, kept with the session when the turn closes, in the same UPDATE.
    """
    sent = {
        "rung": turn.rung or "first",
        "outcome": "unbound" if refusal.kind is rungs.Kind.BINDING else "overflow",
        "kind": refusal.kind.value,
        "digest": turn.digest,
        "input_tokens": turn.input_tokens,
    }
    known = {"status": refusal.status, "type": exact.stored_form(refusal.type[:60]), "limit": limit}
    turn.attempts = [*turn.attempts, sent | {k: v for k, v in known.items() if v}]
    Turn.objects.filter(pk=turn.pk).update(attempts=turn.attempts)
