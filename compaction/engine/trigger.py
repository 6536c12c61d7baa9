"""The lines that a request's size is held against, and what is due when one is crossed (DESIGN 5).

All amounts are the model's tokens. The fractions of `room` matter only when system, tools and memory are large:
they leave every step something to win, so that a large fixed part never makes a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from compaction.engine.types import Reason


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one session's requests: the session's own values over the model profile's.

    `counts_output`: input plus `max_tokens` must fit the window (most providers); current Claude models count input
    alone. `precompute_frac` None turns the background work off. `keep_messages`: instead of a share of the window,
    for models whose window is unknown (SPEC F3).
    """

    window: int
    max_tokens: int
    counts_output: bool = True
    trigger_frac: float = 0.85
    keep_frac: float = 0.10
    precompute_frac: float | None = 0.75
    max_trigger_tokens: int | None = None
    summary_max_tokens: int = 4_096
    keep_messages: int | None = None
    arg_limit: int = 500
    max_wait_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines and amounts of DESIGN 5, in tokens. `precompute` is None when background work is off."""

    usable: int
    fixed: int
    room: int
    trigger: int
    precompute: int | None
    keep: int
    snapshot_keep: int
    head: int
    summary: int
    ledger: int
    gain: int

    @property
    def clear(self) -> int:
        """What a step has to come down to, so that the trigger is not crossed again at once."""
        return self.trigger - self.gain


def output_room(limits: Limits, fixed: int) -> int:
    """The `max_tokens` that is sent: what was wanted, but where input and output share the window at most half of it,
    and less when the fixed part would else leave no room for messages: a shorter answer beats no request."""
    if not limits.counts_output:
        return limits.max_tokens
    least = min(limits.max_tokens, max(256, limits.window // 32))
    return max(least, min(limits.max_tokens, limits.window // 2, limits.window - int(fixed / 0.8)))


def usable(limits: Limits, fixed: int = 0) -> int:
    """Tokens that the input may have beside the answer."""
    return limits.window - output_room(limits, fixed) if limits.counts_output else limits.window


def lines(limits: Limits, fixed: int, *, growth: float = 0.0, summary_s: float = 0.0) -> Lines:
    """The lines for a request whose system, tools and memory weigh `fixed` tokens.

    `growth`: recent tokens per second; `summary_s`: seconds that a summary took lately. Together they say how early
    the background work has to begin to be done in time.
    """
    whole = usable(limits, fixed)
    end = float(whole)
    if limits.max_trigger_tokens:
        end = min(end, max(limits.max_trigger_tokens / limits.trigger_frac, fixed / 0.6))
    room = max(1.0, end - fixed)
    trigger = max(limits.trigger_frac * end, fixed + 0.6 * room)
    gain = min(0.05 * end, 0.1 * room)
    keep = min(limits.keep_frac * end, 0.25 * room)
    precompute = None
    snapshot = keep
    if limits.precompute_frac is not None:
        early = max(min(limits.precompute_frac, limits.trigger_frac - 0.05) * end, fixed + 0.45 * room)
        precompute = max(min(early, trigger - 1.5 * growth * summary_s), fixed + 0.25 * room)
        snapshot = max(min(0.02 * end, 0.05 * room), keep - (trigger - precompute))
    return Lines(
        usable=whole,
        fixed=fixed,
        room=int(room),
        trigger=int(min(trigger, whole)),
        precompute=None if precompute is None else int(precompute),
        keep=int(keep),
        snapshot_keep=int(snapshot),
        head=int(0.25 * room),
        summary=max(1, int(min(limits.summary_max_tokens, 0.15 * room))),
        ledger=int(min(800, 0.05 * room, 0.01 * end)),
        gain=max(1, int(gain)),
    )


def expected_summary(evictable: int, at: Lines) -> int:
    """Tokens that a summary of so many tokens will have: a guess on the high side."""
    return min(at.summary, evictable // 3)


def worthwhile(evictable: int, at: Lines) -> bool:
    """A compaction is due only if what it evicts exceeds the expected summary by the gain (DESIGN 5)."""
    return evictable - expected_summary(evictable, at) > at.gain


class Action(StrEnum):
    """What a build does next; each is tried at most once a build, in the order of `decide`."""

    SEND = "send"
    TRUNCATE = "truncate"
    SWAP = "swap"
    COMPACT = "compact"
    EXTRACT = "extract"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Situation:
    """What a build knows when it asks what to do.

    `background`: summaries are written ahead of need. `truncated`: the size with old tool arguments and results cut, None when nothing is left to cut. `swapped`: the size
    with the ready compaction adopted, None when there is none. `forced`: that compaction was asked for and is shown
    whatever the size. `live`: a job is requested or running. `may_start`: a compaction is worthwhile and no back-off
    holds. `may_wait`: this build may wait for a summary (circuit closed, `max_wait_s` above 0, not yet tried).
    `may_extract`: there is something a briefing without a model could stand for.
    """

    size: int
    lines: Lines
    background: bool = True
    truncated: int | None = None
    swapped: int | None = None
    forced: bool = False
    live: bool = False
    may_start: bool = False
    may_wait: bool = False
    may_extract: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """`start`: a job is to be asked for in the background. `deferred`: a due compaction is left to one."""

    action: Action
    reason: Reason | None = None
    start: bool = False
    deferred: bool = False


def decide(s: Situation) -> Decision:  # noqa: PLR0911 - one line a rung, read top to bottom
    """The next step towards a request that can be sent. Never drops anything from a request that fits."""
    at = s.lines
    fits = s.size <= at.usable
    if s.swapped is not None and s.forced:
        return Decision(Action.SWAP)
    if s.size <= at.trigger:
        return Decision(Action.SEND)
    if s.truncated is not None and s.truncated <= at.clear and (fits or s.background):
        # Over the window it only bridges the time to a summary; where none is written ahead, one is due now.
        return Decision(Action.TRUNCATE, Reason.THRESHOLD, start=not fits and s.may_start and not s.live)
    if s.swapped is not None and s.swapped <= at.clear:
        return Decision(Action.SWAP, Reason.THRESHOLD)
    if s.live and fits:
        return Decision(Action.SEND, deferred=True)
    if s.may_wait and (s.live or s.may_start):
        return Decision(Action.COMPACT, Reason.THRESHOLD)
    if fits:
        return Decision(Action.SEND, start=s.may_start, deferred=s.may_start)
    if s.swapped is not None and s.swapped <= at.usable:
        return Decision(Action.SWAP, Reason.THRESHOLD)
    if s.may_extract:
        return Decision(Action.EXTRACT, Reason.THRESHOLD)
    if s.truncated is not None:
        return Decision(Action.TRUNCATE, Reason.TRUNCATE)
    if s.swapped is not None:
        return Decision(Action.SWAP, Reason.THRESHOLD)
    return Decision(Action.DROP, Reason.TRUNCATE)
