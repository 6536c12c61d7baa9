"""Where a transcript may be cut (SPEC F5, F6, F10): never inside a round, never away from words that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import cut, repair
from compaction.engine.cut import Round
from compaction.engine.types import Message
from tests.engine import strategies
from tests.engine.strategies import Json, assistant, call, result, text, thinking, user

ANY = st.one_of(strategies.healthy(), strategies.broken())
AMOUNT = st.integers(0, 3_000)


def transcript(*said: Json, weights: Sequence[int] | int = 10) -> list[Message]:
    """Messages of these weights; `weights` may be one number for all."""
    messages = strategies.as_messages(said)
    given = [weights] * len(messages) if isinstance(weights, int) else weights
    return [replace(m, tokens=w) for m, w in zip(messages, given, strict=True)]


@st.composite
def weighed(draw: st.DrawFn) -> list[Message]:
    messages = draw(ANY)
    sizes = draw(st.lists(st.integers(0, 900), min_size=len(messages), max_size=len(messages)))
    return [replace(m, tokens=size) for m, size in zip(messages, sizes, strict=True)]


def loop(rounds: int, weight: int = 10) -> list[Message]:
    """One request of the user, then so many rounds of a tool loop."""
    said = [user("go")]
    for k in range(rounds):
        said += [assistant(call(f"t{k}")), user(result(f"t{k}"))]
    return transcript(*said, weights=weight)


PARALLEL = [
    user("go"),
    assistant(call("a"), call("b")),
    user(result("a")),
    user(result("b")),
    assistant("done"),
    user("next"),
]


# --- rounds


@pytest.mark.parametrize(
    ("said", "rounds"),
    [
        ([], []),
        ([user("a"), assistant("b"), user("c")], []),
        ([user("a"), assistant(call("t")), user(result("t"))], [Round(1, 3, True)]),
        (PARALLEL, [Round(1, 4, True)]),
        ([user("a"), assistant(call("t"))], [Round(1, 2, False)]),
        ([user("a"), assistant(call("t"), call("u")), user(result("t"))], [Round(1, 3, False)]),
        ([user("a"), assistant(call("t")), user("wait"), user(result("t"))], [Round(1, 4, True)]),
        ([user("a"), assistant(call("t")), user("wait")], [Round(1, 3, False)]),
        ([user("a"), assistant(call("t")), user("wait"), assistant("b")], [Round(1, 2, False)]),
        ([user("a"), assistant("b"), assistant(call("t")), user(result("t"))], [Round(1, 4, True)]),
        ([user(result("t")), assistant("b")], []),
    ],
    ids=[
        "empty",
        "words only",
        "one",
        "parallel, in two messages",
        "open",
        "half open",
        "words between",
        "open with words",
        "given up",
        "two assistant messages are one turn",
        "orphan result",
    ],
)
def test_a_round_is_an_assistant_turn_with_calls_and_everything_up_to_their_last_result(
    said: list[Json], rounds: list[Round]
) -> None:
    assert cut.rounds(transcript(*said)) == rounds


def test_an_id_that_stands_again_in_a_later_round_is_answered_there() -> None:
    messages = transcript(
        user("go"), assistant(call("t")), user(result("t")), assistant(call("t")), user(result("t"))
    )
    assert cut.rounds(messages) == [Round(1, 3, True), Round(3, 5, True)]


def test_a_call_made_twice_in_one_turn_needs_two_results() -> None:
    messages = transcript(user("go"), assistant(call("t"), call("t")), user(result("t")))
    assert cut.rounds(messages) == [Round(1, 3, False)]


# --- allowed


@pytest.mark.parametrize(
    ("said", "places"),
    [
        ([], []),
        ([user("a")], []),
        ([user("a"), assistant("b"), user("c"), assistant("d")], [1, 2, 3]),
        (PARALLEL, [1, 4, 5]),
        ([user("a"), assistant("b"), assistant("c"), user("d")], [1, 3]),
        ([user("a"), assistant(call("t")), user("wait")], [1]),
        ([user("a"), assistant(call("t")), user(result("t")), user("more"), assistant("b")], [1, 3, 4]),
        ([user("a"), assistant("b"), user(result("ghost")), assistant("c")], [1, 3]),
        ([user("a"), assistant(call("t")), user(result("t"), "and then?"), assistant("b")], [1, 3]),
    ],
    ids=[
        "empty",
        "one message",
        "anywhere between words",
        "not inside a round",
        "not between two assistant messages",
        "not inside an open round",
        "at words after the results",
        "not at an orphan result",
        "not at results with words",
    ],
)
def test_the_allowed_positions_are(said: list[Json], places: list[int]) -> None:
    assert cut.allowed(transcript(*said)) == places


@given(ANY)
def test_a_cut_at_an_allowed_position_has_every_call_and_its_results_on_one_side(
    messages: list[Message],
) -> None:
    found = cut.rounds(messages)
    for place in cut.allowed(messages):
        assert all(place <= r.start or place >= r.end for r in found)
        first = messages[place]
        assert first.role == "assistant" or not first.results
        assert not (first.role == "assistant" and messages[place - 1].role == "assistant")


@given(strategies.healthy())
def test_a_cut_of_a_healthy_transcript_leaves_nothing_to_repair_on_either_side(
    messages: list[Message],
) -> None:
    for place in cut.allowed(messages):
        kept, repairs = repair.repair(messages[place:], close=True)
        assert {r.rule for r in repairs} <= {"first-user R2"}
        evicted, repairs = repair.repair(messages[:place], close=True)
        assert {r.rule for r in repairs} <= {"continue R5"}
        assert kept
        assert evicted


@given(ANY, st.data())
def test_an_allowed_position_before_the_last_open_round_stays_allowed_whatever_is_appended(
    messages: list[Message], data: st.DataObject
) -> None:
    before = messages[: data.draw(st.integers(0, len(messages)))]
    found = cut.rounds(before)
    settled = found[-1].start if found and not found[-1].complete else len(before)
    later = cut.allowed(messages)
    assert [i for i in cut.allowed(before) if i <= settled and i not in later] == []


# --- the keep line


@pytest.mark.parametrize(("keep", "line"), [(0, 5), (9, 5), (10, 4), (29, 3), (30, 2), (50, 0), (10_000, 0)])
def test_the_keep_line_stands_where_the_newest_messages_weigh_at_most_that_much(keep: int, line: int) -> None:
    assert cut.keep_line(loop(2), keep) == line


def test_a_number_of_messages_to_keep_counts_instead_of_their_weight() -> None:
    assert cut.keep_line(loop(5), 0, keep_messages=6) == 5
    assert cut.keep_line(loop(1), 0, keep_messages=6) == 0


# --- the choice


def test_the_cut_goes_back_from_the_keep_line_out_of_the_round_it_would_split() -> None:
    messages = loop(6)
    assert cut.keep_line(messages, 35) == 10  # the result of the round that starts at 9
    assert cut.choose(messages, keep=35, enough=0, worth=0) == 9


def test_the_cut_goes_forward_when_back_would_not_clear() -> None:
    messages = transcript(
        user("a"),
        assistant("b"),
        user("c"),
        assistant("d"),
        user("e"),
        assistant("f"),
        user("g"),
        weights=[5, 5, 5, 500, 5, 5, 5],
    )
    assert cut.keep_line(messages, 15) == 4
    assert cut.choose(messages, keep=15, enough=515, worth=0) == 4
    assert cut.choose(messages, keep=15, enough=516, worth=0) == 5
    assert cut.choose(messages, keep=515, enough=100, worth=0) == 4


def test_a_cut_that_can_never_clear_goes_as_far_as_it_may() -> None:
    messages = loop(4)
    assert cut.latest(messages) == 7
    assert cut.choose(messages, keep=30, enough=10_000, worth=0) == 7


def test_a_cut_stops_before_the_last_complete_round_even_when_nothing_is_to_be_kept() -> None:
    assert cut.choose(loop(4), keep=0, enough=0, worth=0) == 7


def test_nothing_is_cut_when_it_would_not_be_worth_it() -> None:
    messages = loop(4)
    assert cut.choose(messages, keep=0, enough=0, worth=69) == 7
    assert cut.choose(messages, keep=0, enough=0, worth=70) is None


def test_a_transcript_without_a_place_to_cut_is_not_cut() -> None:
    assert cut.choose(transcript(user("a")), keep=0, enough=0, worth=0) is None
    assert cut.choose([], keep=0, enough=0, worth=0) is None


def test_the_unknown_model_keeps_six_messages_at_least() -> None:
    assert cut.choose(loop(10), keep=10**6, enough=0, worth=0, keep_messages=6) == 15


@given(weighed(), AMOUNT, AMOUNT, AMOUNT)
def test_the_choice_is_the_nearest_allowed_position_that_does_what_is_asked(
    messages: list[Message], keep: int, enough: int, worth: int
) -> None:
    chosen = cut.choose(messages, keep=keep, enough=enough, worth=worth)
    places = [i for i in cut.allowed(messages) if i <= cut.latest(messages)]
    line = cut.keep_line(messages, keep)
    evicts = {i: sum(m.tokens for m in messages[:i]) for i in places}
    back = [i for i in places if i <= line]
    if chosen is None:
        assert not places or all(evicts[i] <= worth for i in back)
        return
    assert chosen in places
    assert evicts[chosen] > worth
    if chosen <= line and chosen != places[-1]:
        assert chosen == back[-1]
    if chosen > line:
        assert not back or evicts[back[-1]] < enough or evicts[back[-1]] <= worth
        assert chosen == places[-1] or next(i for i in places if i > line and evicts[i] >= enough) == chosen
    if evicts[chosen] < enough:
        assert chosen == places[-1]


# --- the last position


@pytest.mark.parametrize(
    ("said", "last"),
    [
        ([], 0),
        ([user("a")], 0),
        ([user("a"), assistant("b"), user("c")], 2),
        ([user("a"), assistant("b"), user("c"), user("d")], 2),
        ([user("a"), assistant("b"), user("c"), assistant("d")], 2),
        ([*PARALLEL], 5),
        ([*PARALLEL, assistant(call("c")), user(result("c"))], 6),
        ([*PARALLEL, assistant(call("c"))], 6),
        ([user("a"), assistant(call("t")), user(result("t"), "and then?")], 2),
        ([user("a"), assistant(call("t")), user("wait"), assistant("b"), user("c")], 4),
        ([user("a"), assistant(call("t")), user("wait")], 1),
        ([assistant("b"), user(result("ghost"))], 0),
    ],
    ids=[
        "empty",
        "one request",
        "unanswered words",
        "all unanswered words",
        "the last exchange",
        "words after rounds",
        "the last complete round",
        "the open round",
        "words with results",
        "an old round that was given up",
        "words in an open round",
        "nothing that asks",
    ],
)
def test_the_last_position_a_cut_may_take_is(said: list[Json], last: int) -> None:
    assert cut.latest(transcript(*said)) == last


@given(weighed(), AMOUNT)
def test_no_cut_and_no_drop_takes_the_last_round_or_words_that_nothing_answered(
    messages: list[Message], amount: int
) -> None:
    places = {
        cut.choose(messages, keep=0, enough=amount, worth=0),
        cut.drop(messages, amount),
    } - {None}
    found = cut.rounds(messages)
    unanswered: list[int] = []
    for i in range(len(messages) - 1, -1, -1):
        if messages[i].role == "assistant":
            break
        unanswered += [i] if messages[i].asks else []
    for place in places:
        assert place is not None
        assert not found or place <= found[-1].start or found[-1].end < len(messages)
        if unanswered and not messages[min(unanswered)].results:
            assert place <= min(unanswered)


# --- dropping


def exchanges() -> list[Message]:
    """Two exchanges with answers, then a request with three rounds: weights of 10 each."""
    return transcript(
        user("one"),
        assistant("1"),
        user("two"),
        assistant(call("a")),
        user(result("a")),
        assistant("2"),
        user("three"),
        assistant(call("b")),
        user(result("b")),
        assistant(call("c")),
        user(result("c")),
        assistant(call("d")),
        user(result("d")),
    )


@pytest.mark.parametrize(
    ("excess", "place"),
    [(0, 2), (20, 2), (21, 6), (60, 6), (61, 7), (71, 9), (90, 9), (91, 11), (110, 11), (10_000, 11)],
)
def test_whole_exchanges_go_first_then_whole_rounds_and_the_last_round_stays(excess: int, place: int) -> None:
    assert cut.drop(exchanges(), excess) == place


def test_nothing_is_dropped_where_only_the_last_round_or_one_request_is_left() -> None:
    assert cut.drop(transcript(user("go")), 100) is None
    assert cut.drop([], 100) is None
    assert cut.drop(loop(1)[1:], 100) is None


def test_a_loop_that_starts_at_a_round_loses_whole_rounds() -> None:
    assert cut.drop(loop(4)[1:], 15) == 2
    assert cut.drop(loop(4)[1:], 10_000) == 6


@given(weighed(), AMOUNT)
def test_a_drop_takes_no_more_than_one_unit_too_much_and_starts_where_one_may(
    messages: list[Message], excess: int
) -> None:
    place = cut.drop(messages, excess)
    allowed = [i for i in cut.allowed(messages) if i <= cut.latest(messages)]
    asks = [i for i in allowed if messages[i].asks]
    units = sorted(
        {*asks, *(i for i in allowed if not asks or i > asks[-1] if messages[i].role == "assistant")}
    )
    if place is None:
        assert units == []
        return
    assert place in units
    dropped = sum(m.tokens for m in messages[:place])
    assert dropped >= excess or place == units[-1]
    one_less = [i for i in units if i < place]
    assert not one_less or sum(m.tokens for m in messages[: one_less[-1]]) < excess


def test_thinking_and_pictures_do_not_change_where_a_round_stands() -> None:
    messages = transcript(
        user(strategies.MEDIA[0], "look"),
        assistant(thinking("hm"), text("I see"), call("a")),
        user(result("a", [strategies.MEDIA[0]])),
        assistant(thinking("so"), text("done")),
        user(strategies.MEDIA[0]),
    )
    assert cut.allowed(messages) == [1, 3, 4]
    assert cut.latest(messages) == 4
