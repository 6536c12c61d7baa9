"""FLOW 2: build the outgoing request.

gather: the last turn's view, what is known of the session, the messages that are shown → decide: `trigger.decide` until
there is a request to send → apply: store the turn. The cost is in what is shown, never in the age of the session.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.db import IntegrityError, transaction

from compaction import budget, compact, gather, jobs
from compaction.engine import assemble, cut, repair, tokens, trigger, truncate, types, validator
from compaction.engine.errors import CannotFit, InvalidRequest, NothingToAnswer, NothingToSend, ResultsMissing
from compaction.engine.trigger import Action
from compaction.models import Compaction, Turn
from sessions_app.models import Session

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """A view, the request it gives, and that request's size in the model's tokens."""

    view: types.View
    request: types.OutgoingRequest
    tokens: int  # base units
    size: int
    source: str


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


@dataclass(slots=True)
class Desk:
    """What one build works with: the gathered state, the frame and the messages read so far."""

    state: gather.State
    frame_body: str
    frame: types.Frame
    lines: trigger.Lines
    pool: list[types.Message] = field(default_factory=list)
    heads: dict[tuple[str | None, int, int], types.Head] = field(default_factory=dict)
    waited_s: float = 0.0

    @property
    def max_tokens(self) -> int:
        """Tokens of the answer, as sent."""
        return trigger.output_room(self.state.limits, self.lines.fixed)

    @property
    def session(self) -> Session:
        return self.state.session

    def messages(self, first: int) -> list[types.Message]:
        if not self.pool or self.pool[0].seq > first:
            self.pool = gather.messages(self.session, first, self.state.last_seq)
        return [m for m in self.pool if m.seq >= first]

    def show(self, view: types.View) -> Shown:
        assembled = render(self.session, self.frame, view, self.messages(view.first_seq), self.head(view), self.max_tokens)
        size, source = budget.measure(self.state, assembled.tokens, view)
        return Shown(view, assembled.request, assembled.tokens, size, source)

    def head(self, view: types.View) -> types.Head:
        key = (view.compaction, view.kept_from, view.first_seq)
        if key not in self.heads:
            self.heads[key] = head(self.session, view)
        return self.heads[key]

    def note_attempt(self, turn: Turn, error: Mapping[str, object] | None) -> None:
        """Records on the turn that what it last sent was refused."""
        known = {k: str(error[k])[:100] for k in ("status", "type", "code") if k in error} if error else {}
        turn.attempts = [*turn.attempts, {"rung": turn.rung or "first", "outcome": "overflow", "digest": turn.digest, "input_tokens": turn.input_tokens, **known}]
        Turn.objects.filter(pk=turn.pk).update(attempts=turn.attempts)

    @property
    def factor(self) -> float:
        """The model's tokens per base unit."""
        return budget.factor(self.state)


def build(session: Session, *, memory: str | None = None, max_tokens: int | None = None) -> Built:
    """The next outgoing request of a session, and its turn (opened, or gone on with).

    `memory`: JSON text of memory blocks, '' for none, None for the last turn's. Raises `NothingToSend`,
    `ResultsMissing`, `NothingToAnswer`, `CannotFit`; the session stays usable after each.
    """
    state = gather.state(session, max_tokens)
    if state.last_seq < 0:
        raise NothingToSend
    desk = open_desk(state, memory)
    view = budget.view_of(state.open) if state.open else state.view()
    view = replace(view, last_seq=state.last_seq)
    _check_end(session, desk.messages(view.first_seq))
    shown = desk.show(view)
    decision = trigger.Decision(Action.SEND)
    if state.open is None:
        shown, decision = settle(desk, shown)
    elif shown.size > desk.lines.usable:
        shown = drop(desk, shown, desk.lines.usable)
    return store(desk, shown, deferred=decision.deferred)


def open_desk(state: gather.State, memory: str | None) -> Desk:
    last = state.last
    if memory is None:
        memory = gather.memory_of(last.frame.body) if last else ""
    body = gather.frame_body(state.session, state.profile, state.limits, memory)
    frame = gather.frame(body)
    desk = Desk(state, body, frame, trigger.lines(state.limits, 0))
    fixed = tokens.fixed_tokens(state.estimator, frame.system, frame.tools, frame.memory)
    desk.lines = budget.lines(state, fixed)
    return desk


def _check_end(session: Session, messages: Sequence[types.Message]) -> None:
    end = repair.ending(messages, compact_tool=session.compact_tool)
    if end == "calls":
        raise ResultsMissing
    if end == "answer" and session.strict:
        raise NothingToAnswer


# --- decide


