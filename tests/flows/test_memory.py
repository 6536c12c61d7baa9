"""Memory after the breakpoint (SPEC F11): in `system`, or within the messages where a change costs no earlier one its cache."""

import itertools
import json

import pytest

from compaction import desk
from tests.flows.runtime import shown_text, text


def memory(value):
    return json.dumps(text(value))


def places(built, mark="MEMORY"):
    """(message, block, text) of each memory block within the messages."""
    return [
        (i, j, b["text"])
        for i, m in enumerate(json.loads(built.body)["messages"])
        for j, b in enumerate(m["content"] if isinstance(m["content"], list) else [])
        if b["type"] == "text" and b["text"].startswith(mark)
    ]


def marked(built):
    """System texts, and whether each carries a breakpoint."""
    system = json.loads(built.body)["system"]
    return [
        (b["text"], "cache_control" in b) for b in ([text(system)[0]] if isinstance(system, str) else system)
    ]


def rebuilt(runtime):
    """Every turn's request, from the records, is what was sent."""
    for number, built in runtime.sent.items():
        assert desk.rebuild(runtime.turn(number)) == built.body, number


# --- within the messages


def test_memory_that_changes_costs_no_earlier_message_its_cache(start):
    runtime = start(60_000, memory_placement="message")
    builds = []
    for n in range(12):
        runtime.say(f"Question {n}.")
        builds.append(runtime.build(memory=memory(f"MEMORY-{n // 2}")))
        runtime.complete(f"Answer {n}.")
    for earlier, later in itertools.pairwise(builds):
        assert not later.prefix_changed
        one, two = earlier.shown.request.elements(), later.shown.request.elements()
        assert two[: len(one)] == one
    assert "MEMORY" not in json.dumps(json.loads(builds[-1].body)["system"])
    # Each stands where it was new, and stays: the newest speaks for now.
    assert [value for _, _, value in places(builds[-1])] == [f"MEMORY-{n}" for n in range(6)]
    rebuilt(runtime)


def test_it_stands_after_the_results_and_before_the_users_words(start):
    runtime = start(memory_placement="message")
    runtime.say("Read.")
    runtime.build(memory=memory("MEMORY-1"))
    runtime.round(30, "RESULT")
    built = runtime.build(memory=memory("MEMORY-2"))
    last = json.loads(built.body)["messages"][-1]["content"]
    assert [b["type"] for b in last] == ["tool_result", "text"]
    assert last[1]["text"] == "MEMORY-2"
    first = json.loads(built.body)["messages"][0]["content"]
    assert [b["text"] for b in first] == ["MEMORY-1", "Read."]


def test_memory_that_was_evicted_is_placed_again(start, provider):
    runtime = start(memory_placement="message", limits={"precompute_frac": None, "max_wait_s": 20})
    runtime.say("Begin.")
    runtime.build(memory=memory("MEMORY-1"))
    runtime.complete("Yes.")
    runtime.exchanges(30)
    runtime.say("And now?")
    provider.play("SUMMARY")
    built = runtime.build()
    assert built.turn.adopted
    assert built.shown.view.first_seq > 0
    ((_, _, value),) = places(built)
    assert value == "MEMORY-1"
    assert shown_text(built).index("SUMMARY") < shown_text(built).index("MEMORY-1")
    runtime.complete("Good.")
    following = runtime.exchange("And?", "Yes.")
    assert not following.prefix_changed
    assert [value for _, _, value in places(following)] == ["MEMORY-1"]
    rebuilt(runtime)


def test_what_was_placed_and_is_kept_by_a_swap_stays_where_it_is(start, provider):
    runtime = start(memory_placement="message", limits={"precompute_frac": None, "max_wait_s": 20})
    runtime.exchanges(22)
    runtime.say("Remember this.")
    runtime.build(memory=memory("MEMORY-1"))
    runtime.complete("I do.")
    runtime.request_job()
    runtime.work()
    runtime.say("And now?")
    built = runtime.build()
    assert built.turn.adopted
    ((_, _, value),) = places(built)
    assert value == "MEMORY-1"
    assert "Remember this." in shown_text(built)
    assert shown_text(built).index("MEMORY-1") < shown_text(built).index("Remember this.")
    rebuilt(runtime)


def test_another_memory_within_the_same_turn_takes_the_place_of_the_first(start):
    runtime = start(memory_placement="message")
    runtime.say("Hello.")
    runtime.build(memory=memory("MEMORY-1"))
    built = runtime.build(memory=memory("MEMORY-2"))
    assert built.turn.number == 1
    assert [value for _, _, value in places(built)] == ["MEMORY-2"]
    rebuilt(runtime)


