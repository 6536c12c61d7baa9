"""The lines that a request is held against, and what is due when one is crossed (DESIGN 5), as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import trigger
from compaction.engine.trigger import Action, Decision, Limits, Lines, Situation
from compaction.engine.types import Reason

WINDOWS = [8_000, 24_000, 200_000, 1_000_000]
FIXED = [0.05, 0.30, 0.60, 0.70, 0.90]


def oracle(limits: Limits, usable: int, fixed: int, slope: float = 0.0) -> dict[str, float]:
    """The table of DESIGN 5, read anew. `slope`: growth times the time of a summary, in tokens."""
    e = float(usable)
    if limits.max_trigger_tokens:
        e = min(usable, max(limits.max_trigger_tokens / limits.trigger_frac, fixed / 0.6))
    room = e - fixed
    start = max(limits.trigger_frac * e, fixed + 0.6 * room)
    keep = min(limits.keep_frac * e, 0.25 * room)
    frac = min(limits.precompute_frac or 0.0, limits.trigger_frac - 0.05)
    precompute = max(min(max(frac * e, fixed + 0.45 * room), start - 1.5 * slope), fixed + 0.25 * room)
    return {
        "usable": usable,
        "fixed": fixed,
        "room": room,
        "trigger": start,
        "precompute": precompute,
        "keep": keep,
        "snapshot_keep": max(min(0.02 * e, 0.05 * room), keep - (start - precompute)),
        "head": 0.25 * room,
        "summary": min(limits.summary_max_tokens, 0.15 * room),
        "ledger": min(800, 0.05 * room, 0.01 * e),
        "gain": min(0.05 * e, 0.1 * room),
    }


def assert_as(lines: Lines, expected: dict[str, float]) -> None:
    for name, value in expected.items():
        assert getattr(lines, name) == pytest.approx(value, abs=1), name


# --- lines


@pytest.mark.parametrize("share", FIXED)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("counts_output", [True, False])
@pytest.mark.parametrize("slope", [0.0, 0.04, 0.2, 5.0])
def test_the_lines_follow_the_table(window: int, share: float, counts_output: bool, slope: float) -> None:
    limits = Limits(window=window, max_tokens=window // 16, counts_output=counts_output)
    fixed = int(window * share)
    sent = window // 16 if share < 0.8 else max(256, window // 32)
    usable = window - sent if counts_output else window
    lines = trigger.lines(limits, fixed, growth=slope * window / 30, summary_s=30.0)
    assert_as(lines, oracle(limits, usable, fixed, slope * window))


@pytest.mark.parametrize("share", FIXED)
@pytest.mark.parametrize("window", WINDOWS)
def test_each_line_leaves_the_next_step_something_to_win(window: int, share: float) -> None:
    at = trigger.lines(Limits(window=window, max_tokens=window // 16), int(window * share))
    assert at.precompute is not None
    assert at.fixed < at.precompute < at.trigger < at.usable
    assert at.fixed + at.head + at.keep <= at.clear + 2  # what a swap leaves clears the trigger by the gain
    assert at.keep <= 0.25 * at.room
    assert 0 < at.gain <= 0.1 * at.room + 1
    assert at.summary + at.ledger <= at.head
    assert at.snapshot_keep <= at.keep


@pytest.mark.parametrize("max_tokens", [1_000, 8_192, 64_000])
def test_an_unknown_model_triggers_at_exactly_170_000_whatever_the_answer_may_have(max_tokens: int) -> None:
    unknown = Limits(window=200_000, max_tokens=max_tokens, counts_output=False, keep_messages=6)
    for fixed in (0, 20_000, 120_000):
        assert trigger.lines(unknown, fixed).trigger == 170_000
        assert trigger.lines(unknown, fixed).usable == 200_000


@pytest.mark.parametrize(
    ("most", "fixed", "expected"),
    [
        (100_000, 10_000, 100_000),  # a window of 200,000 would trigger at 170,000
        (100_000, 0, 100_000),
        (400_000, 10_000, 170_000),  # more than the window has changes nothing
        (50_000, 60_000, 85_000),  # under the fixed part: E = 60,000 / 0.6
        (1, 60_000, 85_000),
        (None, 10_000, 170_000),
    ],
)
def test_a_session_may_ask_for_an_earlier_trigger_but_never_one_that_leaves_no_room(
    most: int | None, fixed: int, expected: int
) -> None:
    limits = Limits(window=200_000, max_tokens=8_000, counts_output=False, max_trigger_tokens=most)
    lines = trigger.lines(limits, fixed)
    assert lines.trigger == expected
    assert lines.usable == 200_000
    assert_as(lines, oracle(limits, 200_000, fixed))


def test_growth_and_slow_summaries_move_the_background_work_earlier_down_to_a_quarter_of_the_room() -> None:
    limits = Limits(window=100_000, max_tokens=0, counts_output=False)

    def early(growth: float, summary_s: float) -> int:
        at = trigger.lines(limits, 20_000, growth=growth, summary_s=summary_s)
        assert at.precompute is not None
        assert at.trigger == 85_000
        return at.precompute

    assert early(0, 60) == early(1_000, 0) == 75_000
    assert early(100, 60) == 75_000  # 1.5 · 100 · 60 = 9,000: still in time
    assert early(200, 60) == 67_000
    assert early(400, 60) == 49_000
    assert early(10_000, 60) == early(10_000, 600) == 40_000  # 20,000 + a quarter of 80,000


def test_an_early_start_keeps_less_since_what_comes_meanwhile_is_the_recent_tail() -> None:
    limits = Limits(window=100_000, max_tokens=0, counts_output=False)
    assert trigger.lines(limits, 0).keep == 10_000
    assert trigger.lines(limits, 0).snapshot_keep == 2_000
    late = replace(limits, precompute_frac=0.8)
    assert trigger.lines(late, 0).snapshot_keep == 5_000
    assert trigger.lines(late, 0, growth=100, summary_s=60).snapshot_keep == 2_000


def test_without_background_work_there_is_no_precompute_line_and_everything_is_kept() -> None:
    limits = Limits(window=100_000, max_tokens=0, precompute_frac=None)
    at = trigger.lines(limits, 10_000, growth=10_000, summary_s=100)
    assert at.precompute is None
    assert at.snapshot_keep == at.keep


def test_a_precompute_share_over_the_trigger_stays_under_it() -> None:
    limits = Limits(window=100_000, max_tokens=0, precompute_frac=0.99)
    assert trigger.lines(limits, 0).precompute == 80_000


def test_a_fixed_part_over_the_window_gives_lines_and_not_an_error() -> None:
    at = trigger.lines(Limits(window=8_000, max_tokens=1_000), 9_000)
    assert at.usable == 7_744
    assert (at.room, at.gain, at.summary) == (1, 1, 1)
    assert at.trigger <= at.usable


@given(
    st.integers(1_000, 2_000_000),
    st.integers(1, 200_000),
    st.booleans(),
    st.integers(0, 2_000_000),
    st.none() | st.integers(1, 10**6),
    st.floats(0.3, 0.95),
    st.floats(0.01, 0.5),
    st.none() | st.floats(0.1, 0.95),
    st.floats(0, 10**5),
)
def test_lines_are_in_order_for_any_limits(
    window: int,
    max_tokens: int,
    counts_output: bool,
    fixed: int,
    most: int | None,
    trigger_frac: float,
    keep_frac: float,
    precompute_frac: float | None,
    growth: float,
) -> None:
    limits = Limits(window, max_tokens, counts_output, trigger_frac, keep_frac, precompute_frac, most)
    at = trigger.lines(limits, fixed, growth=growth, summary_s=20)
    assert at.trigger <= at.usable <= window
    assert min(at.room, at.gain, at.summary) >= 1
    assert min(at.keep, at.snapshot_keep, at.head, at.ledger) >= 0
    if fixed + 20 < at.usable:
        assert at.clear < at.trigger
        assert at.precompute is None or fixed <= at.precompute <= at.trigger


# --- the answer's share


@pytest.mark.parametrize(
    ("limits", "fixed", "sent"),
    [
        (Limits(200_000, 64_000, counts_output=False), 190_000, 64_000),
        (Limits(200_000, 8_000), 10_000, 8_000),
        (Limits(200_000, 150_000), 10_000, 100_000),  # at most half the window
        (Limits(200_000, 64_000), 140_000, 25_000),  # what the fixed part and a quarter of it leave
        (Limits(200_000, 64_000), 199_000, 6_250),  # never under a 32nd of the window
        (Limits(200_000, 1_000), 199_000, 1_000),  # nor under what was wanted
        (Limits(4_000, 4_000), 3_900, 256),
        (Limits(200, 100), 0, 100),
    ],
)
def test_a_shorter_answer_beats_no_request(limits: Limits, fixed: int, sent: int) -> None:
    assert trigger.output_room(limits, fixed) == sent
    assert trigger.usable(limits, fixed) == limits.window - (sent if limits.counts_output else 0)


# --- what is worth it

AT = trigger.lines(Limits(window=100_000, max_tokens=0, counts_output=False), 0)


@pytest.mark.parametrize(
    ("evictable", "summary", "worth"),
    [(0, 0, False), (7_500, 2_500, False), (7_502, 2_500, True), (9_000, 3_000, True), (90_000, 4_096, True)],
)
def test_a_compaction_is_due_only_if_it_wins_more_than_its_summary_and_the_gain(
    evictable: int, summary: int, worth: bool
) -> None:
    assert AT.gain == 5_000
    assert trigger.expected_summary(evictable, AT) == summary
    assert trigger.worthwhile(evictable, AT) is worth


# --- decide: situations and actions

OVER, FITTING, TOO_LARGE = AT.trigger + 1, AT.usable, AT.usable + 1
THRESHOLD = Reason.THRESHOLD


def at(size: int, **known: object) -> Situation:
    return Situation(size, AT, **known)  # type: ignore[arg-type]


SEND = Decision(Action.SEND)
SITUATIONS = {
    # under the trigger nothing is done, whatever could be
    "small": (at(100), SEND),
    "at the trigger": (
        at(AT.trigger, truncated=1, swapped=1, live=True, may_start=True, may_wait=True),
        SEND,
    ),
    # a forced compaction is shown whatever the size
    "forced": (at(100, swapped=90, forced=True), Decision(Action.SWAP)),
    "forced, larger than before": (at(100, swapped=120, forced=True), Decision(Action.SWAP)),
    "forced, over the window": (at(TOO_LARGE, swapped=TOO_LARGE, forced=True), Decision(Action.SWAP)),
    "forced, none ready": (at(100, forced=True), SEND),
    # (1) old arguments and results first, if that alone clears
    "cutting clears": (at(OVER, truncated=AT.clear, swapped=10), Decision(Action.TRUNCATE, THRESHOLD)),
    "cutting does not clear": (
        at(OVER, truncated=AT.clear + 1, swapped=10),
        Decision(Action.SWAP, THRESHOLD),
    ),
    "cutting clears over the window": (
        at(TOO_LARGE, truncated=AT.clear),
        Decision(Action.TRUNCATE, THRESHOLD),
    ),
    "cutting clears over the window, and a summary is due": (
        at(TOO_LARGE, truncated=AT.clear, may_start=True),
        Decision(Action.TRUNCATE, THRESHOLD, start=True),
    ),
    "cutting clears over the window, a summary is coming": (
        at(TOO_LARGE, truncated=AT.clear, may_start=True, live=True),
        Decision(Action.TRUNCATE, THRESHOLD),
    ),
    "cutting clears, nothing written ahead": (
        at(OVER, truncated=AT.clear, background=False),
        Decision(Action.TRUNCATE, THRESHOLD),
    ),
    "cutting clears over the window, nothing written ahead": (
        at(TOO_LARGE, truncated=AT.clear, background=False, may_start=True, may_wait=True),
        Decision(Action.COMPACT, THRESHOLD),
    ),
    # (2) the ready compaction
    "ready": (at(OVER, swapped=AT.clear, live=True, may_wait=True), Decision(Action.SWAP, THRESHOLD)),
    "ready, would not clear": (at(OVER, swapped=AT.clear + 1), SEND),
    "ready, would not clear, another is worth it": (
        at(OVER, swapped=AT.clear + 1, may_start=True, may_wait=True),
        Decision(Action.COMPACT, THRESHOLD),
    ),
    # (3) nothing ready
    "live and fits": (
        at(FITTING, live=True, may_start=True, may_wait=True),
        Decision(Action.SEND, deferred=True),
    ),
    "live, does not fit, may wait": (
        at(TOO_LARGE, live=True, may_wait=True),
        Decision(Action.COMPACT, THRESHOLD),
    ),
    "due, may wait": (at(OVER, may_start=True, may_wait=True), Decision(Action.COMPACT, THRESHOLD)),
    "due, may not wait, fits": (at(OVER, may_start=True), Decision(Action.SEND, start=True, deferred=True)),
    "not worth it, fits": (at(FITTING, may_wait=True, may_extract=True), SEND),
    # over the window: what fits before what clears
    "ready fits but does not clear": (
        at(TOO_LARGE, swapped=AT.usable, may_extract=True),
        Decision(Action.SWAP, THRESHOLD),
    ),
    # (4) a briefing without a model
    "extract": (at(TOO_LARGE, may_extract=True, truncated=AT.clear + 1), Decision(Action.EXTRACT, THRESHOLD)),
    "extract while a job is live": (
        at(TOO_LARGE, live=True, may_extract=True),
        Decision(Action.EXTRACT, THRESHOLD),
    ),
    # (5) the last means, the gentlest first
    "cut before dropping": (
        at(TOO_LARGE, truncated=TOO_LARGE - 1),
        Decision(Action.TRUNCATE, Reason.TRUNCATE),
    ),
    "swap before dropping": (at(TOO_LARGE, swapped=TOO_LARGE + 5), Decision(Action.SWAP, THRESHOLD)),
    "drop": (at(TOO_LARGE), Decision(Action.DROP, Reason.TRUNCATE)),
    "drop, nothing worth a summary": (at(TOO_LARGE, may_wait=True), Decision(Action.DROP, Reason.TRUNCATE)),
}


@pytest.mark.parametrize(("situation", "decision"), SITUATIONS.values(), ids=SITUATIONS)
def test_the_next_step_is(situation: Situation, decision: Decision) -> None:
    assert trigger.decide(situation) == decision


SIZES = st.none() | st.sampled_from(
    [1, AT.clear, AT.clear + 1, AT.trigger, AT.usable, AT.usable + 1, AT.usable + 9]
)
ANY = st.builds(
    Situation,
    st.sampled_from([1, AT.trigger, AT.trigger + 1, AT.usable, AT.usable + 1, AT.usable * 2]),
    st.just(AT),
    background=st.booleans(),
    truncated=SIZES,
    swapped=SIZES,
    forced=st.booleans(),
    live=st.booleans(),
    may_start=st.booleans(),
    may_wait=st.booleans(),
    may_extract=st.booleans(),
)


@given(ANY)
def test_no_situation_drops_from_a_request_that_fits_or_sends_one_that_does_not(situation: Situation) -> None:
    decision = trigger.decide(situation)
    fits = situation.size <= AT.usable
    assert not (fits and decision.action in {Action.DROP, Action.EXTRACT})
    assert fits or decision.action is not Action.SEND
    assert not (decision.action is Action.TRUNCATE and situation.truncated is None)
    assert not (decision.action is Action.SWAP and situation.swapped is None)
    assert not (
        decision.action is Action.COMPACT
        and not (situation.may_wait and (situation.live or situation.may_start))
    )
    assert not (decision.action is Action.EXTRACT and not situation.may_extract)
    assert not (decision.start and not situation.may_start)


@given(ANY)
def test_using_up_each_means_ends_in_a_request(situation: Situation) -> None:
    """The worst that can happen: no means wins anything."""
    for step in range(6):
        decision = trigger.decide(situation)
        if decision.action in {Action.SEND, Action.DROP}:
            assert step <= 4
            return
        used: dict[Action, dict[str, object]] = {
            Action.TRUNCATE: {"truncated": None},
            Action.SWAP: {"swapped": None, "forced": False},
            Action.COMPACT: {"may_wait": False},
            Action.EXTRACT: {"may_extract": False},
        }
        situation = replace(situation, **used[decision.action])  # type: ignore[arg-type]
    pytest.fail("never came to an end")
