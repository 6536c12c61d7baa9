"""What is wrong with messages at append, and with requests before they leave: one example per rule."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from compaction.engine import integrity, validator
from compaction.engine.types import Block, OutgoingMessage, OutgoingRequest
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

# ------------------------------------------------------------------------------------------ shown ids


@pytest.mark.parametrize(
    ("calls", "taken", "shown"),
    [
        (["a", "b"], set(), None),
        ([], {"a"}, None),
        (["a", "b"], {"a"}, ("a_7", "b")),
        (["a", "a", "a"], set(), ("a", "a_7", "a_7_2")),
        (["a"], {"a", "a_7", "a_7_2"}, ("a_7_3",)),
        (["call:1", "call.1"], set(), ("call_1_7", "call_1_7_2")),
        (["", ""], set(), ("toolu_7_0", "toolu_7_1")),
        (["a\n"], set(), ("a__7",)),
    ],
)
def test_calls_are_shown_under_ids_that_are_new_in_the_session(
    calls: list[str], taken: set[str], shown: object
) -> None:
    assert integrity.shown_ids(calls, taken, 7) == shown


# ------------------------------------------------------------------------------------------ malformed


@pytest.mark.parametrize(
    ("role", "content", "pointer"),
    [
        ("system", "hi", "/role"),
        (None, "hi", "/role"),
        (["user"], "hi", "/role"),
        ("user", None, "/content"),
        ("user", {"type": "text"}, "/content"),
        ("user", ["hi"], "/content/0"),
        ("user", [{"text": "no type"}], "/content/0"),
        ("user", [{"type": 3}], "/content/0"),
        ("user", [text("ok"), {"type": "text", "text": 5}], "/content/1/text"),
        ("user", [{"type": "text"}], "/content/0/text"),
        ("assistant", [{"type": "tool_use", "name": "n", "input": {}}], "/content/0/id"),
        ("assistant", [{"type": "tool_use", "id": "a", "name": None, "input": {}}], "/content/0/name"),
        ("assistant", [{"type": "tool_use", "id": "a", "name": "n"}], "/content/0/input"),
        ("user", [{"type": "tool_result", "content": "x"}], "/content/0/tool_use_id"),
        ("user", [result("a", 7)], "/content/0/content"),
        ("user", [result("a", [text("ok"), {"type": "text", "text": None}])], "/content/0/content/1/text"),
        ("user", [result("a", ["x"])], "/content/0/content/0"),
        ("user", [result("a", [call("b")])], "/content/0/content/0"),
        ("user", [result("a", [result("b")])], "/content/0/content/0"),
        ("user", [{"type": "image"}], "/content/0/source"),
        ("user", [{"type": "document", "source": "file"}], "/content/0/source"),
        ("assistant", [{"type": "thinking", "signature": "s"}], "/content/0/thinking"),
        ("assistant", [{"type": "redacted_thinking"}], "/content/0/data"),
        ("assistant", [{"type": "web_search_tool_result"}], "/content/0/tool_use_id"),
        ("assistant", [{"type": "server_tool_use"}], "/content/0/id"),
        ("user", [call("a")], "/content/0"),
        ("user", [thinking("t")], "/content/0"),
        ("assistant", [result("a")], "/content/0"),
    ],
)
def test_a_malformed_message_is_named_by_the_pointer_of_what_is_wrong(
    role: object, content: object, pointer: str
) -> None:
    faults = integrity.malformed(role, content, "/messages/3")
    assert [f["pointer"] for f in faults] == ["/messages/3" + pointer]
    assert faults[0]["detail"]


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("user", ""),
        ("user", []),
        ("user", [text(" ")]),
        ("user", [result("ghost", None)]),
        ("user", [{"type": "tool_result", "tool_use_id": "a"}]),
        ("assistant", [call("a", given="{not json")]),
        ("assistant", [{"type": "tool_use", "id": "", "name": "", "input": None}]),
        ("assistant", [{"type": "thinking", "thinking": ""}]),
        ("user", [{"type": "something_new", "anything": 1}]),
    ],
)
def test_a_broken_but_well_formed_message_is_accepted(role: str, content: object) -> None:
    assert integrity.malformed(role, content, "/messages/0") == []


# ------------------------------------------------------------------------------------------ warnings

ASK = user("go")


@pytest.mark.parametrize(
    ("transcript", "rules", "still_open"),
    [
        ([ASK, assistant(call("a"))], [], ["a"]),
        ([ASK, assistant(call("a"), call("b")), user(result("b"))], [], ["a"]),
        ([ASK, assistant(call("a")), assistant(call("b")), user(result("a")), user(result("b"))], [], []),
        ([ASK, assistant(call("a")), user(" "), user(result("a"))], ["blank-text R4"], []),
        ([ASK, user(result("ghost"))], ["orphan-result R12"], []),
        ([ASK, assistant(call("a")), user(result("a")), user(result("a"))], ["duplicate-result R13"], []),
        ([ASK, assistant(call("a")), user("words"), assistant("hm")], ["missing-result R11"], []),
        (
            [ASK, assistant(call("a"), call("b")), user(result("a")), assistant("hm")],
            ["missing-result R11"],
            [],
        ),
        ([assistant("hi")], ["assistant-first R2"], []),
        ([ASK, {"role": "user", "content": []}], ["empty-message R4"], []),
        ([ASK, assistant(call("a", given="x"))], ["input R17"], ["a"]),
        ([ASK, assistant(call("a")), user(result("a")), assistant(call("a"))], ["id-renamed R10"], ["a"]),
        ([user("half \ud83d")], ["surrogate"], []),
    ],
)
def test_a_broken_transcript_is_answered_with_warnings(
    transcript: list[Any], rules: list[str], still_open: list[str]
) -> None:
    found, open_calls = integrity.warnings(as_messages(transcript))
    assert [w.rule for w in found] == rules
    assert list(open_calls) == still_open


def test_warnings_of_a_later_append_need_only_the_open_calls_and_the_last_role() -> None:
    messages = as_messages([ASK, assistant(call("a")), user("words"), assistant("hm")])
    assert [w.seq for w in integrity.warnings(messages[2:3], ("a",), "assistant")[0]] == [2]
    assert [w.seq for w in integrity.warnings(messages[3:], ("a",), "user")[0]] == [3]
    assert integrity.warnings(messages[3:], ("a",), "assistant") == ([], ("a",))


def test_a_call_of_the_compact_tool_may_stay_without_a_result() -> None:
    messages = as_messages(
        [
            ASK,
            assistant(call("c", "compact_conversation")),
            user("words"),
            user(result("c")),
            user(result("c")),
        ]
    )
    assert [w.rule for w in integrity.warnings(messages[:3])[0]] == ["missing-result R11"]
    found, open_calls = integrity.warnings(messages[:3], compact_tool=True)
    assert found == []
    assert integrity.warnings(messages[3:4], open_calls, "user", compact_tool=True) == ([], ())
    assert [w.rule for w in integrity.warnings(messages[3:], open_calls, "user")[0]] == [
        "duplicate-result R13"
    ]


# ------------------------------------------------------------------------------------------ violations


def _request(transcript: list[dict[str, Any]], **more: Any) -> OutgoingRequest:
    return request_of(
        [OutgoingMessage(m.role, m.blocks, as_text=m.as_text) for m in as_messages(transcript)], **more
    )


ROUND = [ASK, assistant(call("a"), call("b")), user(result("a"), result("b"), "and?")]
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
MARK = {"cache_control": {"type": "ephemeral"}}
TOOL = Block.of({"name": "bash", "input_schema": {"type": "object"}})


@pytest.mark.parametrize(
    "transcript",
    [
        ROUND,
        [ASK, assistant(SEARCH, FOUND, "found"), ASK],
        [ASK, assistant(SEARCH, call("a")), user(result("a"))],
        [ASK, assistant(SEARCH, call("a")), user(result("a")), assistant(FOUND, "found"), ASK],
        [user({**text("m"), **MARK}, MEDIA[0])],
    ],
)
def test_a_valid_request_has_no_violations(transcript: list[dict[str, Any]]) -> None:
    assert validator.violations(_request(transcript)) == []
    judges.strict_check(_request(transcript))


def test_a_compaction_block_of_the_provider_may_open_the_messages() -> None:
    opened = assistant({"type": "compaction", "content": "s"})
    assert validator.violations(_request([opened, ASK])) == []


@pytest.mark.parametrize(
    ("transcript", "rule"),
    [
        ([], "R1"),
        ([assistant("hi"), ASK], "R2"),
        ([ASK, ASK], "R3"),
        ([user(" ")], "R4"),
        ([user(text(""), "x")], "R4"),
        ([ASK, {"role": "assistant", "content": []}, ASK], "R4"),
        ([ASK, assistant(thinking("t")), ASK], "R4"),
        ([ASK, assistant(call("a")), user(result("a", [text("\n")]))], "R4"),
        ([ASK, assistant("hi")], "R5"),
        ([ASK, assistant(call("a")), user(result("a")), assistant(call("a")), user(result("a"))], "R10"),
        ([ASK, assistant(call("a:1")), user(result("a:1"))], "R10"),
        ([ASK, assistant(call("a"), call("b")), user(result("a"))], "R11"),
        ([ASK, assistant(call("a"))], "R11"),
        ([ASK, assistant(call("a")), assistant("x"), user(result("a"))], "R11"),
        ([user(call("a")), assistant("x"), ASK], "R11"),
        ([user(result("ghost"))], "R12"),
        ([ASK, assistant(result("a"), "x"), ASK], "R12"),
        ([ASK, assistant(call("a")), user(result("a"), result("a"))], "R13"),
        ([ASK, assistant(call("a")), user("first", result("a"))], "R14"),
        ([ASK, assistant(call("a")), user(result("a"), "x"), user(result("b"))], "R12"),
        ([ASK, assistant(SEARCH, call("a")), user(result("a"), "words")], "R16"),
        ([ASK, assistant(call("a", given="x")), user(result("a"))], "R17"),
        ([ASK, assistant(call("a", "two words")), user(result("a"))], "R19"),
        ([ASK, assistant(SEARCH, "x"), ASK], "R30"),
        ([ASK, assistant(FOUND, "x"), ASK], "R30"),
        ([ASK, assistant({"type": "thinking", "thinking": "t"}, "x"), ASK], "R40"),
        ([user(*({**text("m"), **MARK} for _ in range(5)))], "R50"),
        ([ASK, assistant({**thinking("t"), **MARK}, "x"), ASK], "R52"),
        ([user("half \udc00")], "UTF-8"),
        ([ASK, assistant(call("a", given={"k\ud800": 1})), user(result("a"))], "UTF-8"),
    ],
)
def test_the_validator_names_the_rule_that_a_request_breaks(
    transcript: list[dict[str, Any]], rule: str
) -> None:
    found = validator.violations(_request(transcript, tools=(TOOL,)))
    assert any(
        rule in violation.replace(":", " ").split() or f"({rule})" in violation for violation in found
    ), found


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tools": ()}, "R18"),
        ({"tools": (TOOL, TOOL)}, "R19"),
        ({"tools": (Block.of({"name": "a b"}),)}, "R19"),
        ({"max_tokens": 0}, "R9"),
        ({"system": (Block.text_of(" "),)}, "R4"),
        ({"memory": (Block.text_of(""),)}, "R4"),
        ({"memory": (replace(Block.text_of(" "), marked=True),)}, "R52"),
        ({"system": (replace(Block.of({**text("m"), **MARK}), marked=True),)}, "R7"),
        ({"system": tuple(replace(Block.text_of("m"), marked=True) for _ in range(5))}, "R50"),
        ({"system": (Block.text_of("\ud800"),)}, "(UTF-8)"),
    ],
)
def test_the_validator_looks_at_everything_around_the_messages(change: dict[str, Any], rule: str) -> None:
    request = replace(_request(ROUND), **change)
    assert [v for v in validator.violations(request) if rule in v]


def test_tools_of_the_providers_own_need_no_name() -> None:
    assert validator.violations(_request(ROUND, tools=(TOOL, Block.of({"type": "mcp_toolset"})))) == []


def test_nested_marks_count_as_breakpoints() -> None:
    marked = [{**text(str(n)), **MARK} for n in range(5)]
    request = _request([ASK, assistant(call("a")), user(result("a", marked))])
    assert [v[:3] for v in validator.violations(request)] == ["R50"]
    assert json.loads(request.body())["messages"][2]["content"][0]["content"] == marked
