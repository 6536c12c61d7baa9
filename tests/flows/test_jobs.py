"""The database is the queue: what a lost doorbell, a killed worker, a zombie or a busy provider cost (DESIGN 4, Compact;
the fault list)."""

from datetime import timedelta

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from compaction import compact, jobs
from compaction.engine.errors import ProviderFailed
from compaction.models import Circuit, Compaction
from compaction.providers.base import Reply
from tests.flows.runtime import new, shown_text, text, words

LEASE_S = 300
BUSY = ProviderFailed("busy", kind="overloaded_error", http_status=529, retry_after_s=120, retryable=True)
REFUSED = ProviderFailed("no key", kind="authentication_error", http_status=401)


@pytest.fixture
def asked(start):
    """A session with one job asked for, and the runtime."""
    runtime = start()
    runtime.exchanges(20)
    assert runtime.live().status == "requested"
    return runtime


def told(call):
    return call.messages[0]["content"][0]["text"]


def ready(runtime):
    return runtime.compactions(status="ready")


# --- leases and fences


def test_a_claimed_job_is_nobody_elses_until_its_lease_ends(asked, clock, provider):
    job = jobs.claim(str(asked.live().pk))
    assert (job.fence, job.attempts, job.status) == (1, 1, "running")
    assert job.lease_until - clock.moment == pytest.approx(
        timedelta(seconds=LEASE_S), abs=timedelta(seconds=1)
    )
    clock.move(LEASE_S - 1)
    assert jobs.claim(str(job.pk)) is None
    assert asked.work() == []
    assert provider.calls == []


def test_20_messages_at_once_are_one_claim_and_a_late_one_calls_nobody(asked, provider):
    job = asked.live()
    for _ in range(20):
        asked.knock(str(job.pk))
    assert len(provider.calls) == 1
    assert asked.job(job.pk).status == "ready"
    assert asked.job(job.pk).fence == 1


def test_a_killed_workers_job_is_claimed_again_with_a_higher_fence_and_gives_one_record(
    asked, clock, provider, bell
):
    dead = jobs.claim(str(asked.live().pk))  # and then nothing more is heard of it
    bell.clear()
    assert asked.sweep() == 0
    clock.move(LEASE_S + 1)
    assert asked.sweep() == 1
    provider.play("SUMMARY-2: by the second worker.")
    (done,) = asked.work()
    assert (done.pk, done.fence, done.status) == (dead.pk, 2, "ready")
    assert "SUMMARY-2" in done.head
    assert len(asked.compactions()) == 1


def test_the_late_answer_of_a_zombie_is_thrown_away(asked, clock, provider):
    """The first worker stands still for longer than its lease; the second one is done when it comes back."""
    job = asked.live()

    def stand_still(call):
        clock.move(LEASE_S + 1)
        provider.during = None
        asked.bell.clear()
        asked.sweep()
        asked.work()

    provider.play("SUMMARY-SECOND: in time.", "SUMMARY-ZOMBIE: too late.")
    provider.during = stand_still
    # The inner call, of the second worker, is answered first.
    asked.knock(str(job.pk))
    after = asked.job(job.pk)
    assert len(provider.calls) == 2
    assert (after.status, after.fence) == ("ready", 2)
    assert "SUMMARY-SECOND" in after.summary
    assert "ZOMBIE" not in after.summary + after.head
    assert len(asked.compactions()) == 1
    assert after.attempts == 2


def test_a_zombie_whose_successor_is_still_at_work_changes_nothing(asked, clock, provider):
    job = asked.live()

    def stand_still(call):
        clock.move(LEASE_S + 1)
        assert jobs.claim(str(job.pk)).fence == 2

    provider.during = stand_still
    asked.knock(str(job.pk))
    after = asked.job(job.pk)
    assert (after.status, after.fence, after.summary, after.head) == ("running", 2, "", "")


def test_messages_that_arrive_while_the_model_writes_do_no_harm(asked, provider):
    before = asked.rows()
    provider.during = lambda call: asked.exchanges(3, first=700)
    asked.work()
    (done,) = ready(asked)
    rows = asked.rows()
    assert len(rows) == len(before) + 6
    assert done.prefix_digest == rows[done.kept_from - 1]["digest"]
    asked.exchanges(8, first=800)
    asked.say("Now?")
    built = asked.build()
    assert built.compaction == done
    assert built.shown.view.last_seq == len(rows) + 16