def settle(desk: Desk, shown: Shown) -> tuple[Shown, trigger.Decision]:
    """Asks `trigger.decide` until it says send; each means is used up by being used, so the loop ends."""
    state = desk.state
    candidate = newer(state.candidate, shown.view)
    may_wait = state.limits.max_wait_s > 0
    may_extract = True
    while True:
        over = shown.size > desk.lines.trigger
        truncated = _truncated(desk, shown) if over else None
        forced = candidate is not None and candidate.apply == Compaction.Apply.NEXT_BUILD
        swapped = swap_in(desk, shown, candidate) if candidate and (over or forced) else None
        due = over and jobs.due(state, shown.size, desk.lines, kept_from=shown.view.kept_from)
        decision = trigger.decide(
            trigger.Situation(
                size=shown.size,
                lines=desk.lines,
                background=state.limits.precompute_frac is not None,
                truncated=truncated.size if truncated else None,
                swapped=swapped.size if swapped else None,
                forced=forced,
                live=state.live is not None,
                may_start=due,
                may_wait=may_wait and jobs.may_call(state),
                may_extract=may_extract and over,
            )
        )
        if decision.action is Action.SEND:
            if decision.start:
                jobs.request(state, reason=types.Reason.THRESHOLD, size=shown.size, keep=desk.lines.keep)
            return shown, decision
        if decision.start:
            jobs.request(state, reason=types.Reason.THRESHOLD, size=shown.size, keep=desk.lines.keep)
        if decision.action is Action.TRUNCATE and truncated:
            shown = truncated
        elif decision.action is Action.SWAP and swapped:
            shown, candidate = swapped, None
        elif decision.action is Action.COMPACT:
            may_wait = False
            began = time.monotonic()
            compact.now(state, size=shown.size, keep=desk.lines.keep, deadline_s=state.limits.max_wait_s)
            desk.waited_s += time.monotonic() - began
            state = desk.state = gather.state(state.session, state.limits.max_tokens)
            candidate = newer(state.candidate, shown.view)
        elif decision.action is Action.EXTRACT:
            may_extract = False
            candidate = compact.extract(state, desk.lines, shown.size, types.Reason.THRESHOLD) or candidate
        else:
            return drop(desk, shown, desk.lines.usable), decision


def newer(candidate: Compaction | None, view: types.View) -> Compaction | None:
    """The candidate, if the view does not stand on it or on a better one yet."""
    if candidate is None or str(candidate.pk) == view.compaction:
        return None
    further = (candidate.kept_from or 0) > view.kept_from
    replaces = candidate.kept_from == view.kept_from and candidate.apply == Compaction.Apply.NEXT_BUILD
    return candidate if further or replaces else None


def _old_before(desk: Desk, first: int) -> int:
    """The seq before which arguments and results are old: everything but the newest `keep` tokens."""
    messages = desk.messages(first)
    line = cut.keep_line(messages, int(desk.lines.keep / desk.factor), desk.state.limits.keep_messages)
    return messages[line].seq if line < len(messages) else desk.state.last_seq + 1


def _truncated(desk: Desk, shown: Shown) -> Shown | None:
    """The view with old tool arguments and results cut, if that wins anything."""
    before = _old_before(desk, shown.view.first_seq)
    if before <= shown.view.args_cut_before:
        return None
    smaller = desk.show(replace(shown.view, args_cut_before=before))
    return smaller if smaller.size < shown.size else None


def swap_in(desk: Desk, shown: Shown, candidate: Compaction) -> Shown:
    """The view with the candidate adopted. What it keeps beyond the newest `keep` has its old arguments cut in the same
    step, since the cache is rewritten anyway."""
    kept_from = candidate.kept_from or 0
    first = max(kept_from, shown.view.first_seq)
    before = max(shown.view.args_cut_before, _old_before(desk, first))
    return desk.show(types.View(str(candidate.pk), kept_from, first, before, 0, shown.view.last_seq))


