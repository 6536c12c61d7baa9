"""Compactions that are ready as soon as they are made: a briefing that no model wrote, and a summary written elsewhere."""

from __future__ import annotations

from django.utils import timezone

from compaction import budget, gather, offload, summary
from compaction.engine import cut, trigger, types
from compaction.models import Compaction
from compaction.providers import extractive


def extract(
    state: gather.State, at: trigger.Lines, size: int, reason: types.Reason, target: int | None = None
) -> Compaction | None:
    """A ready briefing that no model wrote, for a request that has to fit now; None when it would not help.

    `target`: what the request must come down to, in the model's tokens; the trigger less the gain unless given.
    """
    factor = budget.factor(state)
    base = gather.latest_valid(state.session)
    start = base.kept_from or 0 if base else 0
    messages = gather.readable(state.session, start, state.last_seq)
    evictable = int(sum(m.tokens for m in messages) * factor)
    expected = trigger.expected_summary(evictable, at)
    goal = at.clear if target is None else min(target, at.clear)
    place = cut.choose(
        messages, keep=int(at.keep / factor), enough=int(max(0, size - goal + expected) / factor), worth=int(expected / factor),
        keep_messages=state.limits.keep_messages,
    )  # fmt: skip
    if place is None:
        return None
    kept_from, evicted = messages[place].seq, messages[:place]
    previous = base.summary if base else None
    text = extractive.summarise(
        evicted, previous, max_tokens=int(at.summary / factor), estimate=state.estimator.estimate
    )
    fields = summary.composed(state, base, evicted, kept_from, at, factor, text)
    turn = state.last.number if state.last else None
    return _recorded(
        state,
        Compaction(turn=turn, reason=reason, kind=Compaction.Kind.EXTRACTIVE, base=base, **fields),
        kept_from,
        size,
    )


def imported(state: gather.State, text: str, kept_from: int) -> Compaction:
    """Records a summary that was written elsewhere. Raises nothing; the caller has checked and moved `kept_from`."""
    factor = budget.factor(state)
    at = budget.lines(state, state.session.fixed_tokens)
    base = gather.latest_valid(state.session, before=kept_from - 1)
    evicted = gather.readable(state.session, base.kept_from or 0 if base else 0, kept_from - 1)
    size, _, _ = budget.standing(state)
    fields = summary.composed(state, base, evicted, kept_from, at, factor, text)
    row = Compaction(reason=types.Reason.IMPORTED, kind=Compaction.Kind.IMPORTED, base=base, **fields)
    return _recorded(state, row, kept_from, size)


def _recorded(state: gather.State, row: Compaction, kept_from: int, size: int) -> Compaction:
    """The composed row, stored as ready to be shown from the next build on. `size`: the request's now, in the model's
    tokens."""
    row.session, row.kept_from, row.folded_through = state.session, kept_from, kept_from
    row.status, row.apply = Compaction.Status.READY, Compaction.Apply.NEXT_BUILD
    row.prefix_digest = state.session.messages.values_list("digest", flat=True).get(seq=kept_from - 1)
    row.tokens_before = size
    row.tokens_after = min(size, budget.after_swap(state, kept_from, row.head_tokens))
    row.started_at = row.finished_at = timezone.now()
    row.save(force_insert=True)
    offload.mirror_later(row)
    return row
