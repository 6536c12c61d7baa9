"""Where prompt-cache breakpoints go (SPEC F11), and that a growing session really reads what it wrote."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import assemble, breakpoints
from compaction.engine.breakpoints import BRIDGE
from compaction.engine.tokens import HeuristicEstimator
from compaction.engine.types import Block, Frame, Head, Message, OutgoingRequest, View
from tests.engine import strategies
from tests.engine.strategies import Json, assistant, call, result, text, thinking, user
from tests.upstream import strict_anthropic

ESTIMATOR = HeuristicEstimator()
SYSTEM = (Block.text_of("You are careful. " * 30),)
TOOLS = (Block.of({"name": "bash", "description": "runs", "input_schema": {"type": "object"}}),)
LOOKBACK = strict_anthropic.LOOKBACK_BLOCKS


def built(
    said: list[Json],
    *,
    system: tuple[Block, ...] = SYSTEM,
    tools: tuple[Block, ...] = TOOLS,
    summary: str = "",
    caching: bool = True,
) -> OutgoingRequest:
    messages = strategies.as_messages(said)
    return assembled(messages, Frame("claude-test", system, tools, caching=caching), summary)


def assembled(messages: list[Message], frame: Frame, summary: str = "") -> OutgoingRequest:
    view = View("c" if summary else None, last_seq=messages[-1].seq)
    made = assemble.assemble(
        frame, view, Head(summary), messages, max_tokens=100, estimator=ESTIMATOR, where="/h.md"
    )
    return made.request


def marks(request: OutgoingRequest) -> dict[str, list[int]]:
    flat = [b for m in request.messages for b in m.blocks]
    parts = {"system": request.system, "tools": request.tools, "memory": request.memory, "messages": flat}
    return {
        name: found
        for name, blocks in parts.items()
        if (found := [i for i, b in enumerate(blocks) if b.marked])
    }


def words(count: int) -> list[Json]:
    """So many messages of one block each, the last one the user's."""
    return [(assistant if (count - i) % 2 == 0 else user)(f"said {i}") for i in range(count)]


# --- indices


def test_system_end_and_bridges_back_from_the_end_are_marked() -> None:
    assert marks(built(words(61))) == {"system": [0], "messages": [60 - 2 * BRIDGE, 60 - BRIDGE, 60]}


def test_a_short_history_has_no_bridge() -> None:
    assert marks(built(words(1))) == {"system": [0], "messages": [0]}
    assert marks(built(words(19))) == {"system": [0], "messages": [18]}


def test_the_summary_message_is_marked_and_leaves_one_bridge() -> None:
    request = built(words(61), summary="what happened before")
    flat = [b for m in request.messages for b in m.blocks]
    assert flat[0].text == "what happened before"
    assert marks(request) == {"system": [0], "messages": [0, 61 - BRIDGE, 61]}


def test_the_last_stable_system_block_is_marked_and_not_the_ones_before() -> None:
    blocks = tuple(Block.text_of(t) for t in ("a", "b", "c"))
    assert marks(built(words(1), system=blocks))["system"] == [2]


def test_without_a_system_the_last_tool_is_marked_and_without_both_one_more_bridge_is_set() -> None:
    assert marks(built(words(1), system=())) == {"tools": [0], "messages": [0]}
    bare = built(words(101), system=(), tools=())
    assert marks(bare) == {"messages": [100 - 3 * BRIDGE, 100 - 2 * BRIDGE, 100 - BRIDGE, 100]}


def test_no_breakpoint_is_placed_for_a_provider_that_takes_none() -> None:
    request = built(words(61), summary="before", caching=False)
    assert marks(request) == {}
    assert "cache_control" not in request.body()


@pytest.mark.parametrize(
    "block",
    [
        thinking("hm"),
        {"type": "redacted_thinking", "data": "x"},
        text(""),
        text(" \n"),
        {"type": "mcp_tool_listing"},
        {"type": "fallback"},
    ],
    ids=["thinking", "redacted", "empty", "blank", "listing", "fallback"],
)
def test_a_block_that_takes_no_mark_leaves_it_to_the_one_before(block: Json) -> None:
    carrier, odd = Block.text_of("a"), Block.of(block)
    assert not breakpoints.may_carry(odd)
    assert [b.marked for b in breakpoints.of_blocks((carrier, odd))] == [True, False]
    assert [b.marked for b in breakpoints.of_blocks((odd,))] == [False]
    assert breakpoints.of_blocks(()) == ()


def test_every_other_kind_may_carry_a_mark() -> None:
    others = [text("a"), call("t"), result("t", ""), *strategies.MEDIA]
    assert all(breakpoints.may_carry(Block.of(b)) for b in others)


