"""How large the next request would be, from records alone: no message is read (DESIGN 5, Budget)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

from django.utils import timezone

from compaction import gather
from compaction.engine import tokens, trigger, types
from compaction.models import Compaction, Turn


def same_view(turn: Turn, view: types.View) -> bool:
    """Whether a turn shows the same messages in the same form, but for its end and its memory."""
    return replace(gather.view_of(turn), memories=view.memories, last_seq=view.last_seq) == view


def anchor(state: gather.State, view: types.View | None) -> tokens.Anchor | None:
    """The last reported usage, and whether it was of the same view (but for its end)."""
    turn = state.reported
    if turn is None:
        return None
    same = view is not None and same_view(turn, view)
    return tokens.Anchor(gather.reported_tokens(turn), turn.estimated_tokens, same)


def factor(state: gather.State) -> float:
    """The model's tokens per base unit, learned from the last reported usage."""
    return tokens.factor(anchor(state, None), state.profile.estimate_factor)


def measure(state: gather.State, estimated: int, view: types.View) -> tuple[int, types.Source]:
    """(the model's tokens, source) of a request of so many base units."""
    return tokens.measure(estimated, anchor(state, view), state.profile.estimate_factor)


def lines(state: gather.State, fixed: int) -> trigger.Lines:
    """The lines for system, tools and memory of so many base units, given how fast the session grows."""
    prompt = state.profile.tool_prompt_tokens if state.session.tools else 0
    return trigger.lines(
        state.limits,
        int(fixed * factor(state)) + prompt,
        growth=_growth(state.turns, timezone.now()),
        summary_s=_summary_s(state),
    )


def standing(state: gather.State) -> tuple[int, trigger.Lines, types.View]:
    """(size of the next request under the inherited view, the lines, that view), in the model's tokens."""
    size, at, view, _ = _standing(state)
    return size, at, view


def of(state: gather.State) -> types.Budget:
    """The budget as the API shows it, for what the next request would be."""
    size, at, _, source = _standing(state)
    return as_budget(state, at, size, source)


def as_budget(state: gather.State, at: trigger.Lines, size: int, source: types.Source) -> types.Budget:
    return types.Budget(size, state.limits.window, at.trigger, at.precompute, source)


def after_swap(state: gather.State, kept_from: int, head_tokens: int) -> int:
    """The model's tokens of a request under a summary of `head_tokens` base units and everything from `kept_from` on."""
    kept = state.through - gather.weight_before(state.session, kept_from)
    return max(1, int((state.session.fixed_tokens + head_tokens + kept) * factor(state)))


def _standing(state: gather.State) -> tuple[int, trigger.Lines, types.View, types.Source]:
    view = state.view()
    last = state.last
    fixed = state.session.fixed_tokens
    if last is not None and same_view(last, view):
        estimated = (
            last.estimated_tokens + state.through - gather.weight_before(state.session, last.last_seq + 1)
        )
    else:
        head = state.candidate.head_tokens if view.compaction and state.candidate else 0
        estimated = fixed + head + state.through - gather.weight_before(state.session, view.first_seq)
    size, source = measure(state, estimated, view)
    return size, lines(state, fixed), view, source


def _summary_s(state: gather.State) -> float:
    """Seconds that the last finished summary took."""
    done = next(
        (j for j in state.jobs if j.status == Compaction.Status.READY and j.started_at and j.finished_at),
        None,
    )
    return (
        (done.finished_at - done.started_at).total_seconds()
        if done and done.finished_at and done.started_at
        else 0.0
    )


def _growth(turns: Sequence[Turn], now: datetime) -> float:
    """Tokens per second that the session grew by over its recent turns, tool time included; 0 when unknown."""
    closed = [t for t in turns if t.usage or t.input_tokens]
    if len(closed) < 2:
        return 0.0
    grown = sum(max(0, a.input_tokens - b.input_tokens) for a, b in pairwise(closed))
    seconds = (now - closed[-1].created_at).total_seconds()
    return grown / seconds if seconds > 0 else 0.0
