"""What a view shows, and the smaller views that a build may take instead: cut, swapped, dropped, previewed.

The means of flows 2 and 4. Nothing here is stored; a view is tried by assembling what it would show.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from compaction import budget, frames, gather
from compaction.engine import assemble, briefing, cut, tokens, trigger, truncate, types
from compaction.engine.errors import CannotFit
from compaction.models import Compaction, Turn
from sessions_app import redaction
from sessions_app.models import Session

EXTRACT_S = 0.5  # longest that an extract takes


@dataclass(frozen=True, slots=True)
class Shown:
    """A view, the request it gives, and that request's size in the model's tokens."""

    view: types.View
    request: types.OutgoingRequest
    tokens: int  # base units
    size: int
    source: types.Source


@dataclass(slots=True)
class Desk:
    """What one build works with: the gathered state, the frame and the messages read so far."""

    state: gather.State
    frame_body: str
    frame: types.Frame
    lines: trigger.Lines
    pool: list[types.Message] = field(default_factory=list)
    heads: dict[types.View, types.Head] = field(default_factory=dict)
    memories: dict[str, tuple[types.Block, ...]] = field(default_factory=dict)  # by frame digest
    waited_s: float = 0.0
    counted: tuple[types.View, tokens.Anchor] | None = None  # a view of this build that the provider counted

    @property
    def max_tokens(self) -> int:
        """Tokens of the answer, as sent."""
        return trigger.output_room(self.state.limits, self.lines.fixed)

    @property
    def wait_left_s(self) -> float:
        """Seconds that this build may still wait for a summary, less what an extract takes if none comes: together they
        keep to `max_wait_s`."""
        left = self.state.limits.max_wait_s - self.waited_s
        return max(0.0, left - min(EXTRACT_S, 0.1 * left))

    @property
    def session(self) -> Session:
        return self.state.session

    def messages(self, first: int) -> list[types.Message]:
        if not self.pool or self.pool[0].seq > first:
            self.pool = gather.messages(self.session, first, self.state.last_seq)
        return [m for m in self.pool if m.seq >= first]

    def show(self, view: types.View) -> Shown:
        view = self._placed(view)
        assembled = render(
            self.session,
            self.frame,
            view,
            self.messages(view.first_seq),
            self.head(view),
            self.max_tokens,
            self.memories,
        )
        return self.sized(Shown(assembled.view, assembled.request, assembled.tokens, 0, "estimate"))

    def _placed(self, view: types.View) -> types.View:
        """The view with memory within its messages: where it stands already, or in the newest user message when it is new
        or was evicted. Memory that was taken back is shown nowhere, whatever that costs the cache."""
        if self.frame.memory_placement == "system" or not self.frame.memory:
            return replace(view, memories=())
        kept = tuple((seq, name) for seq, name in view.memories if seq >= view.first_seq)
        own = types.digest_of(self.frame_body)
        self.memories.setdefault(own, self.frame.memory)
        if missing := [name for _, name in kept if name not in self.memories]:
            self.memories |= frames.memory_blocks(self.session, missing)
        if not kept or self.memories[kept[-1][1]] != self.frame.memory:
            shown = [
                m.seq for m in self.messages(view.first_seq) if m.role == "user" and m.seq <= view.last_seq
            ]
            kept = (*(k for k in kept if k[0] != shown[-1]), (shown[-1], own)) if shown else kept
        return replace(view, memories=kept)

    def sized(self, shown: Shown) -> Shown:
        """The same with its size: by the provider's count where there is one, else by the last usage or the estimate."""
        if self.counted is None:
            size, source = budget.measure(self.state, shown.tokens, shown.view)
            return replace(shown, size=size, source=source)
        view, anchor = self.counted
        if view == shown.view and shown.tokens == anchor.estimated:
            return replace(shown, size=anchor.reported, source="provider")
        return replace(shown, size=max(1, math.ceil(shown.tokens * self.factor)), source="estimate")

    def head(self, view: types.View) -> types.Head:
        key = replace(view, args_cut_before=0, thinking_cut_before=0, memories=(), last_seq=0)
        if key not in self.heads:
            self.heads[key] = head(self.session, view, self.compaction(view))
        return self.heads[key]

    def compaction(self, view: types.View) -> Compaction | None:
        """The compaction that a view stands on; most often it was read with the state."""
        if view.compaction is None:
            return None
        known = (self.state.last.compaction if self.state.last else None, self.state.candidate)
        found = next((c for c in known if c is not None and str(c.pk) == view.compaction), None)
        return found or self.session.compactions_made.get(pk=view.compaction)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the time that this build spends on a compaction."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.waited_s += time.monotonic() - began

    @property
    def factor(self) -> float:
        """The model's tokens per base unit."""
        if self.counted is None:
            return budget.factor(self.state)
        # What is light in a counted request may be what the other view leaves out: there a count only raises the estimate.
        anchor = self.counted[1]
        return max(anchor.reported / anchor.estimated, self.state.profile.estimate_factor)


def open_desk(state: gather.State, memory: str | None) -> Desk:
    last = state.last
    if memory is None:
        memory = frames.memory_of(last.frame.body) if last else ""
    body = frames.body_of(state.session, state.profile, state.limits, memory)
    frame = frames.read(body)
    desk = Desk(state, body, frame, trigger.lines(state.limits, 0))
    fixed = tokens.fixed_tokens(state.estimator, frame.system, frame.tools, frame.memory)
    desk.lines = budget.lines(state, fixed)
    return desk