# --- doorbell and sweep


def test_a_lost_doorbell_costs_one_sweep(asked, bell):
    bell.clear()
    assert asked.sweep() == 1
    asked.work()
    assert len(ready(asked)) == 1
    assert asked.sweep() == 0


def test_two_sweeps_at_once_ring_twice_and_write_once(asked, bell, provider):
    bell.clear()
    asked.sweep()
    asked.sweep()
    assert len(bell) == 2
    asked.work()
    assert len(provider.calls) == 1


def test_a_broker_that_is_away_costs_the_caller_nothing(start, monkeypatch, clock):
    """The real doorbell, on a broker that refuses: the append succeeds, the row is there, the sweep finds it."""
    monkeypatch.undo()
    runtime = start()
    runtime.exchanges(20)
    assert runtime.live().status == "requested"
    rung = []
    monkeypatch.setattr(jobs, "_send", rung.append)
    jobs.sweep()
    assert rung == [str(runtime.live().pk)]


def test_the_sweep_asks_for_what_nobody_asked_for(asked, bell):
    """A session over its line without a job, as a lost insert or a changed limit leaves one."""
    asked.compactions()[0].delete()
    bell.clear()
    asked.sweep()
    assert asked.live().reason == "threshold"
    asked.work()
    assert len(ready(asked)) == 1


def test_the_sweep_writes_a_stale_mirror_again(asked, monkeypatch, clock):
    from compaction import offload

    with monkeypatch.context() as patch:
        patch.setattr(offload, "mirror", lambda session, through: False)
        asked.work()
    (done,) = ready(asked)
    assert not done.mirrored
    written = []
    monkeypatch.setattr(offload, "mirror_later", lambda row: written.append(row.pk), raising=False)
    clock.move(60)
    asked.sweep()
    assert written == [done.pk]


# --- folding


SMALL = {
    "HANGO_MODEL_PROFILES": {"small-summarizer": {"max_input_tokens": 8_000, "max_output_tokens": 1_000}}
}


@pytest.fixture
def long_span(start, settings):
    """40,000 tokens to be folded by a summarizer whose window is 8,000."""
    settings.HANGO_MODEL_PROFILES = SMALL["HANGO_MODEL_PROFILES"]
    runtime = start(60_000, summarizer_model="small-summarizer")
    runtime.exchanges(100, 460)
    return runtime


def read_in(calls, first=0):
    """The seqs of the exchanges' messages, from `first` on, that reached some call."""
    marks = [f"LINE-{n} {what}" for n in range(100) for what in ("asked", "answered")]
    return [first + n for n, mark in enumerate(marks) if any(mark in told(c) for c in calls)]


def test_a_span_larger_than_the_summarizers_window_is_folded_one_chunk_a_claim(long_span, provider, bell):
    job = long_span.live()
    provider.play(*(f"FOLD-{n}: notes so far." for n in range(30)))
    claims, folded = 0, [0]
    while bell:
        del bell[1:]  # however often it was rung, a claim folds one chunk
        calls = len(provider.calls)
        long_span.knock(bell.pop(0))
        claims += 1
        assert len(provider.calls) == calls + 1
        row = long_span.job(job.pk)
        if row.status == "requested":
            assert row.lease_until is None
            assert row.folded_through > folded[-1]
            folded.append(row.folded_through)
            assert row.partial.startswith(f"FOLD-{claims - 1}")
    (done,) = ready(long_span)
    assert claims >= 4
    assert done.summary.startswith(f"FOLD-{claims - 1}")
    assert done.partial == ""
    # Nothing is skipped: every message reaches some call, and each later call brings the notes so far up to date.
    assert read_in(provider.calls) == list(range(done.kept_from))
    for n, call in enumerate(provider.calls[1:]):
        assert f"FOLD-{n}" in told(call)
    for call in provider.calls:
        assert len(call.system + told(call)) / 4 + call.max_tokens < 8_000
    assert done.usage == {"input_tokens": 100 * claims, "output_tokens": 10 * claims}


