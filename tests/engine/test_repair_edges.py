"""How a shown transcript begins and ends, what is added at its edges, and the public cases as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compaction.engine import repair, validator
from compaction.engine.types import Block, OutgoingMessage, Repair
from tests import judges
from tests.cases import reference
from tests.engine.strategies import as_messages, assistant, call, request_of, result, text, user

CASES = Path(__file__).parents[1] / "cases"
ASK = user("go")


def _shown(transcript: list[dict[str, Any]], **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """(messages as sent, rules of the repairs)."""
    outgoing, repairs = repair.repair(as_messages(transcript), **options)
    return json.loads(request_of(outgoing).body())["messages"], [r.rule for r in repairs]


def missing(tool_id: str) -> dict[str, Any]:
    return result(tool_id, repair.NO_RESULT, is_error=True)


def test_the_head_opens_the_first_user_message_or_stands_alone() -> None:
    lead = (Block.text_of("summary"),)
    assert _shown([ASK], lead=lead) == ([user("summary", "go")], [])
    assert _shown([assistant("hi"), ASK], lead=lead) == ([user(text("summary")), assistant("hi"), ASK], [])
    assert repair.repair([], lead=lead)[0] == (OutgoingMessage("user", lead),)


def test_nothing_to_show_gives_no_messages() -> None:
    assert repair.repair([]) == ((), ())
    assert repair.repair(as_messages([assistant(" ")]), close=True)[0] == ()


def test_a_request_that_would_end_on_the_assistant_is_closed_on_demand() -> None:
    assert _shown([ASK, assistant("done")])[0][-1]["role"] == "assistant"
    shown, rules = _shown([ASK, assistant("done")], close=True)
    assert (shown[-1], rules) == (user(text(repair.CONTINUE)), ["continue R5"])


def test_a_compaction_block_of_the_provider_stays_first() -> None:
    stored = as_messages([assistant({"type": "compaction", "content": "s"}), ASK])
    assert [m.role for m in repair.repair(stored)[0]] == ["assistant", "user"]


def test_the_compact_tool_is_answered_by_hango_only_where_it_is_offered() -> None:
    stored = [ASK, assistant(call("c", "compact_conversation"), call("a"))]
    shown, rules = _shown(stored, compact_tool=True)
    assert shown[-1] == user(result("c", repair.COMPACTED), missing("a"))
    assert rules == ["compact-result R11", "missing-result R11"]
    assert _shown(stored)[0][-1] == user(missing("c"), missing("a"))


def test_a_repair_tells_the_message_it_is_about() -> None:
    _, repairs = repair.repair(as_messages([ASK, assistant("x"), user(result("ghost"))]))
    assert repairs == (Repair(2, "orphan-result R12", "the result of ghost is shown as text"),)


@pytest.mark.parametrize(
    ("stored", "end"),
    [
        ([], "nothing"),
        ([user(" ")], "nothing"),
        ([ASK], "user"),
        ([ASK, assistant("x")], "answer"),
        ([ASK, assistant(" ")], "user"),
        ([ASK, assistant(call("a"))], "calls"),
        ([ASK, assistant(call("a"), call("b")), user(result("a"))], "calls"),
        ([ASK, assistant(call("a"), call("a")), user(result("a"))], "calls"),
        ([ASK, assistant(call("a")), user(result("a"))], "user"),
        ([ASK, assistant(call("a")), user(result("ghost"))], "calls"),
        ([ASK, assistant(call("a")), user("never mind")], "user"),
        ([assistant(call("c", "compact_conversation"))], "user"),
        ([assistant(call("c", "compact_conversation"), call("a"))], "calls"),
    ],
)
def test_the_ending_of_a_transcript_is_named(stored: list[Any], end: str) -> None:
    assert repair.ending(as_messages(stored), compact_tool=True) == end


def test_without_the_compact_tool_its_call_is_awaited_like_any_other() -> None:
    assert repair.ending(as_messages([ASK, assistant(call("c", "compact_conversation"))])) == "calls"


def test_tools_that_the_history_names_get_minimal_definitions() -> None:
    stored = as_messages([ASK, assistant(call("a", "z z"), call("b"), call("c")), user("x")])
    expected = [
        {"name": n, "description": "(not available any more)", "input_schema": {"type": "object"}}
        for n in ("z_z", "bash")
    ]
    assert [b.data for b in repair.missing_tools(stored)] == expected
    assert repair.missing_tools(repair.repair(stored)[0]) == repair.missing_tools(stored)


@pytest.mark.parametrize("path", sorted(CASES.glob("[0-9]*.json")), ids=lambda p: p.stem)
def test_every_public_case_is_shown_validly(path: Path) -> None:
    messages = as_messages([
        m for m in reference.expand(json.loads(path.read_text()).get("messages", [])) if m["role"] != "system"
    ])  # fmt: skip
    outgoing, _ = repair.repair(messages, close=True)
    request = request_of(outgoing)
    # The cases' signatures are made up, which the strict upstream alone can tell.
    refused = [r for r in judges.refusals(request) if "signature" not in r]
    assert (validator.violations(request), refused) == ([], []) or not outgoing
