"""What every database takes as text or JSON, and names as parts of a JSON pointer."""

from __future__ import annotations

import pytest

from compaction.engine import exact, tokens


@pytest.mark.parametrize(
    "value", ["", "é😀\u2028", "\\u0000", "\\\\u0000", {"a": ["\\u0000", 1.5, None]}, 10**30]
)
def test_what_a_database_takes(value):
    assert exact.storable(value)


@pytest.mark.parametrize(
    "value", ["\0", "\\\0", "\\\\\0", "\ud800", "a\udfffb", {"\0": 1}, {"a": [{"b": "\ud800"}]}]
)
def test_what_no_database_takes(value):
    assert not exact.storable(value)


@pytest.mark.parametrize(
    ("text", "stored"), [("plain é", "plain é"), ("a\0b", "a\ufffdb"), ("\ud800😀", "\ufffd😀")]
)
def test_the_stored_form_is_storable(text, stored):
    assert exact.stored_form(text) == stored
    assert exact.storable(stored)


@pytest.mark.parametrize(("key", "part"), [("name", "name"), ("a/b", "a~1b"), ("~", "~0"), ("~1", "~01")])
def test_names_in_a_pointer_are_escaped(key, part):
    assert exact.pointer_part(key) == part


@pytest.mark.parametrize(("reported", "known"), [(10**8, 10**8), (10**8 + 1, 0), (10**30, 0)])
def test_a_usage_that_no_model_can_have_had_is_unknown(reported, known):
    assert tokens.context_of({"input_tokens": reported}) == known
