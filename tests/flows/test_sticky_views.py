"""What a turn was shown stays as it was for the turns after it, element by element, until a swap (DESIGN 3, Turn)."""

import itertools
import json

from compaction import desk, turns
from compaction.models import Turn
from tests.flows.runtime import new, result, text, use, words


def elements(built):
    return built.shown.request.elements()


def is_prefix(earlier, later):
    return elements(later)[: len(elements(earlier))] == elements(earlier)


def test_over_60_turns_without_a_swap_each_request_begins_with_the_one_before(start):
    runtime = start(60_000)
    runtime.say("Read the whole tree.")
    for n in range(60):
        runtime.round(40 + n % 5 * 20, f"RESULT-{n}")
    builds = [runtime.sent[n] for n in sorted(runtime.sent)]
    assert len(builds) == 60
    for earlier, later in itertools.pairwise(builds):
        assert is_prefix(earlier, later)
        assert not later.prefix_changed
    assert {b.turn.compaction_id for b in builds} == {None}


def test_with_swaps_only_the_turns_that_swap_change_the_prefix(start, provider):
    runtime = start(10_000)
    runtime.say("Read the whole tree.")
    for n in range(60):
        runtime.round(200, f"RESULT-{n}")
        runtime.work()
    builds = [runtime.sent[n] for n in sorted(runtime.sent)]
    swaps = [b.turn.number for b in builds if b.turn.adopted]
    assert len(swaps) >= 2
    for earlier, later in itertools.pairwise(builds):
        assert is_prefix(earlier, later) == (not later.prefix_changed)
        # Cutting old results is the other change there is, and it happens at the trigger alone (SPEC F4).
        cut = later.turn.args_cut_before > earlier.turn.args_cut_before
        assert later.prefix_changed == (later.turn.adopted or cut), later.turn.number
    assert sum(b.prefix_changed for b in builds) <= 2 * len(swaps)


def borderline(start):
    """Big results of old calls: cutting them clears the trigger by itself."""
    runtime = start(12_000, limits={"tool_arg_max_tokens": 100, "precompute_frac": None})
    runtime.say("Read the big ones.")
    while True:
        built = runtime.round(1_500, "BIG")
        if built.turn.args_cut_before:
            return runtime, built


def test_cutting_old_results_alone_keeps_a_borderline_session_under_the_trigger_with_no_summary(
    start, provider
):
    runtime, built = borderline(start)
    assert built.shown.request.truncated > 0
    assert built.shown.size <= built.lines.clear
    assert built.compaction is None
    assert runtime.compactions() == []
    assert provider.calls == []
    assert built.prefix_changed


def test_what_was_cut_stays_cut_for_later_turns_and_after_a_failed_one(start):
    runtime, built = borderline(start)
    cut = built.turn.args_cut_before
    following = runtime.round(50)
    assert (following.turn.args_cut_before, following.prefix_changed) == (cut, False)
    built = runtime.build()
    assert not built.prefix_changed
    view = built.shown.view
    Turn.objects.filter(pk=built.turn.pk).update(status="open")
    assert turns.fail(runtime.session, runtime.turn(built.turn.number))
    after = runtime.build()
    assert after.turn.number == built.turn.number + 1
    assert after.shown.view == view
    assert (after.prefix_changed, is_prefix(built, after)) == (False, True)


def test_what_was_dropped_stays_dropped_also_after_a_failed_turn_and_the_next_summary_covers_it(
    start, provider
):
    runtime = start(12_000, limits={"precompute_frac": None})
    runtime.exchanges(12, 400)
    runtime.say("Go on.")
    first = runtime.build()
    climbed = [runtime.overflow() for _ in range(3)]
    assert [c.rung for c in climbed[:2]] in (["overflow", "truncate"], ["truncate", "truncate"])
    assert climbed[-1].built is None
    failed = runtime.turn(first.turn.number)
    assert failed.status == "failed"
    runtime.append(new("assistant", "I could not."))
    runtime.say("Try again.")
    after = runtime.build()
    assert after.turn.number == first.turn.number + 1
    assert after.turn.first_seq == failed.first_seq > 0
    assert str(after.turn.compaction_id) == str(failed.compaction_id)
    kept_from = after.turn.kept_from
    # The next compaction begins where the last one ended, so what was dropped is summarised after all.
    runtime.complete("ok")
    provider.reset()
    runtime.request_job()
    (job,) = runtime.work()
    assert job.status == "ready"
    told = provider.calls[0].messages[0]["content"][0]["text"]
    dropped = [m for m in runtime.rows() if kept_from <= m["seq"] < failed.first_seq]
    assert dropped
    for row in dropped:
        mark = json.loads(row["content"])[0]["text"][:12]
        assert mark in told
    shown = runtime.exchange("and?", "yes")
    assert shown.turn.kept_from == shown.turn.first_seq == job.kept_from


def test_coverage_has_no_gap_and_no_overlap_whatever_happened(start, provider):
    runtime = start(10_000)
    for n in range(25):
        runtime.say(words(250, f"LINE-{n}"))
        built = runtime.build()
        if n in (9, 17):
            climbed = runtime.overflow()
            built = climbed.built or built
        view = built.shown.view
        assert 0 <= view.kept_from <= view.first_seq <= view.last_seq == runtime.rows()[-1]["seq"]
        sources = [s for m in built.shown.request.messages for s in m.sources]
        assert sources == sorted(set(sources))
        assert set(sources) == set(range(view.first_seq, view.last_seq + 1))
        runtime.complete([*text("reading"), use(f"c{n}", path="a.py")])
        runtime.append(new("user", [result(f"c{n}", words(150))]))
        if n % 4 == 0:
            runtime.work()


def test_memory_is_the_last_turns_until_it_is_changed_and_changes_no_other_element(start):
    runtime = start()
    runtime.say("Hello.")
    one = runtime.build(memory='[{"type":"text","text":"MEMORY-1"}]')
    runtime.complete("Hi.")
    two = runtime.exchange("And?", "Yes.")
    assert "MEMORY-1" in two.body
    runtime.say("Now?")
    three = runtime.build(memory='[{"type":"text","text":"MEMORY-2"}]')
    assert "MEMORY-1" not in three.body
    assert is_prefix(one, two)
    assert is_prefix(two, three)
    assert not three.prefix_changed
    assert desk.rebuild(runtime.turn(1)) == one.body
    assert desk.rebuild(runtime.turn(three.turn.number)) == three.body


def test_the_results_that_the_model_has_yet_to_see_are_not_old_however_large(start, provider):
    """The newest result alone is larger than what is kept verbatim, and takes the request over the trigger."""
    runtime = start(12_000, limits={"tool_arg_max_tokens": 100, "precompute_frac": None})
    runtime.say("Read the big ones.")
    for n in range(4):
        runtime.round(1_200, f"OLD-{n}")
    runtime.round(5_000, "NEWEST")
    built = runtime.build()
    assert built.turn.args_cut_before > 0
    newest = json.loads(built.body)["messages"][-1]["content"][0]
    assert newest["content"] == words(5_000, "NEWEST")


def test_on_a_cold_cache_old_results_are_cut_below_the_trigger_and_on_a_warm_one_they_are_not(start):
    for minutes, cut_down in ((1, False), (10, True)):
        runtime = start(public_id=f"idle-{minutes}")
        runtime.say("Read it all.")
        for _ in range(6):
            runtime.round(900)
        runtime.clock.move(60 * minutes)
        built = runtime.build()
        assert built.shown.size < built.lines.trigger
        assert (built.shown.view.args_cut_before > 0) is cut_down
        assert built.prefix_changed is cut_down
