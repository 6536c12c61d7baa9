"""The overflow ladder: compaction, mechanical truncation, failure, each strictly smaller than what was refused (SPEC F10)."""

import json

import pytest

from compaction.engine.errors import CannotFit, ProviderFailed
from tests.flows.runtime import new, result, shown_text, text, use, words


@pytest.fixture
def open_turn(start):
    """open_turn(**limits): a turn of 14 exchanges whose request the provider has yet to refuse."""

    def begin(**limits):
        runtime = start(limits={"precompute_frac": None, **limits})
        runtime.exchanges(14)
        runtime.say("Go on.")
        return runtime, runtime.build()

    return begin


def test_overflow_compaction_overflow_truncation_success(open_turn, provider):
    runtime, first = open_turn(max_wait_s=20)
    provider.play("SUMMARY: after the refusal.")
    second = runtime.overflow()
    assert (second.rung, second.turn.number) == ("overflow", first.turn.number)
    assert "SUMMARY: after" in shown_text(second.built)
    assert second.built.compaction.reason == "overflow"
    third = runtime.overflow()
    assert third.rung == "truncate"
    assert third.built.turn.first_seq > third.built.turn.kept_from
    assert first.shown.size * 0.7 >= second.built.shown.size > third.built.shown.size
    assert "Go on." in shown_text(third.built)
    assert "SUMMARY: after" in shown_text(third.built)
    runtime.complete("It worked.")
    turn = runtime.turn(first.turn.number)
    assert (turn.status, turn.rung) == ("completed", "truncate")
    refused = [a for a in turn.attempts if a["outcome"] == "overflow"]
    assert [(a["rung"], a["outcome"], a["status"]) for a in refused] == [
        ("first", "overflow", 400),
        ("overflow", "overflow", 400),
    ]
    assert [c.reason for c in runtime.compactions()] == ["overflow"]  # truncation writes no compaction
    assert runtime.fresh().compactions == 1


def test_only_the_third_failure_fails(open_turn):
    runtime, first = open_turn()
    sizes = [first.shown.size]
    for _ in range(2):
        climbed = runtime.overflow()
        assert climbed.built is not None
        sizes.append(climbed.built.shown.size)
    assert sizes == sorted(set(sizes), reverse=True)
    assert runtime.turn(1).status == "open"
    last = runtime.overflow()
    assert (last.built, runtime.turn(1).status) == (None, "failed")
    runtime.say("Try this then.")  # and the session stays usable
    assert runtime.build().turn.number == 2


def test_where_there_is_nothing_to_compact_it_goes_straight_to_truncation_and_has_a_second_try(
    start, provider
):
    """Three giant results in one exchange: the last round is all there is."""
    runtime = start(40_000, limits={"max_wait_s": 20, "precompute_frac": None})
    runtime.say("Read these.")
    runtime.build()
    runtime.complete([use(f"c{n}", path=f"{n}.log") for n in range(3)])
    runtime.append(new("user", [result(f"c{n}", words(7_000, f"LOG-{n}")) for n in range(3)]))
    first = runtime.build()
    second = runtime.overflow()
    assert (second.rung, second.built.compaction) == ("truncate", None)
    third = runtime.overflow()
    assert third.rung == "truncate"
    assert first.shown.size > second.built.shown.size > third.built.shown.size
    for built in (second.built, third.built):  # pairs whole, each result still there as a preview
        assert all(f"LOG-{n}" in shown_text(built) for n in range(3))
    assert runtime.overflow().built is None


def test_a_ready_compaction_is_taken_before_any_is_made(open_turn, provider):
    runtime, _ = open_turn(max_wait_s=20)
    runtime.request_job()
    (ready,) = runtime.work()
    calls = len(provider.calls)
    climbed = runtime.overflow()
    assert climbed.rung == "overflow"
    assert climbed.built.compaction == ready
    assert len(provider.calls) == calls


@pytest.mark.parametrize("limits", [{"max_wait_s": 0}, {"max_wait_s": 20}])
def test_without_a_summary_in_time_the_extract_serves(open_turn, provider, watch, limits):
    runtime, _ = open_turn(**limits)
    provider.play(*[ProviderFailed("no", kind="api_error", http_status=500, retryable=True)] * 9)
    climbed = runtime.overflow()
    assert climbed.rung == "overflow"
    assert climbed.built.compaction.kind == "extractive"
    assert bool(provider.calls) == bool(limits["max_wait_s"])
    assert watch.now <= limits["max_wait_s"] + 0.1


def test_truncation_drops_whole_exchanges_then_whole_rounds_and_never_the_users_words_or_the_last_round(
    start,
):
    runtime = start(limits={"precompute_frac": None})
    runtime.exchanges(6)
    asked = "Read every part, one after the other."
    runtime.say(asked)
    for n in range(8):
        runtime.round(500, f"RESULT-{n}")
    runtime.build()
    for _ in range(2):
        climbed = runtime.overflow()
        if climbed.rung == "truncate":
            break
    shown = shown_text(climbed.built)
    assert asked in shown
    assert "RESULT-7" in shown
    view = climbed.built.shown.view
    first = next(row for row in runtime.rows() if row["seq"] == view.first_seq)
    assert first["role"] == "assistant"  # a round begins there, and is whole
    calls = {
        b["id"]
        for m in json.loads(climbed.built.body)["messages"]
        for b in m["content"]
        if b["type"] == "tool_use"
    }
    results = {
        b["tool_use_id"]
        for m in json.loads(climbed.built.body)["messages"]
        for b in m["content"]
        if b["type"] == "tool_result"
    }
    assert calls == results


def test_dropped_messages_are_summarised_by_the_next_compaction(open_turn, provider):
    runtime, _ = open_turn()
    for _ in range(2):
        climbed = runtime.overflow()
    assert climbed.rung == "truncate"
    dropped = range(climbed.built.turn.kept_from, climbed.built.turn.first_seq)
    assert dropped
    runtime.complete("Done.")
    runtime.request_job()
    (job,) = runtime.work()
    assert job.status == "ready"
    assert job.kept_from >= dropped.stop
    told = "".join(c.messages[0]["content"][0]["text"] for c in provider.calls)
    for seq in dropped:
        assert f"LINE-{seq // 2} {('asked', 'answered')[seq % 2]}" in told


def test_what_cannot_fit_says_by_how_much_and_the_session_stays_usable(start):
    runtime = start(4_000, limits={"precompute_frac": None}, system=json.dumps(words(5_000)))
    runtime.say("Hello.")
    with pytest.raises(CannotFit) as caught:
        runtime.build()
    assert caught.value.extra["fixed_tokens"] > caught.value.extra["limit"]
    runtime.session.limits = {**runtime.session.limits, "max_input_tokens": 20_000}
    runtime.session.save(update_fields=["limits"])
    assert runtime.build().turn.number == 1


def test_a_giant_message_in_the_kept_part_is_previewed_so_that_the_request_fits(start):
    runtime = start(8_000)
    runtime.exchange("Hello.", "Hi.")
    runtime.append(
        new("user", [*text("Here is the log."), {"type": "text", "text": words(30_000, "BEGIN-LOG")}])
    )
    built = runtime.build()
    assert built.shown.size <= built.lines.usable
    assert "Here is the log." in shown_text(built)
    assert "BEGIN-LOG" in shown_text(built)
    assert built.compaction is None or built.compaction.kind == "extractive"