def test_a_lost_lease_repeats_one_chunk_and_loses_none(long_span, provider, bell, clock):
    job = long_span.live()

    def killed(call):
        raise KeyboardInterrupt  # as far as the job is concerned: the process is gone

    for _ in range(2):
        long_span.knock(bell.pop(0))
    halfway = long_span.job(job.pk)
    provider.during = killed
    with pytest.raises(KeyboardInterrupt):
        long_span.knock(bell.pop(0))
    assert long_span.job(job.pk).status == "running"
    assert long_span.job(job.pk).folded_through == halfway.folded_through
    clock.move(LEASE_S + 1)
    long_span.sweep()
    long_span.work()
    (done,) = ready(long_span)
    texts = [told(c) for c in provider.calls]
    assert texts[2] == texts[3]  # that chunk again
    assert len(set(texts)) == len(texts) - 1
    assert read_in(provider.calls) == list(range(done.kept_from))
    assert len(long_span.compactions()) == 1


def test_one_message_larger_than_the_summarizers_window_is_folded_too(start, settings, provider):
    settings.HANGO_MODEL_PROFILES = SMALL["HANGO_MODEL_PROFILES"]
    runtime = start(60_000, summarizer_model="small-summarizer")
    runtime.append(new("user", text("HUGE-BEGIN " + words(14_000) + " HUGE-END")), new("assistant", "I see."))
    runtime.exchanges(70, 460)
    runtime.work()
    (done,) = ready(runtime)
    assert any("HUGE-BEGIN" in told(c) for c in provider.calls)
    for call in provider.calls:
        assert len(call.system + told(call)) / 4 + call.max_tokens < 8_000
    assert read_in(provider.calls, first=2) == list(range(2, done.kept_from))


# --- what the provider says


def test_a_busy_provider_sets_next_at_from_retry_after_and_frees_the_worker(asked, provider, clock, bell):
    provider.play(BUSY)
    asked.work()
    job = asked.live()
    assert (job.status, job.error_code, job.lease_until) == ("requested", "overloaded_error", None)
    assert job.next_at - clock.moment == pytest.approx(timedelta(seconds=120), abs=timedelta(seconds=1))
    asked.knock(str(job.pk))  # a message too early: nothing
    assert asked.sweep() == 0
    assert len(provider.calls) == 1
    clock.move(121)
    assert asked.sweep() == 1
    asked.work()
    assert asked.job(job.pk).status == "ready"
    assert asked.job(job.pk).error_code == ""


@pytest.mark.parametrize("seconds", [0.0, None, 10**9])
def test_retry_after_is_bounded_on_both_sides(asked, provider, clock, seconds):
    provider.play(
        ProviderFailed(
            "busy", kind="rate_limit_error", http_status=429, retry_after_s=seconds, retryable=True
        )
    )
    asked.work()
    wait = (asked.live().next_at - clock.moment).total_seconds()
    assert 1 < wait <= 900


def test_what_may_pass_is_tried_a_bounded_number_of_times(asked, provider, clock):
    provider.play(*[ProviderFailed("gone", kind="connection", retryable=True)] * 50)
    for _ in range(50):
        clock.move(4000)
        asked.sweep()
        asked.work()
    first = asked.compactions()[0]
    assert (first.status, first.error_code, first.attempts) == ("failed", "connection", jobs.MAX_ATTEMPTS)
    assert len(provider.calls) < 3 * jobs.MAX_ATTEMPTS


def test_a_refused_key_fails_the_job_and_opens_the_circuit_for_all(asked, start, provider, clock, bell):
    provider.play(REFUSED)
    asked.work()
    (job,) = asked.compactions()
    assert (job.status, job.error_code) == ("failed", "authentication_error")
    assert jobs.circuit_open()
    assert len(Circuit.objects.get().key_digest) == 64
    calls = len(provider.calls)
    # Others do not each rediscover it: neither their builds nor their jobs call the provider while it is open.
    for n in range(3):
        other = start(limits={"max_wait_s": 20})
        other.exchanges(40)
        other.say("And now?")
        built = other.build()
        assert built.compaction.kind == "extractive"
        assert built.shown.size <= built.lines.usable
        other.work()
        assert len(provider.calls) == calls, f"session {n}"
    waiting = Compaction.objects.filter(status="requested").count()
    clock.move(301)
    assert not jobs.circuit_open()
    asked.sweep()
    asked.work()
    assert len(provider.calls) >= calls + waiting > calls
    assert not Compaction.objects.filter(status="failed").exclude(pk=job.pk).exists()


