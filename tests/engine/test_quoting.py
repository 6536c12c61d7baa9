"""Text from a transcript is cut, marked off and made harmless without changing what it says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import quoting

ANY = st.text(st.characters())
ROWS = st.lists(st.text(alphabet="=`12 \nab", max_size=30), max_size=5)


def test_control_characters_are_shown_and_line_ends_stay() -> None:
    assert quoting.harmless("a\x00\x1b[2J\x7f\x9b\r\n\tb\rc") == "a␀␛[2J␡\ufffd\r\n\tb␍c"


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert quoting.harmless("a\ud800b") == "a\ufffdb"


@given(ANY)
def test_harmless_text_can_be_written_as_utf8_and_stays_as_it_is(text: str) -> None:
    once = quoting.harmless(text)
    assert quoting.harmless(once) == once
    once.encode()


def test_one_line_has_one_line_and_ends_with_an_ellipsis_when_it_was_cut() -> None:
    assert quoting.one_line(" a\n\n b\tc ") == "a b c"
    assert quoting.one_line("abcdef", 4) == "abcd…"


def test_a_short_text_is_not_clipped() -> None:
    assert quoting.clip("x" * 164, 100) == "x" * 164


def test_a_long_text_keeps_head_and_tail_and_says_how_much_is_missing() -> None:
    assert (
        quoting.clip("a" * 500 + "z" * 500, 90)
        == f"{'a' * 60}\n[… 910 of 1,000 characters left out …]\n{'z' * 30}"
    )


def test_a_cut_does_not_split_what_is_seen_as_one_character() -> None:
    assert quoting.boundary("ab\u0301c", 2) == 1
    assert quoting.boundary("👩\u200d👧", 2) == 0
    assert quoting.boundary("👩\u200d👧", 1) == 0
    assert quoting.boundary("x👍\U0001f3fd", 2) == 1
    assert quoting.boundary("x☎\ufe0f", 2) == 1
    assert quoting.boundary("ab", 2) == 2


def test_a_row_of_marks_without_end_still_gives_a_boundary() -> None:
    assert quoting.boundary("a" + "\u0301" * 100, 80) == 64


def test_the_mark_is_the_shortest_that_no_text_contains() -> None:
    assert quoting.mark([]) == "===="
    assert quoting.mark(["=== a"]) == "===="
    assert quoting.mark(["a ==== b"]) == "====1"
    assert quoting.mark(["====1", "=======25"]) == "====3"


@given(ROWS)
def test_no_text_contains_the_mark(texts: list[str]) -> None:
    mark = quoting.mark(texts)
    assert not any(mark in text for text in texts)


@given(st.text(alphabet="`a\n"))
def test_a_fence_is_longer_than_any_row_of_backticks(text: str) -> None:
    fence = quoting.fence(text)
    assert len(fence) >= 3
    assert fence not in text


def test_the_content_of_a_result_is_blocks_whatever_form_it_had() -> None:
    assert list(quoting.result_parts(None)) == []
    assert list(quoting.result_parts("x")) == [{"type": "text", "text": "x"}]
    assert list(quoting.result_parts([{"type": "image"}, 3])) == [
        {"type": "image"},
        {"type": "text", "text": "3"},
    ]


def test_a_media_note_names_type_and_size_or_address() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    page = {
        "type": "document",
        "title": "A\nb",
        "source": {"type": "text", "media_type": "text/plain", "data": "four"},
    }
    assert quoting.media_note(image) == "[image, image/png, 8 bytes]"
    assert quoting.media_note(page) == "[document, A b, text/plain, 4 bytes]"
    assert (
        quoting.media_note({"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}})
        == "[image, https://x.org/a.png]"
    )
    assert quoting.media_note({"type": "image", "source": None}) == "[image]"
