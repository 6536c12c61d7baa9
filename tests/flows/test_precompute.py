"""The summary is written before it is needed (SPEC F15): asked for at one line, swapped in at the next, and what happens
when it is not there in time (DESIGN 5, At the trigger)."""

import pytest
from django.db import IntegrityError, transaction

from compaction import forced, jobs
from compaction.engine.errors import ProviderFailed
from compaction.engine.types import Reason
from compaction.models import Compaction
from tests.flows.runtime import new, shown_text, text, words


def fill(runtime, until):
    """Exchanges with turns until `until(built)` holds; the last built request."""
    for n in range(100):
        built = runtime.exchange(words(150, f"LINE-{n} asked"), words(150, f"LINE-{n} answered"))
        if until(built):
            return built
    raise AssertionError("it never came to be")


def over_precompute(runtime):
    return fill(runtime, lambda built: runtime.session.compactions_made.exists())


def to_the_trigger(runtime):
    """Stores what is missing to the trigger, without a build in between."""
    built = runtime.sent[max(runtime.sent)]
    runtime.exchanges((built.lines.trigger - built.shown.size) // 300 + 1, 300, first=500)
    runtime.say("And now?")


def test_crossing_the_precompute_line_asks_for_one_job_and_changes_no_request(start, bell, provider):
    runtime = start()
    built = over_precompute(runtime)
    (job,) = runtime.compactions()
    assert (job.reason, job.status, job.apply) == ("threshold", "requested", "at_trigger")
    assert bell == [str(job.pk)]
    assert built.lines.precompute - 500 < built.shown.size <= built.lines.trigger
    for n in range(3):  # once asked for, it is not asked for again
        following = runtime.exchange(f"question {n}", "answer")
        assert (following.compaction, following.prefix_changed, following.turn.deferred) == (
            None,
            False,
            False,
        )
    assert len(runtime.compactions()) == 1
    assert provider.calls == []


def test_the_job_writes_the_summary_and_the_build_at_the_trigger_swaps_it_in_without_a_call(start, provider):
    runtime = start()
    over_precompute(runtime)
    provider.play("SUMMARY-1: written ahead of need.")
    (ready,) = runtime.work()
    assert (ready.status, ready.kind) == ("ready", "model")
    assert len(provider.calls) == 1
    assert ready.turn is None or ready.turn in runtime.sent
    below = runtime.exchange("small question", "small answer")
    assert (below.compaction, below.prefix_changed) == (None, False)  # ready is not yet shown
    to_the_trigger(runtime)
    at = runtime.build()
    assert at.compaction == ready
    assert (at.turn.adopted, at.prefix_changed, at.turn.deferred) == (True, True, False)
    assert at.waited_s == 0
    assert "SUMMARY-1" in shown_text(at)
    assert len(provider.calls) == 1
    runtime.complete("Yes.")
    after = runtime.exchange("and then?", "that")
    assert (after.compaction, after.turn.adopted, after.prefix_changed) == (ready, False, False)
    assert runtime.fresh().compactions == 1


def test_a_live_job_and_a_request_that_fits_is_sent_as_it_is(start, provider):
    runtime = start(limits={"max_wait_s": 20})
    over_precompute(runtime)
    to_the_trigger(runtime)
    built = runtime.build()
    assert built.shown.size > built.lines.trigger
    assert built.turn.deferred
    assert (built.compaction, built.prefix_changed, built.waited_s) == (None, False, 0)
    assert provider.calls == []


def test_nothing_ready_is_compacted_at_once_within_max_wait(start, provider):
    runtime = start(limits={"max_wait_s": 7, "precompute_frac": None})
    runtime.exchanges(30)
    runtime.say("And now?")
    provider.play("SUMMARY-NOW: it was needed.")
    built = runtime.build()
    assert "SUMMARY-NOW" in shown_text(built)
    assert built.turn.adopted
    (call,) = provider.calls
    assert 0 < call.timeout_s <= 7


def test_a_build_never_waits_longer_than_max_wait_even_when_the_answer_has_to_be_asked_for_twice(
    start, provider, watch
):
    runtime = start(limits={"max_wait_s": 7, "precompute_frac": None})
    runtime.exchanges(30)
    runtime.say("And now?")

    def slow(call):
        watch.now += 5

    provider.play("", "SUMMARY: of the second call.")  # the first answer is empty: it is asked for once more
    provider.during = slow
    runtime.build()
    assert [call.timeout_s for call in provider.calls] == pytest.approx([6.5, 1.5], abs=0.01)


def test_a_build_waits_no_longer_than_max_wait_for_a_worker_that_hangs(start, provider, watch):
    runtime = start(limits={"max_wait_s": 7, "precompute_frac": 0.3})
    runtime.exchanges(12)
    job = jobs.claim(str(runtime.live().pk))  # a worker has it, and says nothing more
    runtime.exchanges(25, first=12)  # over the window: this cannot be sent as it is
    runtime.say("And now?")
    built = runtime.build()
    assert 6.4 < watch.now <= 7  # and an extract is made in what is left
    assert provider.calls == []
    assert built.compaction.kind == "extractive"
    assert runtime.job(job.pk).status == "running"


def test_max_wait_0_never_calls_the_provider_in_a_build(start, provider):
    runtime = start(limits={"max_wait_s": 0})
    for n in range(60):
        runtime.exchange(words(300, f"LINE-{n}"), words(300))
    assert provider.calls == []
    assert any(built.compaction and built.compaction.kind == "extractive" for built in runtime.sent.values())


def test_a_failing_summarizer_changes_nothing_while_the_request_fits_and_is_extractive_when_it_has_to(
    start, provider
):
    runtime = start(limits={"max_wait_s": 20})
    over_precompute(runtime)
    provider.play(*[ProviderFailed("refused", kind="invalid_request_error", http_status=400)] * 20)
    (failed,) = runtime.work()
    assert (failed.status, failed.error_code) == ("failed", "invalid_request_error")
    to_the_trigger(runtime)
    built = runtime.build()
    assert built.lines.trigger < built.shown.size <= built.lines.usable
    assert (built.compaction, built.prefix_changed) == (None, False)
    assert runtime.compactions(kind="extractive") == []
    runtime.complete("ok")
    runtime.exchanges(12, 400, first=900)
    runtime.say("And then?")
    built = runtime.build()
    assert built.compaction is not None
    assert built.compaction.kind == "extractive"
    assert built.shown.size <= built.lines.trigger


@pytest.mark.parametrize("status", ["failed", "rejected", "skipped"])
def test_after_a_failure_none_is_begun_until_the_back_off_passed_and_gain_arrived(start, clock, status):
    runtime = start()
    built = over_precompute(runtime)
    job = jobs.claim(str(runtime.live().pk))
    jobs.end(job, status, "some-error")
    size = job.tokens_before
    gain = built.lines.gain
    # Enough time, too few tokens.
    clock.move(3600)
    runtime.say(words(gain // 4))
    assert runtime.compactions(status="requested") == []
    # Enough tokens, and time.
    runtime.append(new("assistant", text(words(gain + 50))))
    (again,) = runtime.compactions(status="requested")
    assert again.tokens_before >= size + gain


def test_enough_tokens_do_not_help_while_the_back_off_lasts(start, clock):
    runtime = start()
    built = over_precompute(runtime)
    job = jobs.claim(str(runtime.live().pk))
    jobs.end(job, Compaction.Status.FAILED, "some-error")
    runtime.say(words(built.lines.gain + 100))
    assert runtime.compactions(status="requested") == []
    clock.move(60)
    runtime.append(new("assistant", "Well."))
    assert len(runtime.compactions(status="requested")) == 1


def test_the_same_span_is_tried_at_most_twice(start, clock, provider):
    """One long message at the end keeps every cut at the same place, however much comes after it."""
    runtime = start()
    runtime.exchanges(22, 400)
    for n in range(8):
        provider.play(ProviderFailed("refused", kind="invalid_request_error", http_status=400))
        runtime.work()
        clock.move(4000)
        # Words of the user that nothing has answered stay whole: the cut cannot move past them.
        runtime.say(words(450, f"more {n}"))
    tried = [(j.base_id, j.kept_from) for j in runtime.compactions(status="failed")]
    assert tried
    assert max(tried.count(pair) for pair in tried) <= 2


# --- joining


def test_one_live_job_by_constraint(start):
    runtime = start()
    runtime.exchanges(5)
    runtime.request_job()
    with pytest.raises(IntegrityError), transaction.atomic():
        Compaction.objects.create(session=runtime.session, reason=Reason.MANUAL, apply="next_build")


def test_a_build_joins_the_job_that_waits_instead_of_starting_a_second_one(start, provider):
    runtime = start(limits={"max_wait_s": 20})
    over_precompute(runtime)
    job = runtime.live()
    runtime.exchanges(10, 400, first=900)  # over the window: it has to be compacted now
    runtime.say("And now?")
    built = runtime.build()
    assert built.compaction.pk == job.pk
    assert len(runtime.compactions()) == 1
    assert len(provider.calls) == 1


def test_a_forced_one_joins_the_waiting_job_and_becomes_it(start, provider):
    runtime = start()
    over_precompute(runtime)
    job = runtime.live()
    with runtime.committing():
        done = forced.compact_session(runtime.session, forced.Asked(instructions="mind the ports"))
    assert (done.outcome, done.row.pk) == ("queued", job.pk)
    runtime.work()
    (ready,) = runtime.compactions()
    assert (ready.reason, ready.apply, ready.status) == ("manual", "next_build", "ready")
    assert "mind the ports" in provider.calls[0].system
    built = runtime.exchange("go on", "yes")  # far below the trigger, and yet shown
    assert built.compaction.pk == job.pk


def test_a_forced_one_joins_the_running_job_and_is_shown_from_the_next_new_turn_on(start, provider):
    runtime = start()
    over_precompute(runtime)
    outcome = []

    def meanwhile(call):
        with runtime.committing():
            outcome.append(forced.compact_session(runtime.session, forced.Asked()))

    provider.during = meanwhile
    runtime.work()
    assert outcome[0].outcome == "queued"
    (ready,) = runtime.compactions()
    assert ready.status == "ready"
    assert runtime.exchange("go on", "yes").compaction.pk == ready.pk
    assert len(provider.calls) == 1


def test_a_forced_one_keeps_the_newest_and_never_takes_over_the_cut_of_a_job_that_stumbled(
    start, provider, clock
):
    """The precomputed job stands on a base, was claimed once, and waits because of a 529."""
    runtime = start()
    over_precompute(runtime)
    runtime.work()
    to_the_trigger(runtime)
    runtime.build()
    runtime.complete("ok")
    fill(runtime, lambda built: runtime.compactions(status="requested"))
    job = runtime.live()
    provider.play(ProviderFailed("busy", kind="overloaded_error", http_status=529, retryable=True))
    runtime.work()
    stumbled = runtime.job(job.pk)
    assert (stumbled.status, stumbled.base_id is not None) == ("requested", True)
    for n in range(4):
        runtime.exchange(words(150, f"LATE-{n}"), words(150))
    with runtime.committing():
        done = forced.compact_session(runtime.session, forced.Asked(wait=True))
    assert done.outcome == "done"
    assert done.row.pk == job.pk
    assert done.row.reason == "manual"
    assert done.row.kept_from > stumbled.kept_from


def test_a_forced_one_that_the_model_could_not_write_is_failed_and_nothing_is_swapped(start, provider):
    runtime = start()
    runtime.exchanges(10)
    provider.play(ProviderFailed("busy", kind="overloaded_error", http_status=529, retryable=True))
    with runtime.committing():
        done = forced.compact_session(runtime.session, forced.Asked(wait=True))
    assert done.outcome == "failed"
    assert runtime.exchange("go on", "yes").compaction is None


def test_no_transaction_is_open_while_the_model_writes(transactional_db, start, provider):
    from django.db import connection

    runtime = start()
    runtime._commits = None
    runtime.exchanges(20)
    seen = []
    provider.during = lambda call: seen.append(connection.in_atomic_block)
    runtime.work()
    assert seen == [False]


def test_at_most_half_of_the_web_threads_wait_for_summaries_at_a_time(start, provider, settings):
    """The third of three builds that need one now takes the extract, while two wait."""
    settings.HANGO_WEB_THREADS = 4
    sessions = []
    for _ in range(3):
        runtime = start(limits={"max_wait_s": 20, "precompute_frac": None})
        runtime.exchanges(40)
        runtime.say("And now?")
        sessions.append(runtime)
    found = {}

    def third(call):
        found["third"] = sessions[2].build()

    def second(call):
        provider.during = third
        found["second"] = sessions[1].build()

    provider.during = second
    found["first"] = sessions[0].build()
    assert {name: built.compaction.kind for name, built in found.items()} == {
        "first": "model",
        "second": "model",
        "third": "extractive",
    }
    assert len(provider.calls) == 2
