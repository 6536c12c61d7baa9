"""How broken transcripts are shown: one example per rule, and the public cases that taught them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compaction.engine import repair, sendable, validator
from compaction.engine.types import Block, Message, blocks_of
from tests import judges
from tests.engine.strategies import (
    MEDIA,
    as_messages,
    assistant,
    call,
    request_of,
    result,
    text,
    thinking,
    user,
)

ASK = user("go")
MARK = {"cache_control": {"type": "ephemeral"}}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}


def _shown(transcript: list[dict[str, Any]], **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """(messages as sent, rules of the repairs); what is sent has passed validator and judges."""
    outgoing, repairs = repair.repair(as_messages(transcript), **options)
    request = request_of(outgoing)
    if outgoing and outgoing[-1].role == "user":
        assert validator.violations(request) == []
        judges.strict_check(request)
    return json.loads(request.body())["messages"], [r.rule for r in repairs]


def missing(tool_id: str) -> dict[str, Any]:
    return result(tool_id, repair.NO_RESULT, is_error=True)


@pytest.mark.parametrize(
    ("stored", "shown", "rules"),
    [
        pytest.param(
            [ASK, user(text(" "), "x")], [user("go", "x")],
            ["blank-text R4", "joined R3"], id="blank text is left out, neighbours are joined",
        ),
        pytest.param(
            [ASK, assistant(" "), user("still?")], [user("go", "still?")],
            ["blank-text R4", "joined R3"], id="a blank message is left out",
        ),
        pytest.param(
            [ASK, {"role": "assistant", "content": []}, user("still?")], [user("go", "still?")],
            ["empty-message R4", "joined R3"], id="an empty message is left out",
        ),
        pytest.param(
            [ASK, assistant(call("a")), user(result("a", [text(" "), text("x")]))],
            [ASK, assistant(call("a")), user(result("a", [text("x")]))],
            ["blank-text R4"], id="blank text in a result is left out",
        ),
        pytest.param(
            [ASK, assistant(call("a")), user(result("a", [text("")]))], [ASK, assistant(call("a")), user(result("a", "(empty)"))],
            ["blank-text R4"], id="a result of blanks alone says that it is empty",
        ),
        pytest.param(
            [ASK, assistant(call("a")), user(result("a", []))], [ASK, assistant(call("a")), user(result("a", []))],
            [], id="an empty result stays as it is",
        ),
        pytest.param(
            [ASK, assistant(call("a")), user(result("a", None))],
            [ASK, assistant(call("a")), user({"type": "tool_result", "tool_use_id": "a"})],
            ["null-content R21"], id="a null content is left out",
        ),
        pytest.param(
            [ASK, assistant(call("a")), user(result("a")), assistant(call("a"), call("a")), user(result("a", "1"), result("a", "2"))],
            [ASK, assistant(call("a")), user(result("a")), assistant(call("a_3"), call("a_3_2")), user(result("a_3", "1"), result("a_3_2", "2"))],
            ["id-renamed R10", "id-renamed R10"], id="repeated ids are renamed, results follow by position",
        ),
        pytest.param(
            [ASK, assistant(call("a"), call("b")), user(result("b")), user("hm"), user(result("a"))],
            [ASK, assistant(call("a"), call("b")), user(result("b"), result("a"), "hm")],
            ["joined R3", "joined R3", "results-first R14"], id="results of a round stand first, in one message",
        ),
        pytest.param(
            [ASK, assistant(call("a"), call("b")), user(result("b"), "hm")],
            [ASK, assistant(call("a"), call("b")), user(result("b"), missing("a"), "hm")],
            ["missing-result R11"], id="a missing result is made up as an error",
        ),
        pytest.param(
            [ASK, assistant(call("a"))], [ASK, assistant(call("a")), user(missing("a"))],
            ["missing-result R11"], id="calls at the end get a message of results",
        ),
        pytest.param(
            [ASK, assistant("x"), user(result("ghost", "late"))],
            [ASK, assistant("x"), user(text("[Result of a tool call that is not shown: ghost]\nlate"))],
            ["orphan-result R12"], id="an orphan result becomes text",
        ),
        pytest.param(
            [user({"type": "tool_result", "tool_use_id": "ghost"})], [user(text("[Result of a tool call that is not shown: ghost]"))],
            ["orphan-result R12"], id="an orphan result without content too",
        ),
        pytest.param(
            [user(result("ghost", [text("seen"), MEDIA[0], {"type": "tool_reference", "tool_name": "t"}]))],
            [user(text('[Result of a tool call that is not shown: ghost]\nseen\n{"type":"tool_reference","tool_name":"t"}'), MEDIA[0])],
            ["orphan-result R12"], id="an orphan's pictures stay pictures",
        ),
        pytest.param(
            [ASK, assistant(call("a")), user(result("a", "1")), user(result("a", "1"), result("a", "2"))],
            [ASK, assistant(call("a")), user(result("a", "1"), text("[Result of a tool call that is not shown: a]\n2"))],
            ["joined R3", "duplicate-result R13", "orphan-result R12"], id="an equal second result is dropped, another one told",
        ),
        pytest.param(
            [ASK, assistant(call("a", given=' {"k": 1}')), user(result("a"))], [ASK, assistant(call("a", given={"k": 1})), user(result("a"))],
            ["input R17"], id="an input that spells an object is that object",
        ),
        pytest.param(
            [ASK, assistant(call("a", given="ls"), call("b", given=" "), call("c", given=[1])), user(result("a"), result("b"), result("c"))],
            [ASK, assistant(call("a", given={"_raw": "ls"}), call("b"), call("c", given={"_raw": [1]})), user(result("a"), result("b"), result("c"))],
            ["input R17"] * 3, id="other inputs are wrapped",
        ),
        pytest.param(
            [ASK, assistant({**call("a"), "input": None}), user(result("a"))], [ASK, assistant(call("a")), user(result("a"))],
            ["input R17"], id="a null input is an empty object",
        ),
        pytest.param(
            [ASK, assistant(call("a", "my tool"), call("b", "")), user(result("a"), result("b"))],
            [ASK, assistant(call("a", "my_tool"), call("b", "unnamed")), user(result("a"), result("b"))],
            ["tool-name R19"] * 2, id="tool names are made valid",
        ),
        pytest.param(
            [user("half \ud83d, whole 🙂, \\ud800")], [user("half \ufffd, whole 🙂, \\ud800")],
            ["surrogate"], id="a lone surrogate is replaced, a bare string stays one",
        ),
        pytest.param(
            [ASK, assistant(thinking("t")), user("b")], [user("go", "b")],
            ["thinking-only R4", "joined R3"], id="a turn of thinking alone is left out",
        ),
        pytest.param(
            [ASK, assistant(thinking("t")), assistant(" ", call("a")), user(result("a"))],
            [ASK, assistant(thinking("t"), call("a")), user(result("a"))],
            ["blank-text R4", "joined R3"], id="thinking that a runtime stored apart stays with its turn",
        ),
        pytest.param(
            [ASK, assistant({"type": "thinking", "thinking": "t"}, {**thinking("x"), "thinking": "\ud800"}, "a"), ASK],
            [ASK, assistant(text("a")), ASK], ["thinking R40", "thinking R40"], id="thinking that cannot be sent is left out, never edited",
        ),
        pytest.param(
            [ASK, assistant(MEDIA[1], "x"), ASK], [ASK, assistant("[The assistant's document is not shown here.]", "x"), ASK],
            ["assistant-document"], id="a document of the assistant is named",
        ),
        pytest.param(
            [user({**text("cited"), "citations": [{"type": "char_location"}]})], [user(text("cited"))],
            ["user-citations"], id="citations in user text are left out",
        ),
        pytest.param(
            [ASK, assistant(SEARCH, "x"), ASK], [ASK, assistant(text("x")), ASK], ["server-tool R30"], id="a server call without its result",
        ),
        pytest.param(
            [ASK, assistant(FOUND), ASK], [user("go", "go")], ["server-tool R30", "joined R3"], id="a server result without its call",
        ),
        pytest.param(
            [ASK, assistant(SEARCH, call("a")), user(result("a"), "words")], [ASK, assistant(call("a")), user(result("a"), "words")],
            ["server-tool R30"], id="words end an unfinished server call",
        ),
        pytest.param(
            [ASK, assistant(SEARCH, call("a")), user(result("a"), result("ghost", "x"))],
            [ASK, assistant(call("a")), user(result("a"), text("[Result of a tool call that is not shown: ghost]\nx"))],
            ["server-tool R30", "orphan-result R12"], id="an orphan result counts as words",
        ),
        pytest.param(
            [ASK, assistant(SEARCH, call("a")), user(result("a")), assistant(FOUND, "x"), ASK],
            [ASK, assistant(SEARCH, call("a")), user(result("a")), assistant(FOUND, "x"), ASK],
            [], id="a server call may be finished in the next turn",
        ),
        pytest.param(
            [assistant("hi"), ASK], [user(text(repair.OPENING)), assistant("hi"), ASK], ["first-user R2"], id="the user speaks first",
        ),
    ],
)  # fmt: skip
def test_what_is_broken_is_shown_repaired(stored: list[Any], shown: list[Any], rules: list[str]) -> None:
    assert _shown(stored) == (shown, rules)


def test_the_clients_cache_control_is_taken_off_and_is_no_repair() -> None:
    stored = [
        user({**text("a"), **MARK}),
        assistant({**call("x"), **MARK}),
        user({**result("x", [{**text("b"), **MARK}]), **MARK}),
    ]
    assert _shown(stored) == ([user(text("a")), assistant(call("x")), user(result("x", [text("b")]))], [])


def test_an_argument_named_cache_control_is_not_a_mark() -> None:
    stored = [ASK, assistant(call("a", given=MARK)), user(result("a", [text('"cache_control"')]))]
    assert _shown(stored) == (stored, [])


def test_what_is_repaired_keeps_every_other_byte() -> None:
    raw = '[ {"type": "tool_use", "name":"bash", "id":"a" , "input": {"n": 1.50e3, "s": "\\u00e9\\/"}} ]'
    first = Message(1, "assistant", blocks_of(raw)[0])
    again = Message(3, "assistant", blocks_of(raw)[0], shown_ids=("a_3",))
    done = Message(2, "user", as_messages([user(result("a"))])[0].blocks)
    outgoing, _ = repair.repair([*as_messages([ASK]), first, done, again])
    assert outgoing[1].blocks[0].raw == raw[2:-2]
    assert (
        outgoing[3].blocks[0].raw
        == '{"type":"tool_use","name":"bash","id":"a_3","input":{"n": 1.50e3, "s": "\\u00e9\\/"}}'
    )


def test_ids_that_were_never_decided_are_made_unique_all_the_same() -> None:
    stored = [
        Message(m.seq, m.role, m.blocks)
        for m in as_messages([ASK, assistant(call("a")), user(result("a"))] * 2)
    ]
    outgoing, _ = repair.repair(stored)
    assert [b.data["id"] for m in outgoing for b in m.blocks if b.kind == "tool_use"] == ["a", "a_4"]


def test_a_key_that_stands_twice_counts_as_it_was_read() -> None:
    block = Block(
        '{"type":"text","text":"old","text":"new","cache_control":1}',
        {"type": "text", "text": "new", "cache_control": 1},
    )
    assert sendable.plain(block).raw == '{"type":"text","text":"new"}'


def test_system_blocks_and_tools_are_made_plain() -> None:
    block = Block.of({**text("half \udfff"), **MARK})
    assert sendable.plain(block) == Block.text_of("half \ufffd")
    whole = Block('{"type":"text","text":"\\ud83d\\ude00"}', text("😀"))
    assert sendable.plain(whole) is whole


def test_breakpoints_move_with_their_blocks() -> None:
    stored = as_messages([ASK, assistant(call("a")), user("x", result("a"), result("ghost", [MEDIA[0]]))])
    marked = [
        Message(
            m.seq,
            m.role,
            tuple(Block(b.raw, b.data, True) for b in m.blocks),
            shown_ids=("z",) if m.calls else None,
        )
        for m in stored
    ]
    outgoing, _ = repair.repair(marked)
    assert [(b.kind, b.marked) for b in outgoing[2].blocks] == [
        ("tool_result", True),
        ("text", True),
        ("text", False),
        ("image", True),
    ]
    assert outgoing[1].blocks[0].marked
