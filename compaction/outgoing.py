"""FLOW 2: build the outgoing request.

gather: the last turn's view, what is known of the session, the messages that are shown → decide: `trigger.decide` until
there is a request to send → apply: store the turn. The cost is in what is shown, never in the age of the session.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from compaction import compact, counting, frames, gather, jobs, ready
from compaction.desk import Desk, Shown, drop, newer, open_desk, shown_at_once, swap_in, truncated
from compaction.engine import cut, repair, thinking, trigger, types, validator
from compaction.engine.errors import InvalidRequest, NothingToAnswer, NothingToSend, ResultsMissing
from compaction.engine.trigger import Action
from compaction.models import Compaction, Turn
from sessions_app.models import Session

log = logging.getLogger(__name__)

CACHE_LIVES = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Built:
    """What a build answers. `waited_s`: seconds spent waiting for or making a compaction."""

    turn: Turn
    state: gather.State
    shown: Shown
    lines: trigger.Lines
    body: str
    prefix_changed: bool
    waited_s: float
    compaction: Compaction | None


def build(session: Session, *, memory: str | None = None, max_tokens: int | None = None) -> Built:
    """The next outgoing request of a session, and its turn (opened, or gone on with).

    `memory`: JSON text of memory blocks, '' for none, None for the last turn's. Raises `NothingToSend`,
    `ResultsMissing`, `NothingToAnswer`, `CannotFit`; the session stays usable after each.
    """
    state = gather.state(session, max_tokens)
    if state.last_seq < 0:
        raise NothingToSend
    desk = open_desk(state, memory)
    view = gather.view_of(state.open) if state.open else state.view()
    view = replace(view, last_seq=state.last_seq)
    _check_end(session, view, desk.messages(view.first_seq))
    shown = counting.decide(desk, desk.show(view))
    decision = trigger.Decision(Action.SEND)
    if state.open is None and _cache_is_cold(state):
        # Nothing is cached any more, so that cutting old arguments costs no rewrite (DESIGN 5, Truncation).
        cut_down = truncated(desk, shown)
        shown = cut_down if cut_down and shown.size - cut_down.size >= desk.lines.gain else shown
    if state.open is None:
        shown, decision = settle(desk, shown)
    elif shown.size > desk.lines.usable:
        shown = drop(desk, shown, desk.lines.usable)
    built = store(desk, shown, deferred=decision.deferred)
    if desk.lines.precompute is not None and shown.size > desk.lines.precompute:
        jobs.ring_if_due(session)
    return built


def _cache_is_cold(state: gather.State) -> bool:
    """Whether the last turn's prompt cache has expired: its entries live for five minutes after their last use."""
    return state.last is not None and timezone.now() - state.last.created_at > CACHE_LIVES


def _check_end(session: Session, view: types.View, messages: Sequence[types.Message]) -> None:
    end = repair.ending(messages, compact_tool=session.compact_tool)
    if end == "nothing" and not view.first_seq:
        raise NothingToSend
    if end == "calls":
        raise ResultsMissing
    if end == "answer" and session.strict:
        raise NothingToAnswer


# --- decide


def settle(desk: Desk, shown: Shown) -> tuple[Shown, trigger.Decision]:
    """Asks `trigger.decide` until it says send; each means is used up by being used, so the loop ends."""
    state = _with_tool_compaction(desk)
    candidate = newer(desk, state.candidate, shown.view)
    may_wait = desk.wait_left_s > 0
    may_extract = True
    while True:
        over = shown.size > desk.lines.trigger
        cut_down = truncated(desk, shown) if over else None
        forced = candidate is not None and shown_at_once(desk, candidate, shown.view)
        swapped = swap_in(desk, shown, candidate) if candidate and (over or forced) else None
        due = over and jobs.due(state, shown.size, desk.lines, kept_from=shown.view.kept_from)
        decision = trigger.decide(
            trigger.Situation(
                size=shown.size,
                lines=desk.lines,
                background=state.limits.precompute_frac is not None,
                truncated=cut_down.size if cut_down else None,
                swapped=swapped.size if swapped else None,
                forced=forced,
                live=state.live is not None,
                may_start=due,
                may_wait=may_wait and jobs.may_call(state) and compact.a_thread_may_wait(),
                may_extract=may_extract and over,
            )
        )
        if decision.start:
            jobs.request(state, reason=types.Reason.THRESHOLD, size=shown.size, keep=desk.lines.keep)
        if decision.action is Action.SEND:
            return shown, decision
        if decision.action is Action.TRUNCATE and cut_down:
            shown = cut_down
        elif decision.action is Action.SWAP and swapped:
            shown, candidate = swapped, None
        elif decision.action is Action.COMPACT:
            may_wait = False
            with desk.waiting():
                compact.now(state, size=shown.size, keep=desk.lines.keep, deadline_s=desk.wait_left_s)
            state = desk.state = gather.state(state.session, state.limits.max_tokens)
            candidate = newer(desk, state.candidate, shown.view)
        elif decision.action is Action.EXTRACT:
            may_extract = False
            with desk.waiting():
                made = ready.extract(state, desk.lines, shown.size, types.Reason.THRESHOLD)
            candidate = made or candidate
        else:
            return drop(desk, shown, desk.lines.usable), decision


