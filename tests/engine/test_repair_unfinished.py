"""Calls of the provider's own that nobody finished, where their ids repeat (PROTOCOL R30, R32)."""

from __future__ import annotations

import json

from compaction.engine import repair
from tests.engine.strategies import Json, as_messages, assistant, call, request_of, result, text, user


def search(query: str, tool_id: str = "srvtoolu_1") -> Json:
    return {"type": "server_tool_use", "id": tool_id, "name": "web_search", "input": {"query": query}}


def found(tool_id: str = "srvtoolu_1") -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": tool_id, "content": []}


def _shown(*transcript: Json) -> tuple[list[Json], list[tuple[int | None, str]]]:
    outgoing, repairs = repair.repair(as_messages(list(transcript)))
    body = json.loads(request_of(outgoing).body())
    return body["messages"], [(r.seq, r.rule) for r in repairs]


def test_of_two_unfinished_calls_of_one_id_in_a_turn_the_first_is_left_out() -> None:
    shown, repairs = _shown(
        user(text("go")),
        assistant(search("one"), search("two"), call("c")),
        user(result("c")),
    )
    assert shown[1]["content"] == [search("two"), call("c")]
    assert repairs == [(1, "server-tool R30")]


def test_the_result_that_comes_finishes_the_second_call() -> None:
    shown, repairs = _shown(user(text("go")), assistant(search("one"), search("two"), found(), text("so")))
    assert shown[1]["content"] == [search("two"), found(), text("so")]
    assert repairs == [(1, "server-tool R30")]


def test_calls_of_two_ids_may_both_wait() -> None:
    said = assistant(search("one", "srvtoolu_1"), search("two", "srvtoolu_2"), call("c"))
    shown, repairs = _shown(user(text("go")), said, user(result("c")))
    assert (shown[1], repairs) == (said, [])
