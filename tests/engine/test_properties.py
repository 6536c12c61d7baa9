"""What holds for every transcript under every view: valid requests, untouched messages, stable prefixes, no gap.

Views are what builds make of them: a compaction cut where one may, messages dropped at such places, old arguments cut
anywhere, a limit for giant blocks.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from compaction.engine import assemble, cut, repair, tokens, validator
from compaction.engine.tokens import HeuristicEstimator
from compaction.engine.types import Block, Frame, Head, Message, OutgoingRequest, View
from tests import judges
from tests.engine import strategies
from tests.engine.strategies import WORDS, text

ESTIMATOR = HeuristicEstimator()
TOOLS = tuple(
    Block.of({"name": name, "description": "does", "input_schema": {"type": "object"}})
    for name in ("read_file", "bash", "search-web", "edit", "a_tool")
)
BLOCKS = st.lists(WORDS.map(Block.text_of), max_size=2).map(tuple)
SOME = st.lists(WORDS.map(Block.text_of), min_size=1, max_size=2).map(tuple)
FRAMES = st.builds(
    Frame,
    st.just("claude-test"),
    system=BLOCKS,
    tools=st.sampled_from([TOOLS, ()]),
    memory=BLOCKS,
    memory_placement=st.sampled_from(["system", "message"]),
    compact_tool=st.booleans(),
    arg_limit=st.sampled_from([1, 20, 500]),
    caching=st.booleans(),
)
ANY = st.one_of(strategies.healthy(), strategies.broken())


def weighed(messages: list[Message]) -> list[Message]:
    return [replace(m, tokens=tokens.message_tokens(ESTIMATOR, m.blocks)) for m in messages]


@st.composite
def views(draw: st.DrawFn, messages: list[Message]) -> tuple[View, Head]:
    """A view that a build could have made of these messages, and what stands before them."""
    places = [0, *cut.allowed(messages)]
    kept_from = draw(st.sampled_from(places))
    first = draw(st.sampled_from([p for p in places if p >= kept_from]))
    before = draw(st.integers(0, len(messages)))
    limit = draw(st.sampled_from([0, 0, 100, 1_000]))
    head = Head(
        "[Summary]\n" + draw(WORDS) if kept_from else "", "[Messages left out]" if first > kept_from else ""
    )
    compaction = "c" if kept_from else None
    return View(compaction, kept_from, first, before, limit, last_seq=len(messages) - 1), head


def show(frame: Frame, view: View, head: Head, messages: list[Message]) -> assemble.Assembled:
    return assemble.assemble(
        frame, view, head, messages, max_tokens=100, estimator=ESTIMATOR, where="/conversation_history/s.md"
    )


@given(ANY, FRAMES, st.data())
def test_every_request_is_accepted_by_the_validator_and_by_both_judges(
    messages: list[Message], frame: Frame, data: st.DataObject
) -> None:
    messages = weighed(messages)
    view, head = data.draw(views(messages))
    request = show(frame, view, head, messages).request
    assume(request.messages)
    assert validator.violations(request) == []
    judges.strict_check(request)


@given(ANY, FRAMES, st.data())
def test_no_assembly_and_no_choice_of_a_cut_changes_the_stored_messages(
    messages: list[Message], frame: Frame, data: st.DataObject
) -> None:
    messages = weighed(messages)
    view, head = data.draw(views(messages))
    before = copy.deepcopy(messages)
    show(frame, view, head, messages)
    cut.choose(messages, keep=50, enough=100, worth=0)
    cut.drop(messages, 100)
    assert messages == before
    assert [b.data for m in messages for b in m.blocks] == [b.data for m in before for b in m.blocks]


@given(ANY, FRAMES, st.data())
def test_what_is_covered_has_no_gap_and_no_overlap(
    messages: list[Message], frame: Frame, data: st.DataObject
) -> None:
    """Summarised [0, kept_from), dropped [kept_from, first_seq), verbatim [first_seq, last_seq]: each message once.

    A message of the last part is shown, or a repair names it.
    """
    messages = weighed(messages)
    view, head = data.draw(views(messages))
    request = show(frame, view, head, messages).request
    shown = [seq for m in request.messages for seq in m.sources]
    assert len(shown) == len(set(shown))
    assert all(view.first_seq <= seq <= view.last_seq for seq in shown)
    told = {r.seq for r in request.repairs}
    assert [m.seq for m in messages[view.first_seq :] if m.seq not in shown and m.seq not in told] == []
    covered = [
        *range(view.kept_from),
        *range(view.kept_from, view.first_seq),
        *range(view.first_seq, view.last_seq + 1),
    ]
    assert covered == [m.seq for m in messages]


# --- without a swap, the earlier request is a prefix of the next


def stable(request: OutgoingRequest) -> list[str]:
    """The request's elements without the message that hango puts at an end that was the assistant's (API rule 3)."""
    closed = any(r.rule == "continue R5" for r in request.repairs)
    return request.elements()[: -1 if closed else None]


@given(strategies.healthy(), FRAMES, st.data())
def test_without_a_swap_the_earlier_request_is_a_prefix_of_the_next_element_by_element(
    messages: list[Message], frame: Frame, data: st.DataObject
) -> None:
    """Memory in the newest message moves on with it, and tools that only the history names come as it names them."""
    messages = weighed(messages)
    frame = replace(frame, tools=TOOLS, memory_placement="system")
    until = data.draw(st.integers(1, len(messages)))
    assume(repair.ending(messages[:until]) != "calls")  # such a build is refused: results are still to come
    view, head = data.draw(views(messages[:until]))
    one = show(frame, view, head, messages[:until]).request
    two = show(replace(frame, memory=()), replace(view, last_seq=messages[-1].seq), head, messages).request
    assume(one.messages)
    assert two.elements()[: len(stable(one))] == stable(one)


@given(strategies.broken(server=False), FRAMES, st.data())
def test_of_a_broken_transcript_everything_before_the_last_round_is_a_prefix_of_the_next(
    messages: list[Message], frame: Frame, data: st.DataObject
) -> None:
    """Late results change how the last round is shown, and what joins it; a provider's own call that stays unfinished
    changes its own (R16), so there are none here."""
    messages = weighed(messages)
    frame = replace(frame, tools=TOOLS, memory_placement="system")
    until = data.draw(st.integers(0, len(messages)))
    view, head = data.draw(views(messages[:until])) if until else (View(), Head())
    one = show(frame, view, head, messages[:until]).request
    two = show(frame, replace(view, last_seq=len(messages) - 1), head, messages).request
    last = [len(m.blocks) for m in one.messages[-3 if len(stable(one)) < len(one.elements()) else -2 :]]
    settled = one.elements()[: len(one.elements()) - sum(last)]
    assert two.elements()[: len(settled)] == settled


@given(ANY, FRAMES, st.data())
def test_a_request_that_is_built_again_has_the_same_bytes(
    messages: list[Message], frame: Frame, data: st.DataObject
) -> None:
    messages = weighed(messages)
    view, head = data.draw(views(messages))
    assert show(frame, view, head, messages) == show(frame, view, head, messages[view.first_seq :])


# --- estimates


@given(ANY, FRAMES, SOME, st.data())
def test_the_estimate_grows_when_only_the_system_the_tools_or_the_memory_grow(
    messages: list[Message], frame: Frame, more: tuple[Block, ...], data: st.DataObject
) -> None:
    messages = weighed(messages)
    view, head = data.draw(views(messages))
    frame = replace(frame, tools=TOOLS[:2])
    before = show(frame, view, head, messages)
    for larger in (
        replace(frame, system=(*frame.system, *more)),
        replace(frame, tools=TOOLS[:3]),
        replace(frame, memory=(*frame.memory, *more)),
    ):
        after = show(larger, view, head, messages)
        assert after.tokens > before.tokens
        assert ESTIMATOR.estimate_request(after.request) > ESTIMATOR.estimate_request(before.request)


@given(strategies.healthy(), FRAMES, WORDS)
def test_the_estimate_grows_with_every_message_and_with_the_head(
    messages: list[Message], frame: Frame, words: str
) -> None:
    messages = weighed(messages)
    frame = replace(frame, tools=TOOLS, memory_placement="system")
    sizes = [
        show(frame, View(last_seq=last), Head(), messages[: last + 1]).tokens
        for last in range(-1, len(messages))
    ]
    assert all(b > a for a, b in pairwise(sizes))
    view = View(last_seq=messages[-1].seq)
    assert show(frame, view, Head(words), messages).tokens > sizes[-1]
    longer = [*messages[:-1], replace(messages[-1], blocks=(*messages[-1].blocks, Block.of(text(words))))]
    assert show(frame, view, Head(), weighed(longer)).tokens > sizes[-1]


@given(strategies.healthy(), FRAMES, st.data())
def test_the_weight_of_a_healthy_transcript_is_that_of_the_request(
    messages: list[Message], frame: Frame, data: st.DataObject
) -> None:
    """But for what repair adds, and for the overhead of messages that are shown as one."""
    messages = weighed(messages)
    view, head = data.draw(views(messages))
    made = show(frame, view, head, messages)
    rules = {r.rule for r in made.request.repairs}
    assume(not rules - {"tools-missing R18", "joined R3"})
    joined = sum(max(0, len(m.sources) - 1) for m in made.request.messages)
    headed = bool(made.request.messages) and bool(head.blocks) and bool(made.request.messages[0].sources)
    overhead = tokens.MESSAGE_OVERHEAD * (joined + headed)
    assert made.tokens == ESTIMATOR.estimate_request(made.request) + overhead


@given(ANY, FRAMES, st.data())
def test_cutting_arguments_and_giant_blocks_never_makes_a_request_larger(
    messages: list[Message], frame: Frame, data: st.DataObject
) -> None:
    messages = weighed(messages)
    view, head = data.draw(views(messages))
    whole = show(frame, replace(view, args_cut_before=0, block_limit=0), head, messages)
    assert show(frame, replace(view, block_limit=0), head, messages).tokens <= whole.tokens
    assert show(frame, view, head, messages).tokens <= whole.tokens