def drop(desk: Desk, shown: Shown, target: int, *, best_effort: bool = False) -> Shown:
    """Mechanical truncation down to `target` tokens: whole oldest exchanges, then whole rounds, then previews of giant
    blocks (SPEC F10). Raises `CannotFit`, unless `best_effort`: then the smallest that was reached."""
    view = shown.view
    for _ in range(4):  # each pass measures what the last one really won
        excess = int((shown.size - target) / desk.factor) + 1
        messages = desk.messages(view.first_seq)
        place = cut.drop(messages, excess)
        if shown.size <= target or place is None or messages[place].seq <= view.first_seq:
            break
        view = replace(view, first_seq=messages[place].seq)
        shown = desk.show(view)
    if shown.size > target and (smaller := _truncated(desk, shown)):
        shown, view = smaller, smaller.view
    for _ in range(3):
        if shown.size <= target:
            return shown
        excess = int((shown.size - target) / desk.factor) + 1
        plain = desk.show(replace(view, block_limit=0)) if view.block_limit else shown
        limit = truncate.block_limit(desk.messages(view.first_seq), excess + int((plain.size - shown.size) / desk.factor), desk.state.estimator)
        view = replace(view, block_limit=limit)
        shown = desk.show(view)
    if shown.size > target and not best_effort:
        raise CannotFit(
            f"system, tools and memory have {desk.lines.fixed} tokens, the smallest tail {max(0, shown.size - desk.lines.fixed)}; "
            f"together {shown.size - target} more than the {target} that fit",
            fixed_tokens=desk.lines.fixed, input_tokens=shown.size, limit=target,
        )  # fmt: skip
    return shown


# --- shared with the ladder and the past


def head(session: Session, view: types.View) -> types.Head:
    """What stands before the shown messages: the compaction's summary message, and what was dropped since."""
    summary = dropped = ""
    if view.compaction:
        summary = session.compactions_made.values_list("head", flat=True).get(pk=view.compaction)
    if view.first_seq > view.kept_from:
        pins, asked = gather.carried(session, view.kept_from, view.first_seq)
        dropped = compact.dropped_note(session, pins, asked)
    return types.Head(summary, dropped)


def render(
    session: Session, frame: types.Frame, view: types.View, messages: Sequence[types.Message], top: types.Head, max_tokens: int
) -> assemble.Assembled:
    return assemble.assemble(
        frame, view, top, messages, max_tokens=max_tokens, estimator=tokens.estimator(session.estimator), where=session.history_path
    )


def rebuild(turn: Turn) -> str:
    """The text of the request as the turn last sent it, from the records (API.md, `turns/{n}/request/`)."""
    view = budget.view_of(turn)
    messages = gather.messages(turn.session, view.first_seq, view.last_seq)
    assembled = render(turn.session, gather.frame(turn.frame.body), view, messages, head(turn.session, view), turn.max_tokens)
    return assembled.request.body()


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
        "frame": gather.stored_frame(state.session, desk.frame_body, last),
        "compaction_id": shown.view.compaction, "kept_from": shown.view.kept_from, "first_seq": shown.view.first_seq,
        "args_cut_before": shown.view.args_cut_before, "block_limit": shown.view.block_limit, "last_seq": shown.view.last_seq,
        "max_tokens": shown.request.max_tokens, "digest": types.digest_of(body), "elements": len(elements),
        "elements_digest": chain(elements), "estimated_tokens": shown.tokens, "input_tokens": shown.size,
    }  # fmt: skip
    if rung is not None:
        values["rung"] = rung
    if turn is None:
        values |= {"deferred": deferred, "adopted": shown.view.compaction is not None and (last is None or str(last.compaction_id) != shown.view.compaction)}
        turn = Turn(session=state.session, number=last.number + 1 if last else 1, **values)
        try:
            with transaction.atomic():
                turn.save(force_insert=True)
        except IntegrityError:  # another build opened this turn meanwhile: it is that turn's request that counts
            return build(state.session, max_tokens=state.limits.max_tokens)
    else:
        if shown.view.compaction and str(turn.compaction_id) != shown.view.compaction:
            values["adopted"] = True
        Turn.objects.filter(pk=turn.pk, status=Turn.Status.OPEN).update(**values)
        for name, value in values.items():
            setattr(turn, name, value)
    used = state.session.compactions_made.get(pk=shown.view.compaction) if shown.view.compaction else None
    return Built(turn, state, shown, desk.lines, body, changed, desk.waited_s, used)


def _valid(desk: Desk, shown: Shown) -> Shown:
    faults = validator.violations(shown.request)
    if not faults:
        return shown
    log.error("a built request broke rules: session %s, compaction %s: %s", desk.session.pk, shown.view.compaction, "; ".join(faults[:3]))
    jobs.reject(shown.view.compaction)
    messages = desk.messages(shown.view.first_seq)
    place = cut.drop(messages, 0)
    plain = replace(shown.view, first_seq=messages[place].seq if place else shown.view.first_seq, block_limit=0)
    shown = desk.show(plain)
    if faults := validator.violations(shown.request):
        raise InvalidRequest("hango could not build a valid request: " + "; ".join(faults[:3]))
    return shown


def chain(elements: Sequence[str]) -> str:
    running = hashlib.sha256()
    for element in elements:
        running.update(element.encode("utf-8", "surrogatepass") + b"\n")
    return running.hexdigest()