# --- smaller views


def newer(desk: Desk, candidate: Compaction | None, view: types.View) -> Compaction | None:
    """The candidate, if the view does not stand on it or on a better one yet."""
    if candidate is None or str(candidate.pk) == view.compaction:
        return None
    if (candidate.kept_from or 0) > view.kept_from:
        return candidate
    same = candidate.kept_from == view.kept_from
    return candidate if same and shown_at_once(desk, candidate, view) else None


def shown_at_once(desk: Desk, candidate: Compaction, view: types.View) -> bool:
    """Whether a ready compaction waits for no trigger: it was asked for, or a model wrote what an extract had to stand for
    while there was no model (an extract loses more than the cache rewrite costs)."""
    used = desk.compaction(view)
    extract = used is not None and used.kind == Compaction.Kind.EXTRACTIVE
    return candidate.apply == Compaction.Apply.NEXT_BUILD or (
        extract and candidate.kind == Compaction.Kind.MODEL
    )


def _old_before(desk: Desk, first: int) -> int:
    """The seq before which arguments and results are old: everything but the newest `keep` tokens and, however large, the
    last round: its results have not been answered yet."""
    messages = desk.messages(first)
    line = cut.keep_line(messages, int(desk.lines.keep / desk.factor), desk.state.limits.keep_messages)
    return messages[min(line, cut.latest(messages))].seq


def truncated(desk: Desk, shown: Shown) -> Shown | None:
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
    return desk.show(
        replace(
            shown.view,
            compaction=str(candidate.pk),
            kept_from=kept_from,
            first_seq=first,
            args_cut_before=before,
            block_limit=0,
        )
    )


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
    if shown.size > target and (smaller := truncated(desk, shown)):
        shown, view = smaller, smaller.view
    for _ in range(3):
        if shown.size <= target:
            return shown
        excess = int((shown.size - target) / desk.factor) + 1
        plain = desk.show(replace(view, block_limit=0)) if view.block_limit else shown
        texts = [types.Message(0, "user", desk.head(plain.view).blocks), *desk.messages(view.first_seq)]
        limit = truncate.block_limit(
            texts, excess + int((plain.size - shown.size) / desk.factor), desk.state.estimator
        )
        view = replace(view, block_limit=limit)
        shown = desk.show(view)
    if shown.size > target:  # at the very last the results that are to be answered, too
        everything = desk.show(replace(view, args_cut_before=view.last_seq + 1))
        shown = min(shown, everything, key=lambda one: one.size)
    if shown.size > target and not best_effort:
        raise CannotFit(
            f"system, tools and memory have {desk.lines.fixed} tokens, the smallest tail {max(0, shown.size - desk.lines.fixed)}; "
            f"together {shown.size - target} more than the {target} that fit",
            fixed_tokens=desk.lines.fixed, input_tokens=shown.size, limit=target,
        )  # fmt: skip
    return shown


# --- shared with the past


def head(session: Session, view: types.View, used: Compaction | None) -> types.Head:
    """What stands before the shown messages: the compaction's summary message, and what was dropped since."""
    text, dropped = used.head if used else "", ""
    if view.first_seq > view.kept_from:
        pins, asked = gather.carried(session, view.kept_from, view.first_seq)
        if view.block_limit:
            estimator = tokens.estimator(session.estimator)
            pins, asked = (
                [_previewed(t, view, estimator, session) for t in pins],
                asked and _previewed(asked, view, estimator, session),
            )
        dropped = briefing.dropped_note(history_path=session.history_path, pinned=pins, last_request=asked)
    return types.Head(text, dropped)


def prefix(turn: Turn, before: int) -> tuple[types.OutgoingRequest, int]:
    """(what a turn sent of the messages before `before`, as the provider's cache holds it, its base units)."""
    view = replace(gather.view_of(turn), last_seq=before - 1)
    memories = frames.memory_blocks(turn.session, [name for _, name in view.memories])
    frame = frames.read(turn.frame.body)
    messages = gather.messages(turn.session, view.first_seq, view.last_seq)
    made = render(
        turn.session,
        frame,
        view,
        messages,
        head(turn.session, view, turn.compaction),
        turn.max_tokens,
        memories,
    )
    return made.request, made.tokens


def _previewed(text: str, view: types.View, estimator: tokens.Estimator, session: Session) -> str:
    if estimator.estimate(text) <= view.block_limit:
        return text
    return truncate.preview(text, view.block_limit, estimator, session.history_path)


def render(
    session: Session,
    frame: types.Frame,
    view: types.View,
    messages: Sequence[types.Message],
    top: types.Head,
    max_tokens: int,
    memories: Mapping[str, tuple[types.Block, ...]],
) -> assemble.Assembled:
    return assemble.assemble(
        frame,
        view,
        top,
        messages,
        max_tokens=max_tokens,
        estimator=tokens.estimator(session.estimator),
        where=session.history_path,
        memories=memories,
        without=redaction.of(frame.redact),
    )


def rebuild(turn: Turn) -> str:
    """The text of the request as the turn last sent it, from the records (API.md, `turns/{n}/request/`)."""
    return prefix(turn, turn.last_seq + 1)[0].body()
