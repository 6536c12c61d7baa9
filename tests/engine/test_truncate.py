"""Old tool arguments and results become a preview and a size note (SPEC F4), always the same and never larger."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compaction.engine import tokens, truncate
from compaction.engine.tokens import HeuristicEstimator
from compaction.engine.types import Block, Message
from tests.engine import strategies
from tests.engine.strategies import call, result, text

WHERE = "/conversation_history/s-1.md"
ESTIMATOR = HeuristicEstimator()
LONG = "".join(f"line {n}: the quick brown fox jumps over the lazy dog\n" for n in range(400))
SHORT = "ls -la"
NOTE = re.compile(
    r"\n\[… (\d+) of (\d+) characters cut \(about (\d+) tokens\); the whole text is in (\S+) …\]\n"
)

# Texts of every kind of cost, long enough that some are over a limit and some are not.
PIECES = st.sampled_from(
    [
        "word ",
        "1 2 3 ",
        "你好",
        "🙂",
        "👩‍👩‍👧",
        '{"k": "v"}, ',
        "\n",
        "\x1b[0m",
        "é",
        "ע",
        "\ud800",
        "\\",
        "Zm9vYmFyMTIz",
    ]
)
TEXTS = st.builds(
    lambda piece, more, n: piece * n + more, PIECES, st.text(max_size=20), st.integers(1, 1_500)
)
LIMITS = st.integers(100, 800)


def message(*blocks: dict[str, Any], role: str = "user") -> Message:
    made = tuple(Block.of(b) for b in blocks)
    return Message(7, role, made, tokens.message_tokens(ESTIMATOR, made))  # type: ignore[arg-type]


def old(given_message: Message, limit: int = 500) -> tuple[Message, int]:
    return truncate.old_message(given_message, limit, ESTIMATOR, WHERE)


def giant(given_message: Message, limit: int = 500) -> tuple[Message, int]:
    return truncate.giant_message(given_message, limit, ESTIMATOR, WHERE)


@st.composite
def tool_messages(draw: st.DrawFn) -> Message:
    """Calls with nested arguments, results as text and as blocks, words beside them."""
    if draw(st.booleans()):
        given_input = {"path": SHORT, "content": draw(TEXTS), "edits": [{"new": draw(TEXTS)}, 3, None, True]}
        return message(text(draw(TEXTS)), call("t", "edit", given_input), role="assistant")
    blocks = [text(draw(TEXTS)), draw(st.sampled_from(strategies.MEDIA))]
    return message(result("t", draw(TEXTS)), result("u", blocks, is_error=True), text(draw(TEXTS)))


# --- what is cut


def test_a_large_argument_becomes_its_ends_and_a_note_that_tells_the_size_and_the_file() -> None:
    cut, count = old(message(call("t", "write_file", {"path": "/a.py", "content": LONG}), role="assistant"))
    assert count == 1
    shown = cut.blocks[0].data["input"]["content"]
    note = NOTE.search(shown)
    assert note is not None
    left_out, whole, weight, where = note.groups()
    head, tail = shown[: note.start()], shown[note.end() :]
    assert LONG.startswith(head)
    assert LONG.endswith(tail)
    assert (int(whole), int(left_out)) == (len(LONG), len(LONG) - len(head) - len(tail))
    assert int(weight) == ESTIMATOR.estimate(LONG)
    assert where == WHERE
    assert ESTIMATOR.estimate(head + tail) <= truncate.PREVIEW_TOKENS


def test_structure_ids_names_flags_and_small_values_stay() -> None:
    given_input = {"b": LONG, "a": 1.5, "path": "/a.py", "list": [None, True, {"deep": LONG}], "größe": SHORT}
    block = {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "edit",
        "input": given_input,
        "caller": {"type": "direct"},
    }
    cut, count = old(message(block, role="assistant"))
    shown = cut.blocks[0].data
    assert count == 2
    assert list(shown) == list(block)
    assert (shown["id"], shown["name"], shown["caller"]) == ("toolu_1", "edit", {"type": "direct"})
    assert list(shown["input"]) == list(given_input)
    assert {k: shown["input"][k] for k in ("a", "path", "größe")} == {
        "a": 1.5,
        "path": "/a.py",
        "größe": SHORT,
    }
    assert shown["input"]["list"][:2] == [None, True]
    assert WHERE in shown["input"]["list"][2]["deep"]


def test_results_are_cut_as_text_and_in_blocks_and_their_pictures_stay() -> None:
    picture = strategies.MEDIA[0]
    cut, count = old(
        message(
            result("t", LONG, is_error=True),
            result("u", [text(LONG), picture, text(SHORT)]),
            {"type": "tool_result", "tool_use_id": "v"},
        )
    )
    assert count == 2
    first, second, third = (b.data for b in cut.blocks)
    assert (first["tool_use_id"], first["is_error"]) == ("t", True)
    assert WHERE in first["content"]
    assert WHERE in second["content"][0]["text"]
    assert second["content"][1:] == [picture, text(SHORT)]
    assert third == {"type": "tool_result", "tool_use_id": "v"}


def test_words_of_user_and_assistant_are_not_old_arguments_but_may_be_giant() -> None:
    said = message(text(LONG), text(SHORT))
    assert old(said) == (said, 0)
    cut, count = giant(said)
    assert count == 1
    assert WHERE in cut.blocks[0].text
    assert cut.blocks[1] is said.blocks[1]


def test_thinking_and_pictures_are_never_cut() -> None:
    thought = {"type": "thinking", "thinking": LONG, "signature": "s"}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 90_000}}
    for said in (message(thought, role="assistant"), message(picture)):
        assert old(said) == (said, 0)
        assert giant(said) == (said, 0)


def test_a_small_message_and_the_blocks_beside_a_large_one_are_the_same_objects() -> None:
    small = message(call("t", "bash", {"command": SHORT}), role="assistant")
    assert old(small)[0] is small
    mixed = message(
        call("t", "bash", {"command": SHORT}), call("u", "bash", {"command": LONG}), role="assistant"
    )
    cut, _ = old(mixed)
    assert cut.blocks[0] is mixed.blocks[0]
    assert cut.blocks[1] is not mixed.blocks[1]


def test_many_small_blocks_over_the_limit_together_are_left_alone() -> None:
    many = message(*(result(f"t{n}", SHORT * 20) for n in range(40)))
    assert many.tokens > 500
    assert old(many)[0] is many


def test_a_cache_mark_and_the_form_of_the_message_survive_the_cut() -> None:
    block = replace(Block.text_of(LONG), marked=True)
    said = Message(3, "user", (block,), tokens.message_tokens(ESTIMATOR, (block,)), as_text=True, pinned=True)
    cut, _ = giant(said)
    assert cut.blocks[0].marked
    assert (cut.seq, cut.role, cut.as_text, cut.pinned) == (3, "user", True, True)


def test_a_limit_under_the_preview_cuts_to_that_limit() -> None:
    cut, _ = old(message(result("t", LONG)), limit=20)
    shown = NOTE.split(cut.blocks[0].data["content"])
    assert ESTIMATOR.estimate(shown[0] + shown[-1]) <= 20


def test_a_text_whose_note_would_be_longer_than_what_it_saves_stays() -> None:
    wide = "1 " * 30
    assert ESTIMATOR.estimate(wide) > 50
    assert old(message(result("t", wide)), limit=50)[1] == 0


@pytest.mark.parametrize("limit", [100, 150, 500])
def test_a_text_of_the_most_expensive_characters_is_not_taken_for_a_short_one(limit: int) -> None:
    flags = "🙂" * (limit // 2)
    assert ESTIMATOR.estimate(flags) > limit
    assert len(flags) * 2 <= limit
    cut, count = old(message(result("t", flags)), limit)
    assert count == 1
    assert cut.tokens < message(result("t", flags)).tokens


def test_an_uneven_text_is_cut_by_what_its_ends_really_weigh() -> None:
    uneven = "🙂" * 300 + "a" * 40_000 + "🙂" * 300
    head, *_, tail = NOTE.split(truncate.preview(uneven, 60, ESTIMATOR, WHERE))
    assert ESTIMATOR.estimate(head + tail) <= 60


# --- properties


@given(tool_messages(), LIMITS, st.booleans())
def test_cutting_is_deterministic_never_grows_and_leaves_the_stored_message_alone(
    said: Message, limit: int, whole: bool
) -> None:
    cut_by = giant if whole else old
    before = copy.deepcopy(said)
    cut, count = cut_by(said, limit)
    assert cut_by(said, limit) == (cut, count)
    assert said == before
    assert [b.data for b in said.blocks] == [b.data for b in before.blocks]
    assert cut.tokens <= said.tokens
    assert (count == 0) == (cut is said)
    assert cut.tokens == tokens.message_tokens(ESTIMATOR, cut.blocks)


@given(tool_messages(), st.integers(150, 800))
def test_what_was_cut_once_is_not_cut_again(said: Message, limit: int) -> None:
    once, _ = old(said, limit)
    assert old(once, limit) == (once, 0)


@given(tool_messages(), LIMITS)
def test_a_cut_never_splits_a_character(said: Message, limit: int) -> None:
    cut, count = giant(said, limit)
    assume(count)
    for block, stored in zip(cut.blocks, said.blocks, strict=True):
        if block is not stored:
            assert block.raw.encode()
            shown = json.loads(block.raw)
            assert shown == block.data
            for value in _strings(shown):
                if WHERE in value:
                    value.encode()


@given(tool_messages(), st.integers(100, 400))
def test_no_text_over_the_limit_is_left_that_a_preview_would_shorten(said: Message, limit: int) -> None:
    cut, _ = giant(said, limit)
    for block in cut.blocks:
        for value in _strings(block.data):
            if ESTIMATOR.estimate(value) > limit and WHERE not in value:
                assert ESTIMATOR.estimate(
                    truncate.preview(value, limit, ESTIMATOR, WHERE)
                ) >= ESTIMATOR.estimate(value)


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [s for v in inner for s in _strings(v)]


# --- the limit of the last rung


def lengths(*chars: int) -> list[Message]:
    return [message(text("word " * (n // 5))) for n in chars]


@pytest.mark.parametrize("excess", [1, 500, 2_000, 5_000, 9_000])
def test_the_block_limit_wins_what_is_asked_for(excess: int) -> None:
    said = [*lengths(40_000, 8_000, 400), message(call("t", "bash", {"command": LONG}), result("u", LONG))]
    limit = truncate.block_limit(said, excess, ESTIMATOR)
    won = sum(m.tokens - giant(m, limit)[0].tokens for m in said)
    assert won >= excess
    assert limit > truncate.MIN_BLOCK_LIMIT


@given(st.lists(tool_messages(), min_size=1, max_size=4), st.integers(1, 4_000))
def test_the_block_limit_wins_the_excess_whenever_it_is_above_the_least(
    said: list[Message], excess: int
) -> None:
    limit = truncate.block_limit(said, excess, ESTIMATOR)
    won = sum(m.tokens - giant(m, limit)[0].tokens for m in said)
    assert won >= excess or limit == truncate.MIN_BLOCK_LIMIT


def test_the_block_limit_is_the_largest_that_is_enough() -> None:
    said = lengths(40_000)
    small, large = (truncate.block_limit(said, excess, ESTIMATOR) for excess in (7_000, 1_000))
    assert small < large
    assert said[0].tokens - giant(said[0], large)[0].tokens < 1_000 + 200


def test_the_block_limit_is_never_under_the_least_even_when_that_is_too_little() -> None:
    assert truncate.block_limit(lengths(4_000), 10**9, ESTIMATOR) == truncate.MIN_BLOCK_LIMIT
    assert truncate.block_limit([], 5, ESTIMATOR) == truncate.MIN_BLOCK_LIMIT
    thought = message({"type": "thinking", "thinking": LONG, "signature": "s"}, role="assistant")
    assert truncate.block_limit([thought], 5, ESTIMATOR) == truncate.MIN_BLOCK_LIMIT