def test_the_transcript_holds_none_of_it(start):
    runtime = start(memory_placement="message")
    runtime.say("Hello.")
    runtime.build(memory=memory("MEMORY-1"))
    runtime.complete("Hi.")
    assert "MEMORY" not in json.dumps([r["content"] for r in runtime.rows()])


def test_the_budget_weighs_it(start):
    runtime = start(memory_placement="message")
    runtime.say("Hello.")
    small = runtime.build().shown.tokens
    large = runtime.build(memory=memory("MEMORY " + "and more of it " * 100)).shown.tokens
    assert 300 < large - small < 600


# --- in system


def test_in_system_a_change_comes_after_the_breakpoint(start):
    runtime = start(memory_placement="system", system='[{"type":"text","text":"STABLE"}]')
    runtime.say("Hello.")
    one = runtime.build(memory=memory("MEMORY-1"))
    runtime.complete("Hi.")
    runtime.say("And?")
    two = runtime.build(memory=memory("MEMORY-2"))
    assert marked(one) == [("STABLE", True), ("MEMORY-1", False)]
    assert marked(two) == [("STABLE", True), ("MEMORY-2", False)]
    assert places(two) == []
    assert not two.prefix_changed  # memory is no part of what is compared
    rebuilt(runtime)


# --- in both


@pytest.mark.parametrize("placement", ["system", "message"])
def test_memory_that_is_not_given_is_the_last_turns_bytes(start, placement):
    odd = '[{"text" : "MEMORY caf\\u00e9 \\/","type":"text"}]'
    runtime = start(memory_placement=placement)
    runtime.say("Hello.")
    one = runtime.build(memory=odd)
    runtime.complete("Hi.")
    two = runtime.exchange("And?", "Yes.")
    three = runtime.exchange("So?", "Yes.")
    for built in (one, two, three):
        assert built.body.count('{"text" : "MEMORY caf\\u00e9 \\/","type":"text"}') == 1
        assert not built.prefix_changed
    assert two.turn.frame_id == one.turn.frame_id
    rebuilt(runtime)


@pytest.mark.parametrize("placement", ["system", "message"])
def test_past_requests_are_rebuilt_over_changes_of_memory_swaps_and_failures(start, provider, placement):
    runtime = start(10_000, memory_placement=placement)
    for n in range(40):
        runtime.say(f"LINE-{n} " + "plain old words " * 80)
        given = {} if n % 3 else {"memory": memory(f"MEMORY-{n}")}
        built = runtime.build(**given)
        now = n - n % 3
        assert f"MEMORY-{now}" in built.body
        if n in (17, 31):
            runtime.overflow()
        runtime.complete("Yes.")
        runtime.work()
    assert runtime.fresh().compactions >= 2
    rebuilt(runtime)


@pytest.mark.parametrize("placement", ["system", "message"])
def test_memory_that_is_taken_back_is_shown_nowhere(start, placement):
    runtime = start(memory_placement=placement)
    runtime.say("Hello.")
    runtime.build(memory=memory("MEMORY-1"))
    runtime.complete("Hi.")
    runtime.say("And?")
    runtime.build(memory=memory("MEMORY-2"))
    runtime.complete("Yes.")
    runtime.say("Forget that.")
    assert "MEMORY" not in runtime.build(memory="").body
    runtime.complete("Done.")
    assert "MEMORY" not in runtime.exchange("Sure?", "Yes.").body
    runtime.say("Now then.")
    assert runtime.build(memory=memory("MEMORY-3")).body.count("MEMORY") == 1
    rebuilt(runtime)


def test_a_change_of_placement_is_a_new_frame_and_the_past_stays(start):
    runtime = start(memory_placement="system")
    runtime.say("Hello.")
    runtime.build(memory=memory("MEMORY-1"))
    runtime.complete("Hi.")
    runtime.session.memory_placement = "message"
    runtime.session.save(update_fields=["memory_placement"])
    built = runtime.exchange("And?", "Yes.")
    assert [value for _, _, value in places(built)] == ["MEMORY-1"]
    runtime.session.memory_placement = "system"
    runtime.session.save(update_fields=["memory_placement"])
    back = runtime.exchange("And?", "Yes.")
    assert places(back) == []
    rebuilt(runtime)
