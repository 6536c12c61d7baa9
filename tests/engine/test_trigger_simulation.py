"""Sessions of 300 turns, driven through the engine's decisions as a build drives them, with plain values.

Every window and fixed part, slow to huge growth, summaries at once, late, failing or never: nothing rows in a loop,
nothing is dropped from a request that fits, and whatever can fit does. A message weighs what it says it weighs; the
model, the clock and the records are a few lines each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from compaction.engine import cut, trigger
from compaction.engine.trigger import Action, Limits, Lines
from compaction.engine.truncate import MIN_BLOCK_LIMIT
from compaction.engine.types import Block, Message, View

WINDOWS = [8_000, 24_000, 200_000, 1_000_000]
FIXED = [0.05, 0.30, 0.60, 0.70, 0.90]
GROWTH = {"small": 0.006, "fast": 0.05, "huge": 0.2, "enormous": 0.9}  # of the room, a turn
TURNS = 300
TURN_S = 10.0
NOTE = 40  # tokens of a size note, or of the words around what hango itself says
PREVIEW = 60 + NOTE


@dataclass(frozen=True)
class Model:
    """Who writes the summaries. `takes_s` None: a call that never comes back."""

    takes_s: float | None = 1.0
    fails: bool = False


@dataclass(frozen=True)
class Case:
    model: Model
    precompute: float | None = 0.75
    max_wait_s: float = 0.0


CASES = {
    "at once": Case(Model(1.0)),
    "late": Case(Model(45.0)),
    "late, and builds wait": Case(Model(45.0), max_wait_s=20.0),
    "failing": Case(Model(1.0, fails=True), max_wait_s=20.0),
    "hanging": Case(Model(None)),
    "hanging, and builds wait": Case(Model(None), max_wait_s=20.0),
    "only when due": Case(Model(15.0), precompute=None, max_wait_s=20.0),
    "only when due, without waiting": Case(Model(15.0), precompute=None),
    "only when due, failing": Case(Model(1.0, fails=True), precompute=None, max_wait_s=20.0),
}


@dataclass
class Job:
    """A live job; `kept_from` is chosen when the model is asked."""

    keep: int
    size: int
    ready_at: float | None
    fails: bool


@dataclass(frozen=True)
class Summary:
    """A compaction that is ready. `forced`: shown by the next build whatever the size."""

    name: str
    kept_from: int
    head: int
    plain: bool = False
    forced: bool = False


@dataclass
class Turn:
    """What one turn did."""

    built_of: int  # messages
    steps: list[Action] = field(default_factory=list)
    size: int = 0
    adopted: bool = False
    rewritten: bool = False
    too_large: bool = False  # under the inherited view
    kept_from: int = 0
    dropped: int = 0
    dropped_fitting: bool = False
    fits: bool = True
    smallest: int = 0


@dataclass
class Failed:
    size: int
    again_at: float


@dataclass
class Session:
    """The records of one session, and the flows of a build as `outgoing`, `desk`, `jobs` and `compact` have them."""

    limits: Limits
    fixed: int
    model: Model
    messages: list[Message] = field(default_factory=list)
    before: list[int] = field(default_factory=lambda: [0])  # weight of the messages before each position
    cut_before: list[int] = field(default_factory=lambda: [0])  # the same with arguments and results cut
    view: View = field(default_factory=View)
    ready: list[Summary] = field(default_factory=list)
    job: Job | None = None
    failed: Failed | None = None
    now: float = 0.0
    growth: float = 0.0
    turns: list[Turn] = field(default_factory=list)

    # --- transcript

    def append(self, role: str, tokens: int, kind: str, call: str = "") -> None:
        data = {
            "text": {"type": "text", "text": "words"},
            "call": {"type": "tool_use", "id": call, "name": "bash", "input": {}},
            "result": {"type": "tool_result", "tool_use_id": call},
        }[kind]
        message = Message(len(self.messages), role, (Block("", data),), tokens)  # type: ignore[arg-type]
        self.messages.append(message)
        self.before.append(self.before[-1] + tokens)
        self.cut_before.append(
            self.cut_before[-1] + self.weight(message, View(args_cut_before=message.seq + 1))
        )

    @property
    def through(self) -> int:
        return self.before[-1]

    @property
    def lines(self) -> Lines:
        return trigger.lines(self.limits, self.fixed, growth=self.growth, summary_s=self.model.takes_s or 0.0)

    # --- what a view weighs

    def weight(self, message: Message, view: View) -> int:
        tokens = message.tokens
        if view.block_limit and tokens > view.block_limit + NOTE:
            tokens = view.block_limit + NOTE
        old_tool = message.seq < view.args_cut_before and not message.asks
        return min(tokens, PREVIEW) if old_tool and message.tokens > self.limits.arg_limit else tokens

    def head(self, view: View) -> int:
        summary = next((s.head for s in self.ready if s.name == view.compaction), 0)
        if view.block_limit and summary > view.block_limit + NOTE:
            summary = view.block_limit + NOTE
        if view.first_seq <= view.kept_from:
            return summary
        asked = self.asked_before(view.first_seq, view.kept_from)
        if asked and view.block_limit and asked > view.block_limit + NOTE:
            asked = view.block_limit + NOTE
        return summary + asked + NOTE

    def asked_before(self, position: int, first: int = 0) -> int:
        """Weight of the words that the message at `position` goes on from."""
        if self.messages[position].asks:
            return 0
        asks = (m.tokens for m in reversed(self.messages[first:position]) if m.asks)
        return next(asks, 0)

    def size(self, view: View) -> int:
        start = max(view.first_seq, view.kept_from)
        whole = max(start, view.args_cut_before)
        if view.block_limit:
            shown = sum(self.weight(m, view) for m in self.messages[start:])
        else:
            shown = self.through - self.before[whole] + self.cut_before[whole] - self.cut_before[start]
        return self.fixed + self.head(view) + shown

    # --- records

    @property
    def candidate(self) -> Summary | None:
        return max(self.ready, key=lambda s: (s.kept_from, not s.plain), default=None)

    def due(self, size: int, at: Lines, kept_from: int) -> bool:
        base = self.candidate
        covered = base.kept_from if base and base.kept_from > kept_from else kept_from
        if not trigger.worthwhile(self.through - self.before[covered] - at.snapshot_keep, at):
            return False
        if self.failed is None:
            return True
        return self.now >= self.failed.again_at and size >= self.failed.size + at.gain

    def after_swap(self, ready: Summary) -> int:
        return self.fixed + ready.head + self.through - self.before[ready.kept_from]

    def request(self, keep: int, size: int) -> None:
        if self.job is None:
            takes = self.model.takes_s
            self.job = Job(keep, size, None if takes is None else self.now + takes, self.model.fails)

    def ring_if_due(self) -> None:
        at, view = self.lines, self.view
        if at.precompute is None or self.job is not None:
            return
        size = self.size(view)
        if size <= at.precompute:
            return
        ready = self.candidate
        # What is shown now says nothing of it: the part that a swap would evict may have been cut since.
        if ready is not None and ready.kept_from > view.kept_from and self.after_swap(ready) <= at.clear:
            return
        if self.due(size, at, view.kept_from):
            self.request(at.snapshot_keep, size)

    def work(self) -> None:
        """What the worker does when the model has answered."""
        job = self.job
        if job is None or job.ready_at is None or job.ready_at > self.now:
            return
        self.job = None
        place = self.chosen(job.keep, job.size, forced=False)
        if place is None:
            self.failed = Failed(job.size, 0.0)
        elif job.fails:
            self.failed = Failed(job.size, self.now + 10.0)
        else:
            self.failed = None
            self.record(place)

    def chosen(self, keep: int, size: int, *, forced: bool) -> int | None:
        at = self.lines
        base = max((s for s in self.ready if forced or not s.plain), key=lambda s: s.kept_from, default=None)
        start = base.kept_from if base else 0
        summary = trigger.expected_summary(self.through - self.before[start], at)
        place = cut.choose(
            self.messages[start:],
            keep=min(keep, at.keep),
            enough=max(0, size - at.clear + summary),
            worth=summary if forced else summary + at.gain,
            keep_messages=self.limits.keep_messages,
        )
        return None if place is None else start + place

    def record(self, place: int, *, plain: bool = False) -> None:
        at = self.lines
        evicted = self.before[place]
        head = min(
            at.head, trigger.expected_summary(evicted, at) + at.ledger + self.asked_before(place) + NOTE
        )
        self.ready.append(Summary(f"c{len(self.ready)}", place, head, plain, forced=plain))

    def wait(self, keep: int, size: int) -> None:
        self.request(keep, size)
        assert self.job is not None
        left = self.limits.max_wait_s if self.job.ready_at is None else max(0.0, self.job.ready_at - self.now)
        self.now += min(left, self.limits.max_wait_s)
        self.work()

    # --- smaller views

    def newer(self, view: View) -> Summary | None:
        found = self.candidate
        if found is None or found.name == view.compaction:
            return None
        further = found.kept_from > view.kept_from
        return found if further or (found.kept_from == view.kept_from and found.forced) else None

    def old_before(self, first: int) -> int:
        shown = self.messages[first:]
        return first + cut.keep_line(shown, self.lines.keep, self.limits.keep_messages)

    def truncated(self, view: View) -> View | None:
        before = self.old_before(view.first_seq)
        if before <= view.args_cut_before:
            return None
        smaller = replace(view, args_cut_before=before)
        return smaller if self.size(smaller) < self.size(view) else None

    def swapped(self, view: View, ready: Summary) -> View:
        first = max(ready.kept_from, view.first_seq)
        before = max(view.args_cut_before, self.old_before(first))
        return View(ready.name, ready.kept_from, first, before, 0, view.last_seq)

    def drop(self, view: View, target: int) -> View:
        for _ in range(4):
            size = self.size(view)
            place = cut.drop(self.messages[view.first_seq :], size - target + 1)
            if size <= target or place is None or place == 0:
                break
            view = replace(view, first_seq=view.first_seq + place)
        if self.size(view) > target and (smaller := self.truncated(view)):
            view = smaller
        if self.size(view) > target:
            low, high = MIN_BLOCK_LIMIT, max(m.tokens for m in self.messages) + MIN_BLOCK_LIMIT
            while low < high:
                middle = (low + high + 1) // 2
                enough = self.size(replace(view, block_limit=middle)) <= target
                low, high = (middle, high) if enough else (low, middle - 1)
            view = replace(view, block_limit=low)
        return view

    # --- a build

    def build(self) -> Turn:
        view = replace(self.view, last_seq=len(self.messages) - 1)
        inherited = view
        turn = Turn(len(self.messages))
        candidate = self.newer(view)
        may_wait, may_extract = self.limits.max_wait_s > 0, True
        at = self.lines
        turn.too_large = self.size(view) > at.usable
        while True:
            size = self.size(view)
            over = size > at.trigger
            truncated = self.truncated(view) if over else None
            forced = candidate is not None and candidate.forced
            swapped = self.swapped(view, candidate) if candidate and (over or forced) else None
            decision = trigger.decide(
                trigger.Situation(
                    size=size,
                    lines=at,
                    background=self.limits.precompute_frac is not None,
                    truncated=self.size(truncated) if truncated else None,
                    swapped=self.size(swapped) if swapped else None,
                    forced=forced,
                    live=self.job is not None,
                    may_start=over and self.due(size, at, view.kept_from),
                    may_wait=may_wait,
                    may_extract=may_extract and over,
                )
            )
            turn.steps.append(decision.action)
            assert len(turn.steps) <= 8, turn.steps
            if decision.start:
                self.request(at.keep, size)
            if decision.action is Action.SEND:
                break
            if decision.action is Action.TRUNCATE and truncated:
                view = truncated
            elif decision.action is Action.SWAP and swapped:
                view, candidate = swapped, None
            elif decision.action is Action.COMPACT:
                may_wait = False
                self.wait(at.keep, size)
                candidate = self.newer(view)
            elif decision.action is Action.EXTRACT:
                may_extract = False
                if (place := self.chosen(at.keep, size, forced=True)) is not None:
                    self.record(place, plain=True)
                    candidate = self.candidate
            else:
                assert decision.action is Action.DROP
                kept = view
                view = self.drop(view, at.usable)
                turn.dropped = view.first_seq - max(kept.first_seq, kept.kept_from)
                turn.dropped_fitting = size <= at.usable
                break
        turn.size, turn.adopted = self.size(view), view.compaction != inherited.compaction
        turn.rewritten, turn.kept_from = view != inherited, view.kept_from
        turn.fits = turn.size <= at.usable
        turn.smallest = 0 if turn.fits else self.size(self.drop(view, 0))
        self.view = view
        self.turns.append(turn)
        return turn


def play(window: int, share: float, growth: str, case: Case) -> Session:
    """A session with this window and fixed part, whose turns add so much of what is left of the window."""
    limits = Limits(window, window // 16, precompute_frac=case.precompute, max_wait_s=case.max_wait_s)
    session = Session(limits, int(window * share), case.model)
    room = trigger.usable(limits, session.fixed) - session.fixed
    run(session, max(20, int(GROWTH[growth] * room)), random.Random(7))
    return session


def run(session: Session, mean: int, rng: random.Random) -> None:
    """300 turns: long tool loops under one request of the user, a new request now and then, some of them large."""
    session.append("user", 20 + mean // 4, "text")
    for number in range(TURNS):
        session.build()
        added = rng.randint(mean // 2, mean * 3 // 2)
        session.append("assistant", 10 + added // 10, "call", f"t{number}")
        session.append("user", 10 + added * 9 // 10, "result", f"t{number}")
        if rng.random() < 0.04:
            session.append("assistant", 30, "text")
            session.append("user", rng.choice([20, 60, mean]), "text")
        session.growth = added / TURN_S
        session.ring_if_due()
        session.now += TURN_S
        session.work()


@pytest.mark.parametrize("growth", GROWTH)
@pytest.mark.parametrize("share", FIXED)
@pytest.mark.parametrize("window", WINDOWS)
def test_no_session_rows_in_a_loop_or_drops_what_fits_and_whatever_can_fit_fits(
    window: int, share: float, growth: str
) -> None:
    for name, case in CASES.items():
        session = play(window, share, growth, case)
        at = session.lines
        where = f"{name}: "
        for turn in session.turns:
            assert not turn.dropped_fitting, where + "dropped from a request that fits"
            assert turn.fits or turn.smallest > at.usable, where + "a request that can fit does not"
        rewritten = [turn for turn in session.turns if turn.rewritten]
        for one, two in pairwise(rewritten):
            came = session.before[two.built_of] - session.before[one.built_of]
            made_to_fit = one.too_large and one.size > at.clear  # the one that clears may follow at once
            assert came >= at.gain or made_to_fit, (
                f"{where}the cache was rewritten twice, with {came} tokens between"
            )
        for old, new in pairwise(session.ready):
            assert session.before[new.kept_from] - session.before[old.kept_from] >= at.gain or old.plain, (
                f"{where}{new} was not worth its summary"
            )
        adopted = sum(turn.adopted for turn in session.turns)
        assert adopted <= 2 + session.through / (2 * at.gain), (
            where + "more compactions than the growth explains"
        )


@pytest.mark.parametrize("growth", ["small", "fast"])
@pytest.mark.parametrize("share", FIXED)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_summary_written_ahead_is_never_waited_for(window: int, share: float, growth: str) -> None:
    session = play(window, share, growth, replace(CASES["at once"], max_wait_s=20.0))
    assert {step for turn in session.turns for step in turn.steps} <= {
        Action.SEND,
        Action.TRUNCATE,
        Action.SWAP,
    }
    assert all(turn.dropped == 0 for turn in session.turns)
    assert session.now == TURNS * TURN_S


def test_a_fixed_part_over_the_asked_for_trigger_still_runs() -> None:
    limits = Limits(100_000, 4_000, max_trigger_tokens=20_000)
    session = Session(limits, 40_000, Model(1.0))
    run(session, 2_000, random.Random(1))
    assert session.lines.trigger > 40_000
    assert all(turn.fits for turn in session.turns)
    assert 0 < sum(turn.adopted for turn in session.turns) < TURNS / 3


def test_a_model_with_an_unknown_window_keeps_its_last_messages() -> None:
    limits = Limits(200_000, 8_192, counts_output=False, keep_messages=6, arg_limit=10**6)
    session = Session(limits, 10_000, Model(1.0))
    run(session, 3_000, random.Random(1))
    assert all(turn.fits for turn in session.turns)
    assert any(turn.adopted for turn in session.turns)
    assert all(turn.built_of - turn.kept_from >= 6 for turn in session.turns if turn.adopted)