def test_after_an_outage_the_models_summary_takes_the_extracts_place_without_a_sweep(
    start, provider, clock, watch, bell
):
    """The request had to fit while the provider was down; what a model writes of the same span loses less."""
    runtime = start(limits={"precompute_frac": None, "max_wait_s": 20})
    runtime.exchanges(40)
    runtime.say("And now?")
    provider.play(*[ProviderFailed("busy", kind="overloaded_error", http_status=529, retryable=True)] * 4)
    built = runtime.build()
    assert built.compaction.kind == "extractive"
    runtime.complete("Well.")
    runtime.work()
    assert runtime.live().status == "requested"
    provider.reset()
    provider.play("SUMMARY: after the outage.")
    clock.move(7200)
    bell.clear()
    runtime.exchange("More.", "Yes.")  # the append rings again for what is due
    assert bell == [str(runtime.live().pk)] * len(bell) != []
    runtime.work()
    runtime.say("And now?")
    after = runtime.build()
    assert after.compaction.kind == "model"
    assert "SUMMARY: after the outage." in shown_text(after)
    assert after.shown.size < after.lines.trigger
    runtime.complete("Good.")
    runtime.say("Next.")
    assert not runtime.build().prefix_changed


def test_three_outages_in_a_row_open_the_circuit_and_a_success_closes_it(start, provider, clock):
    outage = ProviderFailed("gone", kind="api_error", http_status=500, retryable=True)
    sessions = [start() for _ in range(3)]
    for runtime in sessions:
        assert not jobs.circuit_open()
        runtime.exchanges(20)
        provider.play(outage)
        runtime.work()
    assert jobs.circuit_open()
    clock.move(60)
    assert not jobs.circuit_open()
    sessions[0].sweep()
    sessions[0].work()
    assert Circuit.objects.get().failures == 0


@pytest.mark.parametrize(
    "bad",
    [
        Reply("", "end_turn"),
        Reply("Half of a sen", "max_tokens"),
        Reply("I cannot help with that.", "refusal"),
        Reply("## Goal\nfine", "tool_use", called_tool=True),
        Reply("## Goal\n" + "long " * 60_000, "end_turn"),
    ],
)
def test_an_answer_that_cannot_stand_for_the_messages_is_asked_for_once_more_and_then_fails(
    asked, provider, bad
):
    provider.play(bad, bad)
    asked.work()
    (job,) = asked.compactions()
    assert (job.status, job.error_code, job.head) == ("failed", "summary-rejected", "")
    assert len(provider.calls) == 2
    assert len(provider.calls[1].messages[0]["content"]) == 2  # the same, and a reminder
    assert not jobs.circuit_open()


def test_one_bad_answer_and_a_good_one_is_ready_and_both_are_paid_for(asked, provider):
    provider.play("", "SUMMARY: of the second try.")
    asked.work()
    (job,) = asked.compactions()
    assert job.status == "ready"
    assert job.usage == {"input_tokens": 200, "output_tokens": 20}


def test_nothing_worth_it_is_skipped(start):
    runtime = start()
    runtime.exchanges(1, 60)
    runtime.request_job()
    runtime.work()
    assert [j.status for j in runtime.compactions()] == ["skipped"]


def test_a_soft_time_limit_gives_the_job_back_and_counts_the_attempt(asked, provider, clock):
    def too_long(call):
        raise SoftTimeLimitExceeded

    provider.during = too_long
    asked.work()
    job = asked.live()
    assert (job.status, job.error_code, job.attempts, job.lease_until) == ("requested", "time-limit", 1, None)
    assert job.next_at > clock.moment
    clock.move(60)
    asked.sweep()
    asked.work()
    assert asked.job(job.pk).status == "ready"


def test_a_fault_of_ours_ends_the_job_and_is_raised(asked, monkeypatch, provider):
    def broken(call):
        raise ZeroDivisionError

    provider.during = broken
    with pytest.raises(ZeroDivisionError):
        compact.run(str(asked.live().pk))
    (job,) = asked.compactions()
    assert (job.status, job.error_code, job.error) == ("failed", "internal", "ZeroDivisionError")
