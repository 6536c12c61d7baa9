"""JSON byte for byte: every value's text is known, and what is not JSON is told as such."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import exact
from compaction.engine.errors import Malformed

TEXT = st.text(st.characters())
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
WRITERS = st.sampled_from([{}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (" , ", " : ")}])


@given(VALUES)
def test_what_is_written_can_be_read_and_sent_as_utf8(value: Any) -> None:
    raw = exact.dumps(value)
    raw.encode()
    assert exact.loads(raw) == value


@given(st.dictionaries(TEXT, VALUES, max_size=4), WRITERS)
def test_the_text_of_every_member_is_found_however_it_was_written(
    value: dict[str, Any], how: dict[str, Any]
) -> None:
    raw = json.dumps(value, **how)
    found = list(exact.members(raw))
    assert [(key, v) for key, v, _, _ in found] == list(value.items())
    assert all(json.loads(raw[start:end]) == v for _, v, start, end in found)
    assert json.loads(exact.with_member(raw, "one more", [1])) == {**value, "one more": [1]}


@given(st.lists(VALUES, max_size=4), WRITERS)
def test_the_text_of_every_element_is_found_however_it_was_written(
    value: list[Any], how: dict[str, Any]
) -> None:
    raw = json.dumps(value, **how)
    found = list(exact.elements(raw))
    assert [v for v, _, _ in found] == value
    assert all(json.loads(raw[start:end]) == v for v, start, end in found)


def test_one_more_member_leaves_the_text_of_the_others_as_it_is() -> None:
    assert exact.with_member("{ }", "k", "é") == '{"k":"é"}'
    assert exact.with_member('{"a":1.50 }\n', "k", None) == '{"a":1.50,"k":null}'


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "nul",
        "[1,]",
        '{"a"}',
        "1 2",
        "NaN",
        "[-Infinity]",
        "[" * 100_000,
        "9" * 5_000,
        '"\x00"',
        '{"a":NaN}',
    ],
    ids=[
        "empty",
        "word",
        "comma",
        "no value",
        "two",
        "NaN",
        "Infinity",
        "deep",
        "digits",
        "control",
        "NaN inside",
    ],
)
def test_what_is_not_json_is_malformed(raw: str) -> None:
    with pytest.raises(Malformed):
        exact.loads(raw)


@pytest.mark.parametrize(
    "raw", ["[]", '{"a"', '{"a":1', '{"a":1 "b":2}', "{a:1}", '{"a\x01":1}', '{"a":1,}', '{"a']
)
def test_what_is_no_object_has_no_members(raw: str) -> None:
    with pytest.raises(Malformed):
        list(exact.members(raw))


@pytest.mark.parametrize("raw", ["{}", "[1", "[1 2]", "[,]"])
def test_what_is_no_array_has_no_elements(raw: str) -> None:
    with pytest.raises(Malformed):
        list(exact.elements(raw))


def test_a_key_that_stands_twice_is_malformed() -> None:
    with pytest.raises(Malformed, match="twice"):
        list(exact.members('{"a":1,"\\u0061":2}'))


@given(TEXT)
def test_lone_surrogates_are_replaced_and_nothing_else(text: str) -> None:
    sound = exact.well_formed(text)
    assert exact.well_formed(sound) == sound
    sound.encode()
    assert len(sound) <= len(text)
    assert (sound == text) == (not any("\ud800" <= c <= "\udfff" for c in text))


@pytest.mark.parametrize(
    ("raw", "may"),
    [('"plain é 🙂"', False), ('"\\ud83d\\ude42"', True), ('"\\uD83D"', True), ('"\ud800"', True)],
)
def test_the_cheap_look_finds_every_surrogate(raw: str, may: bool) -> None:
    assert exact.may_hold_lone_surrogates(raw) is may


@given(VALUES)
def test_what_is_storable_holds_no_nul_and_no_lone_surrogate_anywhere(value: Any) -> None:
    bad = {"\0", *map(chr, range(0xD800, 0xE000))}
    assert exact.storable(value) is bad.isdisjoint(_characters(value))


def _characters(value: Any) -> set[str]:
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return set(value) if isinstance(value, str) else {c for v in inner for c in _characters(v)}


@pytest.mark.parametrize(
    ("value", "may"),
    [
        ("a\0b", False),
        ({"k\0": 1}, False),
        ([{"a": ["\ud83d"]}], False),
        ("written as \\u0000", True),
        ("\\\0", False),
        ("🙂 é", True),
        (None, True),
    ],
)
def test_text_that_only_looks_like_an_escape_is_storable(value: object, may: bool) -> None:
    assert exact.storable(value) is may


@given(TEXT)
def test_the_stored_form_is_storable_and_sound_text_is_its_own(text: str) -> None:
    assert exact.storable(exact.stored_form(text))
    assert not exact.storable(text) or exact.stored_form(text) == text


def test_a_pointers_part_escapes_what_separates_parts() -> None:
    assert exact.pointer_part("a/b~c~1") == "a~1b~0c~01"
