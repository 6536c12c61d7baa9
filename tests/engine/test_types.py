"""The plain values: stored text beside what it means."""

from __future__ import annotations

import dataclasses

import pytest

from compaction.engine.types import (
    Block,
    Head,
    Message,
    OutgoingMessage,
    OutgoingRequest,
    View,
    blocks_of,
    digest_of,
)
from tests.engine.strategies import MEDIA, as_messages, assistant, call, result, text, user


def test_blocks_keep_their_exact_text() -> None:
    raw = '[ {"type":"text", "text":"caf\\u00e9"} ,{"type":"x","n":1.0} ]'
    blocks, as_text = blocks_of(raw)
    assert [b.raw for b in blocks] == ['{"type":"text", "text":"caf\\u00e9"}', '{"type":"x","n":1.0}']
    assert (blocks[0].text, blocks[1].text, blocks[1].kind, as_text) == ("café", "", "x", False)
    assert blocks_of("[]") == ((), False)


def test_a_bare_string_is_one_text_block_with_its_own_escapes() -> None:
    blocks, as_text = blocks_of(' "a\\/b" ')
    assert as_text
    assert [(b.raw, b.text) for b in blocks] == [('{"type":"text","text":"a\\/b"}', "a/b")]


@pytest.mark.parametrize(
    "data", [{"type": "text"}, {"type": "text", "text": 3}, {"type": "image", "text": "no"}, {}]
)
def test_a_block_without_text_has_an_empty_one(data: dict[str, object]) -> None:
    assert Block.of(data).text == ""


def test_blocks_are_equal_by_their_text_and_mark() -> None:
    assert Block.text_of("a") == Block('{"type":"text","text":"a"}', {})
    assert Block.text_of("a") != dataclasses.replace(Block.text_of("a"), marked=True)


def test_calls_belong_to_the_assistant_and_results_to_the_user() -> None:
    one, two = as_messages([assistant("hm", call("t")), user(result("t"), "go on")])
    assert ([b.data["id"] for b in one.calls], one.results) == (["t"], [])
    assert (two.calls, [b.data["tool_use_id"] for b in two.results]) == ([], ["t"])
    swapped = dataclasses.replace(one, role="user")
    assert swapped.calls == []


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        (user("go"), True),
        (user(MEDIA[0]), True),
        (user(result("t"), "go"), True),
        (user(result("t", "words")), False),
        (user(text(" \n")), False),
        (user(" "), False),
        ({"role": "user", "content": []}, False),
        (assistant("go"), False),
    ],
)
def test_a_message_asks_when_it_has_words_or_pictures_of_the_user(
    said: dict[str, object], asks: bool
) -> None:
    (message,) = as_messages([said])
    assert message.asks is asks


def test_the_head_has_a_block_for_each_part_that_there_is() -> None:
    assert Head().blocks == ()
    assert [b.text for b in Head("s", "d").blocks] == ["s", "d"]
    assert [b.text for b in Head(dropped="d").blocks] == ["d"]


def test_a_request_is_written_without_the_parts_that_it_has_not() -> None:
    a, b = Block.text_of("a"), dataclasses.replace(Block.text_of("b"), marked=True)
    said = (OutgoingMessage("user", (a,), (0,), as_text=True), OutgoingMessage("assistant", (a, b)))
    bare = OutgoingRequest("m", 5, (), (), said)
    assert bare.body() == (
        '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":['
        '{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]}]}'
    )
    assert bare.elements() == ["u" + a.raw, "a" + a.raw, "a" + b.raw]
    full = dataclasses.replace(bare, system=(a,), tools=(b,), memory=(b,), messages=())
    assert full.body().startswith('{"model":"m","max_tokens":5,"system":[{"type":"text","text":"a"},')
    assert full.elements() == ["t" + b.raw, "s" + a.raw]


def test_values_are_frozen_and_a_view_shows_nothing_until_told() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        View().last_seq = 3  # type: ignore[misc]
    assert View().last_seq == -1
    assert Message(0, "user", ()).tokens == 0


def test_a_digest_is_of_the_utf8_bytes_whatever_the_text_holds() -> None:
    assert digest_of("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert len({digest_of("\ud800"), digest_of("\ud801"), digest_of("é")}) == 3
