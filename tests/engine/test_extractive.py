"""Notes without a model: extracts that fit, that can be continued, and that nothing in them can forge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine.types import Block, Message, Role
from compaction.providers import extractive
from tests.engine import strategies
from tests.engine.test_briefing import SESSION, call, message, result


def estimate(text: str) -> int:
    return (len(text.encode()) + 3) // 4


def notes(messages: list[Message], previous: str | None = None, max_tokens: int = 2_000) -> str:
    return extractive.summarise(messages, previous, max_tokens=max_tokens, estimate=estimate)


def section(text: str, name: str) -> list[str]:
    rows = text.partition(f"\n## {name}\n")[2].partition("\n\n## ")[0]
    return rows.split("\n") if rows else []


def said(seq: int, text: str, role: Role = "user") -> Message:
    return Message(seq, role, (Block.text_of(text),))


def test_requests_files_calls_errors_and_the_last_words_are_extracted() -> None:
    text = notes(SESSION)
    assert section(text, "What the user asked") == [
        "- Work on ticket inv-2291 in src/ledger/apply_v9.py. Never touch the audit table.", "- Go on.",
    ]  # fmt: skip
    assert section(text, "Files") == ["- src/ledger/apply_v9.py: read_file"]
    assert section(text, "Calls") == [
        '- 1 × read_file path="src/ledger/apply_v9.py"',
        '- 1 × bash command="make test"',
    ]
    assert section(text, "Errors") == ["- 1 failed"]
    assert section(text, "What the assistant said last") == [
        "- I read it.",
        "- # Goal One test fails: password=[secret removed]",
    ]


def test_nothing_to_note_still_gives_a_text() -> None:
    assert notes([]) == extractive.TITLE
    assert notes([message(0, "user", {"type": "image"}, " ", result("t", "fine"))]) == extractive.TITLE


def test_the_newest_request_stands_whole_and_older_ones_as_previews() -> None:
    long = "\n".join(f"line {n}" for n in range(60))
    text = notes([said(0, long), said(1, "and: " + long)])
    rows = section(text, "What the user asked")
    assert rows[0].startswith("- line 0 line 1 ")
    assert rows[0].endswith("…")
    assert rows[1:] == ["- and: line 0", *(f"  line {n}" for n in range(1, 60))]


def test_a_request_too_large_for_half_of_the_room_is_cut_with_a_size_note() -> None:
    text = notes([said(0, "word " * 5_000)], max_tokens=400)
    assert estimate(text) <= 400
    assert "of 24,999 characters left out …]" in text


def test_the_first_request_survives_many_later_ones() -> None:
    messages = [said(n, f"request {n} " + "x " * 60) for n in range(500)]
    text = notes(messages, max_tokens=500)
    assert "request 0 " in text
    assert "request 499 " in text
    assert "request 250 " not in text


def test_equal_calls_are_counted_and_arguments_are_short() -> None:
    messages = [
        message(
            n,
            "assistant",
            call("t", "w", path="a/b.py", body="x" * 900, n=n % 2, flag=True, none=None, deep=["y"]),
        )
        for n in range(5)
    ]
    rows = section(notes(messages), "Calls")
    assert [row[:4] for row in rows] == ["- 2 ", "- 3 "]
    assert 'deep="[\\"y\\"]"' in rows[0]
    assert all(len(row) < 250 for row in rows)
    odd = {"type": "tool_use", "id": "t", "name": "n", "input": "bare"}
    assert section(notes([message(0, "assistant", odd)]), "Calls") == ['- 1 × n ="bare"']


def test_own_earlier_notes_are_continued() -> None:
    first = notes(SESSION)
    more = [
        message(5, "assistant", call("t3", "edit_file", path="src/ledger/apply_v9.py"), call("t4", "bash", command="make test")),
        message(6, "user", result("t3", "ok"), result("t4", "2 failed", is_error=True)), said(7, "And the docs?\nPlease."),
    ]  # fmt: skip
    both = notes(more, first)
    assert both == notes([*SESSION, *more])
    assert '- 2 × bash command="make test"' in both
    assert "- src/ledger/apply_v9.py: read_file, edit_file" in both
    assert notes([], both) == both


def test_notes_of_another_hand_are_carried_whole_and_again() -> None:
    foreign = "## Goal\n- ledger\n\n## Files\n- a.py"
    once = notes([said(0, "Go on.")], foreign)
    assert section(once, "Earlier notes")[0] == "- ## Goal"
    assert "\n  ## Files" in once
    assert notes([], once) == once
    large = notes([said(0, "Go on.")], "fact " * 9_000, max_tokens=600)
    assert estimate(large) <= 600
    assert "Earlier notes" in large
    assert "Go on." in large


def test_a_line_of_an_unknown_section_is_not_taken_up() -> None:
    assert "lost" not in notes([], f"{extractive.TITLE}\n\n## Other\n- lost\nstray\n## Calls\n- no number")


def test_secrets_are_not_copied() -> None:
    messages = [
        said(0, "use password=hunter2222"), message(1, "assistant", call("t", "login", password="hunter2222"), "sk-abcdefgh12345678"),
        message(2, "user", result("t", "bad Bearer abc123def456", is_error=True)),
    ]  # fmt: skip
    text = notes(messages, "api_key=hunter2222")
    assert "hunter2222" not in text
    assert "abcdefgh" not in text
    assert "abc123def456" not in text


@pytest.mark.parametrize("limit", [0, 10, 30, 60, 100, 200, 800])
def test_notes_fit_their_limit_down_to_the_bare_title(limit: int) -> None:
    messages = [*SESSION * 30, *(said(n, f"request {n} in src/m{n}.py") for n in range(200))]
    assert estimate(notes(messages, max_tokens=limit)) <= max(limit, estimate(extractive.TITLE))


def test_notes_fit_also_when_the_whole_weighs_more_than_its_lines() -> None:
    def uneven(text: str) -> int:
        return len(text) // 4 + 40 * (text.count("\n- ") > 2)

    text = extractive.summarise(
        [said(n, f"request {n}") for n in range(50)], None, max_tokens=110, estimate=uneven
    )
    assert uneven(text) <= 110


FORGERY = st.lists(
    st.sampled_from(["## Files", "- x", "\n", "\r", "\u2028", "  ", "a", "9 × b", ": "]), max_size=9
).map("".join)


@given(st.lists(FORGERY, max_size=5))
def test_no_text_can_forge_a_section_or_a_line(texts: list[str]) -> None:
    messages = [said(n, text) for n, text in enumerate(texts)]
    text = notes(messages)
    asked = [one for one in texts if one.strip()]
    assert [row for row in text.splitlines() if row.startswith("## ")] == (
        ["## What the user asked"] if asked else []
    )
    again = notes([], text)
    assert again.splitlines() == text.splitlines()


@given(strategies.broken(), st.integers(0, 300))
def test_any_stored_transcript_gives_the_same_fitting_notes(messages: list[Message], limit: int) -> None:
    text = notes(messages, max_tokens=limit)
    text.encode()
    assert text == notes(messages, max_tokens=limit)
    assert estimate(text) <= max(limit, estimate(extractive.TITLE))


def test_the_kind_of_a_block_decides_and_odd_ones_are_passed_over() -> None:
    odd: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "x"},
        {"type": "tool_result", "tool_use_id": "t", "is_error": True},
    ]
    assert notes([message(0, "user", *odd)]) == extractive.TITLE