def _with_tool_compaction(desk: Desk) -> gather.State:
    """The state, after the compaction that the model itself asked for: it waits for the result of that call (SPEC F12)."""
    state = desk.state
    live = state.live
    if (
        live is not None
        and live.reason == types.Reason.TOOL
        and state.limits.max_wait_s > 0
        and jobs.may_call(state)
    ):
        with desk.waiting():
            compact.wait(live, desk.wait_left_s)
        state = desk.state = gather.state(state.session, state.limits.max_tokens)
    return state


# --- apply


def store(desk: Desk, shown: Shown, *, deferred: bool = False, rung: str | None = None) -> Built:
    """Validates, and records the turn. An invalid request is never sent (SPEC F7)."""
    state = desk.state
    shown = _valid(desk, shown)
    body = shown.request.body()
    elements = shown.request.elements()
    last, turn = state.last, state.open
    changed = last is not None and chain(elements[: last.elements]) != last.elements_digest
    values: dict[str, object] = {
        "frame": frames.stored(state.session, desk.frame_body, last),
        "compaction_id": shown.view.compaction, "kept_from": shown.view.kept_from, "first_seq": shown.view.first_seq,
        "args_cut_before": shown.view.args_cut_before, "block_limit": shown.view.block_limit, "thinking_stripped_to": shown.view.thinking_cut_before or None, "memories": [list(m) for m in shown.view.memories],
        "sent_digest": thinking.sent_digest(shown.request), "last_seq": shown.view.last_seq,
        "max_tokens": shown.request.max_tokens, "digest": types.digest_of(body), "elements": len(elements),
        "elements_digest": chain(elements), "estimated_tokens": shown.tokens, "input_tokens": shown.size,
        "counted_tokens": shown.size if shown.source == "provider" else None,
    }  # fmt: skip
    if rung is not None:
        values["rung"] = rung
    if turn is None:
        values |= {
            "deferred": deferred,
            "adopted": shown.view.compaction is not None
            and (last is None or str(last.compaction_id) != shown.view.compaction),
        }
        turn = Turn(session=state.session, number=last.number + 1 if last else 1, **values)
        try:
            with transaction.atomic():
                turn.save(force_insert=True)
        except (
            IntegrityError
        ):  # another build opened this turn meanwhile: it is that turn's request that counts
            return build(state.session, max_tokens=state.limits.max_tokens)
    else:
        if shown.view.compaction and str(turn.compaction_id) != shown.view.compaction:
            values["adopted"] = True
        Turn.objects.filter(pk=turn.pk, status=Turn.Status.OPEN).update(**values)
        for name, value in values.items():
            setattr(turn, name, value)
    used = desk.compaction(shown.view)
    return Built(turn, state, shown, desk.lines, body, changed, desk.waited_s, used)


def _valid(desk: Desk, shown: Shown) -> Shown:
    faults = validator.violations(shown.request)
    if not faults:
        return shown
    log.error(
        "a built request broke rules: session %s, compaction %s: %s",
        desk.session.pk,
        shown.view.compaction,
        "; ".join(faults[:3]),
    )
    jobs.reject(shown.view.compaction)
    messages = desk.messages(shown.view.first_seq)
    place = cut.drop(messages, 0)
    plain = replace(
        shown.view, first_seq=messages[place].seq if place else shown.view.first_seq, block_limit=0
    )
    shown = desk.show(plain)
    if faults := validator.violations(shown.request):
        raise InvalidRequest("hango could not build a valid request: " + "; ".join(faults[:3]))
    return shown


def chain(elements: Sequence[str]) -> str:
    running = hashlib.sha256()
    for element in elements:
        running.update(element.encode("utf-8", "surrogatepass") + b"\n")
    return running.hexdigest()