def test_marks_move_back_from_blocks_that_carry_none_and_fall_together_where_there_is_nothing_else() -> None:
    assert breakpoints.positions([True, True, False], summary_end=None, available=3) == [1]
    assert breakpoints.positions([True, False], summary_end=0, available=3) == [0]
    assert breakpoints.positions([False] * 40, summary_end=None, available=3) == []
    assert breakpoints.positions([], summary_end=None, available=3) == []
    assert breakpoints.positions([True] + [False] * 30 + [True], summary_end=0, available=3) == [0, 31]
    carriers = [i != 41 - BRIDGE for i in range(42)]
    assert breakpoints.positions(carriers, summary_end=None, available=3) == [2, 40 - BRIDGE, 41]


@given(st.lists(st.booleans(), max_size=90), st.integers(3, 4), st.data())
def test_no_more_marks_than_are_left_each_on_a_block_that_may_carry_one(
    carriers: list[bool], available: int, data: st.DataObject
) -> None:
    summary = data.draw(st.none() | st.integers(0, len(carriers) - 1)) if carriers else None
    found = breakpoints.positions(carriers, summary_end=summary, available=available)
    assert found == sorted(set(found))
    assert len(found) <= available
    assert all(carriers[i] for i in found)
    if any(carriers):
        assert max(i for i, may in enumerate(carriers) if may) in found
    if summary is not None and carriers[summary]:
        assert summary in found


@given(st.lists(st.booleans(), min_size=1, max_size=120), st.integers(1, 2 * BRIDGE))
def test_the_end_of_any_request_is_found_by_the_next_one_up_to_two_bridges_further(
    carriers: list[bool], grown: int
) -> None:
    """Every block between two bridges may carry a mark, or none could have been written there."""
    later = carriers + [True] * grown
    written = breakpoints.positions(carriers, summary_end=None, available=3)
    looked_at = {
        i
        for mark in breakpoints.positions(later, summary_end=None, available=3)
        for i in range(mark, mark - LOOKBACK, -1)
    }
    assert not written or written[-1] in looked_at


def test_bridges_leave_no_gap_that_no_breakpoint_looks_at() -> None:
    found = breakpoints.positions([True] * 100, summary_end=None, available=3)
    assert all(b - a < LOOKBACK for a, b in pairwise(found))


# --- a growing session against the strict upstream's cache


def tool_loop(rng: random.Random, turns: int, most: int) -> list[list[Json]]:
    """What each turn adds: an assistant message and its results, 1 to `most` blocks in all."""
    added: list[list[Json]] = [[user("look around")]]
    for turn in range(turns):
        blocks = rng.randint(1, most)
        if blocks == 1:
            added.append([user(f"and {turn}")])  # words that came while nothing was answered
            continue
        ids = [f"t{turn}_{k}" for k in range(blocks // 2)]
        calls = [call(i, "bash", {"command": f"ls {i}"}) for i in ids]
        said = [text(f"step {turn}"), *calls] if blocks % 2 else calls
        added.append([assistant(*said), user(*(result(i, f"out of {i}") for i in ids))])
    return added


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("summary", "most"), [("", 40), ("what happened before " * 40, 38)], ids=["plain", "summary"]
)
def test_a_growing_session_reads_the_whole_request_before_from_the_cache(
    seed: int, summary: str, most: int
) -> None:
    cache = strict_anthropic.Cache()
    said: list[Json] = []
    ratios: list[bool] = []
    before = 0
    for added in tool_loop(random.Random(seed), 100, most):
        said += added
        request = built(said, summary=summary)
        body = json.loads(request.body())
        strict_anthropic.check_request(body)
        usage = cache.use(body)
        last = sum(strict_anthropic.weigh(json.loads(b.raw)) for b in request.messages[-1].blocks)
        if before:
            ratios.append(usage["cache_read_input_tokens"] >= before)
        before = strict_anthropic.count(body) - last
    assert sum(ratios) >= 0.98 * len(ratios)


def test_a_changed_memory_leaves_tools_and_system_in_the_cache() -> None:
    cache = strict_anthropic.Cache()
    messages = strategies.as_messages(words(5))
    for memory in ("monday", "tuesday"):
        frame = Frame("claude-test", SYSTEM, TOOLS, memory=(Block.text_of(memory),))
        usage = cache.use(json.loads(assembled(messages, frame).body()))
    fixed = {"system": [json.loads(b.raw) for b in SYSTEM], "tools": [json.loads(b.raw) for b in TOOLS]}
    assert usage["cache_read_input_tokens"] == strict_anthropic.count(fixed)
