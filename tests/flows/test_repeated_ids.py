"""Tool ids come back in real transcripts: shown as unique ones, decided once (DESIGN 5, Pairs)."""

import json

from compaction import desk
from tests.flows.runtime import new, result, text, use, words


def shown_ids(built):
    return [
        b["id"] for m in json.loads(built.body)["messages"] for b in m["content"] if b["type"] == "tool_use"
    ]


def test_an_id_used_three_times_is_shown_unique_and_stays_so_over_later_turns(start):
    runtime = start(40_000)
    runtime.say("Call it often.")
    for _ in range(3):
        runtime.round(40, tool_id="toolu_1")
    first = runtime.build()
    ids = shown_ids(first)
    assert len(ids) == len(set(ids)) == 3
    calls = [r["seq"] for r in runtime.rows() if r["role"] == "assistant"]
    assert ids == ["toolu_1", f"toolu_1_{calls[1]}", f"toolu_1_{calls[2]}"]
    runtime.complete("Enough.")
    for n in range(10):
        runtime.say(f"Next {n}.")
        built = runtime.build()
        assert shown_ids(built) == ids
        assert not built.prefix_changed
        runtime.complete("Yes.")
    stored = [b["id"] for r in runtime.rows() for b in json.loads(r["content"]) if b["type"] == "tool_use"]
    assert stored == ["toolu_1"] * 3


def test_the_shown_id_does_not_depend_on_what_was_evicted(start, provider):
    """The first use is summarised away; the second keeps the name it was first shown under."""
    runtime = start()
    runtime.say("Begin.")
    runtime.round(30, tool_id="toolu_1")
    runtime.build()
    runtime.complete("Good.")
    runtime.exchanges(18)
    runtime.say("Again.")
    runtime.round(30, tool_id="toolu_1")
    before = shown_ids(runtime.build())[-1]
    assert before != "toolu_1"
    runtime.complete("Good.")
    runtime.request_job()
    runtime.work()
    runtime.say("And?")
    built = runtime.build()
    assert built.turn.adopted
    assert shown_ids(built)[-1:] in ([before], [])
    for number, sent in runtime.sent.items():
        assert desk.rebuild(runtime.turn(number)) == sent.body


def test_a_later_id_that_looks_like_a_shown_one_is_told_apart(start):
    runtime = start(40_000)
    runtime.say("Call.")
    runtime.round(30, tool_id="a")
    runtime.round(30, tool_id="a")  # is shown as a_3
    runtime.round(30, tool_id="a_3")
    runtime.round(30, tool_id="a")
    ids = shown_ids(runtime.build())
    assert len(ids) == len(set(ids)) == 4


def test_one_message_with_the_same_id_twice_and_results_in_any_order(start):
    runtime = start(40_000)
    runtime.append(
        new("user", text("Call.")),
        new("assistant", [use("x", path="1"), use("y", path="2"), use("x", path="3")]),
        new(
            "user",
            [result("x", words(10, "one")), result("x", words(10, "three")), result("y", words(10, "two"))],
        ),
        new("assistant", text("Good.")),
        new("user", text("And?")),
    )
    ids = shown_ids(runtime.build())
    assert len(ids) == len(set(ids)) == 3
