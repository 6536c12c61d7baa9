"""hango calls the provider itself (DESIGN 4, Call): the rungs of SPEC F10, retries, counters (N5), what calls teach."""

import itertools
import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction import call, desk, facts, ladder, turns
from compaction.engine.errors import ProviderFailed
from compaction.models import ModelFact
from compaction.providers.base import Reply
from tests.flows.runtime import judge, new, result, text, use, words
from tests.flows.test_turns import updates_of
from tests.upstream import strict_anthropic

USAGE = {"input_tokens": 900, "output_tokens": 20}
WINDOW_STOP = "model_context_window_exceeded"


def too_long(message="prompt is too long", **more):
    fields = {"kind": "invalid_request_error", "http_status": 400, "message": message} | more
    return ProviderFailed("the provider answered 400", **fields)


def failed(status, kind="api_error", **more):
    fields = {"kind": kind, "http_status": status, "retryable": status in (429, 529) or status >= 500} | more
    return ProviderFailed(f"the provider answered {status} {kind}", **fields)


def answer(value="Done.", **usage):
    return Reply(value, "end_turn", {**USAGE, **usage})


def overflown(attempts):
    return [(a["rung"], a["outcome"]) for a in attempts]


@pytest.fixture
def caller(start, provider, watch):
    """caller(window, **limits): a runtime whose turns hango runs, with a transcript of 14 exchanges, and no real pause."""

    def begin(window=12_000, *, exchanges=14, model="test-model", compact_tool=False, **limits):
        runtime = start(
            window, model=model, compact_tool=compact_tool,
            limits={"precompute_frac": None, "max_wait_s": 20, **limits},
        )  # fmt: skip
        if exchanges:
            runtime.exchanges(exchanges)
        runtime.say("Go on.")
        return runtime

    return begin


def run(runtime, **options):
    with runtime.committing():
        return call.run(runtime.session, **options)


def chats(provider):
    """The bodies that were sent to the model as its turn; each is one that the judges take."""
    bodies = [c.body for c in provider.calls if c.purpose == "chat"]
    for body in bodies:
        judge(body)
    return bodies


def text_of(rows):
    return [json.loads(r["content"]) for r in rows]


# --- a plain turn


def test_a_plain_turn_is_built_sent_stored_and_closed(caller, provider):
    runtime = caller()
    provider.play(answer("Here you are.", cache_read_input_tokens=100))
    done = run(runtime)
    (sent,) = chats(provider)
    turn = runtime.turn(1)
    assert (turn.status, turn.stop_reason, turn.rung) == ("completed", "end_turn", "")
    assert desk.rebuild(turn) == sent
    assert text_of(runtime.rows())[-1] == text("Here you are.")
    assert runtime.rows()[-1]["produced_on"] == turn.sent_digest
    assert overflown(done.attempts) == [("first", "completed")]
    assert runtime.fresh().last_input_tokens == 1_000
    assert turn.usage["input_tokens"] == 900


def test_the_models_call_is_stored_as_it_came_and_its_results_lead_on(caller, provider):
    runtime = caller(exchanges=0)
    content = '[{"type":"tool_use","id":"c1","name":"read_file","input":{"b":1.0,"a":1e3}}]'
    provider.play(Reply.of(content, "tool_use", dict(USAGE)), answer())
    assert run(runtime).reply.stop_reason == "tool_use"
    assert runtime.rows()[-1]["content"] == content
    runtime.append(new("user", [result("c1", "text")]))
    assert run(runtime).turn.number == 2
    assert content[1:-1].split(',"input"')[0] in chats(provider)[1]


def test_no_transaction_is_open_while_the_model_writes(caller, provider, django_capture_on_commit_callbacks):
    runtime = caller()
    seen = []
    depth = len(connection.savepoint_ids)
    provider.during = lambda _: seen.append(len(connection.savepoint_ids))
    run(runtime)
    assert seen == [depth]


def test_max_tokens_of_a_call_is_what_is_sent(caller, provider):
    run(caller(), max_tokens=321)
    assert json.loads(chats(provider)[0])["max_tokens"] == 321


# --- the ladder


def test_overflow_compaction_overflow_truncation_success_each_request_strictly_smaller(caller, provider):
    runtime = caller()
    before = runtime.rows()
    provider.play(too_long(), "SUMMARY: after the refusal.", too_long(), answer("It worked."))
    done = run(runtime)
    assert [c.purpose for c in provider.calls] == ["chat", "summarize", "chat", "chat"]
    assert (done.turn.status, done.turn.rung, done.reply.text) == ("completed", "truncate", "It worked.")
    assert overflown(done.attempts) == [
        ("first", "overflow"), ("overflow", "overflow"), ("truncate", "completed"),
    ]  # fmt: skip
    sent = chats(provider)
    assert len(sent[0]) > len(sent[1]) > len(sent[2])
    assert "SUMMARY: after" not in sent[0]
    assert "SUMMARY: after" in sent[1]
    assert "SUMMARY: after" in sent[2]
    (made,) = runtime.compactions()
    assert (made.reason, made.status) == ("overflow", "ready")
    assert done.turn.first_seq > done.turn.kept_from == made.kept_from
    assert desk.rebuild(runtime.turn(1)) == sent[2]
    assert runtime.rows()[:-1] == before  # SPEC N1
    assert runtime.fresh().compactions == 1


def test_one_overflow_needs_one_compaction_and_one_retry(caller, provider):
    runtime = caller()
    provider.play(too_long(), "SUMMARY", answer())
    done = run(runtime)
    assert overflown(done.attempts) == [("first", "overflow"), ("overflow", "completed")]
    assert len(chats(provider)) == 2
    assert done.turn.first_seq == done.turn.kept_from


def test_only_the_third_overflow_fails_the_turn_and_the_session_stays_usable(caller, provider):
    runtime = caller()
    before = runtime.rows()
    provider.play(too_long(), "SUMMARY", too_long(), too_long())
    done = run(runtime)
    assert (done.reply, done.turn.status) == (None, "failed")
    assert overflown(done.attempts) == [
        ("first", "overflow"), ("overflow", "overflow"), ("truncate", "overflow"),
    ]  # fmt: skip
    sent = chats(provider)
    assert [len(b) for b in sent] == sorted({len(b) for b in sent}, reverse=True)
    assert len(sent) == 3
    assert runtime.rows() == before
    runtime.say("Try this then.")
    provider.play(answer())
    assert (run(runtime).turn.status, runtime.turn(2).status) == ("completed", "completed")


def test_where_nothing_can_be_compacted_three_attempts_are_all_there_is(caller, provider):
    """The only round holds three results: no cut is allowed, so truncation begins at once."""
    runtime = caller(40_000, exchanges=0)
    provider.play(Reply.of(json.dumps([use(f"c{n}") for n in range(3)]), "tool_use", dict(USAGE)))
    run(runtime)
    runtime.append(new("user", [result(f"c{n}", words(7_000, f"LOG-{n}")) for n in range(3)]))
    provider.calls.clear()
    provider.play(*[too_long()] * 9)
    done = run(runtime)
    sent = chats(provider)
    assert (done.turn.status, len(sent)) == ("failed", 3)
    assert len(sent[0]) > len(sent[1]) > len(sent[2])
    assert all(f"LOG-{n}" in body for body in sent for n in range(3))  # previews, none dropped


def test_one_giant_result_is_previewed_as_the_last_rung(caller, provider):
    runtime = caller(40_000, exchanges=0)
    provider.play(Reply.of(json.dumps([use("c1", path="big.log")]), "tool_use", dict(USAGE)))
    run(runtime)
    giant = words(20_000, "BEGIN-OF-LOG") + " END-OF-LOG"
    runtime.append(new("user", [result("c1", giant)]))
    provider.play(too_long(), answer())
    done = run(runtime)
    assert done.turn.status == "completed"
    (shown,) = json.loads(chats(provider)[-1])["messages"][-1]["content"]
    assert len(shown["content"]) < 0.75 * len(giant)
    assert shown["content"].startswith("BEGIN-OF-LOG")
    assert shown["content"].rstrip().endswith("END-OF-LOG")
    assert runtime.session.history_path in shown["content"]
    assert json.loads(runtime.rows()[-2]["content"])[0]["content"] == giant


def test_the_stop_reason_of_a_full_window_climbs_and_the_cut_answer_is_not_stored(caller, provider):
    runtime = caller()
    before = runtime.rows()
    provider.play(Reply("half an ans", WINDOW_STOP, dict(USAGE)), "SUMMARY", answer("All of it."))
    done = run(runtime)
    assert overflown(done.attempts) == [("first", "overflow"), ("overflow", "completed")]
    assert done.attempts[0]["type"] == WINDOW_STOP
    assert text_of(runtime.rows()[len(before) :]) == [text("All of it.")]


def test_a_window_that_was_filled_in_silence_climbs_too(caller, provider):
    """Some servers cut the input and answer nothing: they report a full window."""
    runtime = caller()
    provider.play(Reply("", "max_tokens", {"input_tokens": 12_000, "output_tokens": 0}), "SUMMARY", answer())
    assert overflown(run(runtime).attempts) == [("first", "overflow"), ("overflow", "completed")]
    provider.play(Reply("as long as may be", "max_tokens", {"input_tokens": 900, "output_tokens": 9}))
    runtime.say("More.")
    assert run(runtime).turn.stop_reason == "max_tokens"


def test_without_a_summary_the_extract_is_the_compaction(caller, provider):
    runtime = caller()
    provider.play(too_long(), failed(400, "invalid_request_error"), answer())
    done = run(runtime)
    assert done.turn.status == "completed"
    assert done.built.compaction.kind == "extractive"
    assert done.built.compaction.reason == "overflow"


# --- input and output together


SUM = "input length and `max_tokens` exceed context limit: 18500 + 6000 > 24000, decrease input length or `max_tokens`"


def test_too_much_together_lowers_max_tokens_first_and_compacts_nothing(caller, provider):
    runtime = caller(24_000)
    provider.play(too_long(SUM), answer())
    done = run(runtime, max_tokens=6_000)
    one, two = map(json.loads, chats(provider))
    assert one["max_tokens"] == 6_000
    assert 256 <= two["max_tokens"] <= 5_500
    assert one | {"max_tokens": 0} == two | {"max_tokens": 0}
    assert runtime.compactions() == []
    assert overflown(done.attempts) == [("first", "shortened"), ("first", "completed")]
    assert desk.rebuild(runtime.turn(1)) == chats(provider)[1]


def test_a_shorter_answer_is_tried_once_and_takes_no_rung_away(caller, provider):
    runtime = caller(24_000)
    provider.play(too_long(SUM), too_long(SUM), "SUMMARY", too_long(), answer())
    done = run(runtime, max_tokens=6_000)
    assert overflown(done.attempts) == [
        ("first", "shortened"), ("first", "overflow"), ("overflow", "overflow"), ("truncate", "completed"),
    ]  # fmt: skip


def test_where_no_answer_would_be_left_the_input_is_made_smaller_at_once(caller, provider):
    runtime = caller(24_000)
    provider.play(too_long(SUM.replace("18500", "23990")), "SUMMARY", answer())
    assert overflown(run(runtime, max_tokens=6_000).attempts) == [
        ("first", "overflow"),
        ("overflow", "completed"),
    ]


# --- thinking that is bound to another conversation (PROTOCOL R43)


BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


@pytest.fixture
def thoughtful(caller):
    """A runtime whose transcript holds thinking that another program brought, on a model that is not known to bind it."""
    runtime = caller(exchanges=2)
    thought = {"type": "thinking", "thinking": "THOUGHT", "signature": strict_anthropic.sign("THOUGHT")}
    runtime.append(new("assistant", [thought, *text("Well.")]), new("user", "And?"))
    return runtime


def test_refused_thinking_is_left_out_once_and_for_good(thoughtful, provider):
    before = thoughtful.rows()
    provider.play(too_long(BOUND), answer("Two."), answer("Three."))
    done = run(thoughtful)
    one, two = chats(provider)
    assert ("THOUGHT" in one, "THOUGHT" in two) == (True, False)
    assert json.loads(two)["messages"][-1] == json.loads(one)["messages"][-1]
    assert overflown(done.attempts) == [("first", "unbound"), ("first", "completed")]
    assert done.attempts[0]["kind"] == "BINDING"
    assert desk.rebuild(thoughtful.turn(1)) == two
    thoughtful.say("Go on.")
    run(thoughtful)
    assert "THOUGHT" not in chats(provider)[-1]
    assert thoughtful.rows()[: len(before)] == before
    assert thoughtful.compactions() == []


def test_leaving_thinking_out_takes_no_rung_away(thoughtful, provider):
    provider.play(too_long(BOUND), too_long(), too_long(), answer())
    assert [o for _, o in overflown(run(thoughtful).attempts)][:1] == ["unbound"]
    assert thoughtful.turn(1).status == "completed"


def test_where_no_thinking_is_left_the_refusal_is_told_and_the_turn_fails(thoughtful, provider):
    provider.play(too_long(BOUND), too_long(BOUND), answer())
    with pytest.raises(ProviderFailed):
        run(thoughtful)
    assert len(chats(provider)) == 2
    assert thoughtful.turn(1).status == "failed"
    thoughtful.say("Again.")
    assert run(thoughtful).turn.status == "completed"


def test_a_runtime_that_calls_the_model_itself_reports_refused_thinking_and_gets_a_request_without(
    thoughtful,
):
    built = thoughtful.build()
    assert "THOUGHT" in built.body
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": BOUND}}
    climbed = ladder.climb(thoughtful.session, built.turn.number, ladder.reported(error))
    judge(climbed.built.body)
    assert "THOUGHT" not in climbed.built.body
    assert thoughtful.turn(1).rung == ""


# --- what may pass is tried again


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_what_may_pass_is_tried_again_within_the_attempt(caller, provider, watch, status):
    runtime = caller()
    provider.play(failed(status), failed(status), answer())
    done = run(runtime)
    assert overflown(done.attempts) == [("first", "completed")]
    assert len(set(chats(provider))) == 1  # the same bytes each time
    assert len(chats(provider)) == 3
    assert 0 < watch.now < 10


def test_it_waits_as_long_as_the_provider_asks(caller, provider, watch):
    provider.play(failed(429, "rate_limit_error", retry_after_s=17.0), answer())
    run(caller())
    assert watch.now == 17.0


def test_it_does_not_wait_past_the_deadline(caller, provider, watch, settings):
    settings.HANGO_CALL_TIMEOUT_S = 30
    runtime = caller()
    provider.play(failed(429, "rate_limit_error", retry_after_s=31.0), answer())
    with pytest.raises(ProviderFailed):
        run(runtime)
    assert (watch.now, len(chats(provider))) == (0.0, 1)
    assert runtime.turn(1).status == "failed"


def test_each_try_gets_the_time_that_is_left(caller, provider, settings):
    settings.HANGO_CALL_TIMEOUT_S = 30
    provider.play(failed(529, retry_after_s=12.0), answer())
    run(caller())
    assert [c.timeout_s for c in provider.calls] == [30.0, 18.0]


def test_an_outage_ends_after_four_tries_with_growing_pauses(caller, provider, watch, monkeypatch):
    pauses = []
    sleep = watch.sleep
    monkeypatch.setattr(watch, "sleep", lambda s: (pauses.append(s), sleep(s)))
    runtime = caller()
    before = runtime.rows()
    provider.play(*[failed(503)] * 9)
    with pytest.raises(ProviderFailed) as caught:
        run(runtime)
    assert caught.value.http_status == 503
    assert len(chats(provider)) == call.MOST_TRIES == 4
    assert all(later > earlier / 2 for earlier, later in itertools.pairwise(pauses))
    assert all(0.5 <= p / (call.FIRST_PAUSE_S * 2**n) <= 1 for n, p in enumerate(pauses, 1))
    assert runtime.rows() == before


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (400, "invalid_request_error", "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        (400, "invalid_request_error", "max_tokens: Input should be greater than or equal to 1"),
        (401, "authentication_error", "invalid x-api-key"),
        (403, "permission_error", "no"),
        (404, "not_found_error", "model: nothing"),
    ],
)
def test_what_will_not_pass_is_told_at_once_and_loses_nothing(caller, provider, watch, status, kind, message):
    runtime = caller()
    before = runtime.rows()
    provider.play(failed(status, kind, message=message), answer())
    with pytest.raises(ProviderFailed) as caught:
        run(runtime)
    assert message not in caught.value.detail
    assert (len(chats(provider)), watch.now) == (1, 0.0)
    turn = runtime.turn(1)
    assert (turn.status, overflown(turn.attempts)) == ("failed", [("first", kind)])
    assert runtime.rows() == before
    assert runtime.compactions() == []
    assert run(runtime).turn.number == 2  # and what was said is answered by the next


def test_a_request_over_a_rate_limit_by_itself_is_no_matter_of_waiting(caller, provider, watch):
    """One request above the limit of a minute never passes: a smaller one does."""
    runtime = caller()
    said = "Request too large for gpt-4 on tokens per min (TPM): Limit 10000, Requested 11500."
    provider.play(failed(429, "rate_limit_exceeded", message=said, retryable=False), "SUMMARY", answer())
    assert overflown(run(runtime).attempts) == [("first", "overflow"), ("overflow", "completed")]


def test_without_a_provider_there_is_nothing_to_call(caller, settings):
    runtime = caller()
    settings.HANGO_PROVIDER = "extractive"
    with pytest.raises(ProviderFailed) as caught:
        run(runtime)
    assert caught.value.kind == "no-provider"
    assert not runtime.session.turns.exists()


# --- counters


def test_exactly_one_update_of_the_session_a_turn_over_a_retried_call(caller, provider):
    """SPEC N5: two turns, the first with a call tried again, an overflow, a compaction and a truncation."""
    runtime = caller()
    provider.play(failed(529), too_long(), "SUMMARY", too_long(), answer(), answer("Two.", input_tokens=950))
    with CaptureQueriesContext(connection) as caught:
        run(runtime)
        runtime.say("And?")
        run(runtime)
    assert len(updates_of(caught.captured_queries)) == 2, updates_of(caught.captured_queries)
    session = runtime.fresh()
    assert (session.last_input_tokens, session.compactions) == (950, 1)


def test_a_turn_that_failed_is_counted_once_too(caller, provider):
    runtime = caller()
    provider.play(too_long(), "SUMMARY", too_long(), too_long())
    with CaptureQueriesContext(connection) as caught:
        run(runtime)
    assert len(updates_of(caught.captured_queries)) == 1
    assert runtime.fresh().compactions == 1


# --- what its own calls teach


LIMIT = "prompt is too long: 13000 tokens > {} maximum"


def test_a_limit_that_the_provider_names_is_learned_for_that_provider_and_model(caller, provider, start):
    runtime = caller()
    provider.play(too_long(LIMIT.format(9_000)), "SUMMARY", answer())
    run(runtime)
    fact = ModelFact.objects.get(model="test-model")
    assert fact.max_input_tokens == 9_000
    assert facts.of("test-model")["max_input_tokens"] == 9_000
    other = start(limits={"precompute_frac": None}, model="test-model")
    other.session.limits = {"max_wait_s": 0}
    other.session.save(update_fields=["limits"])
    other.say("Hello.")
    assert other.build().state.limits.window == 9_000  # of every session of that model
    assert facts.of("other-model") == {}


def test_another_address_of_the_provider_has_learned_nothing(caller, provider, settings):
    runtime = caller()
    provider.play(too_long(LIMIT.format(9_000)), "SUMMARY", answer())
    run(runtime)
    settings.ANTHROPIC_BASE_URL = "http://127.0.0.1:9/elsewhere"
    assert facts.of("test-model") == {}


@pytest.mark.parametrize("limit", [1_000, 3_600, 14_401, 2_000_000])
def test_a_limit_that_cannot_be_this_models_is_not_believed(caller, provider, limit):
    """Outside 0.3 to 1.2 of what is known, 12,000."""
    runtime = caller()
    provider.play(too_long(LIMIT.format(limit)), "SUMMARY", answer())
    assert run(runtime).turn.status == "completed"
    assert not ModelFact.objects.filter(max_input_tokens__isnull=False).exists()
    assert runtime.fresh().reported_limit is None


@pytest.mark.parametrize("limit", [3_601, 11_000, 14_400])
def test_a_limit_within_reach_is_believed(caller, provider, limit):
    runtime = caller()
    provider.play(too_long(LIMIT.format(limit)), "SUMMARY", answer())
    run(runtime)
    assert ModelFact.objects.get().max_input_tokens == limit


def test_what_a_client_reports_holds_for_its_session_only_and_is_written_with_the_counters(caller, start):
    runtime = caller()
    runtime.build()
    with CaptureQueriesContext(connection) as caught:
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": LIMIT.format(9_000)}}
        with runtime.committing():
            climbed = ladder.climb(runtime.session, 1, ladder.reported(body))
        assert updates_of(caught.captured_queries) == []
        runtime.sent[1] = climbed.built
        runtime.complete("Good.", usage=USAGE)
    (update,) = updates_of(caught.captured_queries)
    assert '"reported_limit"' in update
    assert '"last_input_tokens"' in update
    assert runtime.fresh().reported_limit == 9_000
    assert not ModelFact.objects.exists()
    runtime.say("And?")
    assert runtime.build().state.limits.window == 9_000
    other = start()
    other.say("Hello.")
    assert other.build().state.limits.window == 12_000


def test_the_factor_is_learned_from_own_usage_once_it_was_seen_often_enough(caller, provider):
    runtime = caller(40_000)
    seen = []
    for n in range(facts.ENOUGH):
        done = _reporting(runtime, provider, 1.3)
        seen.append(facts.of("test-model").get("estimate_factor"))
        assert done.turn.usage["input_tokens"] == pytest.approx(1.3 * done.turn.estimated_tokens, rel=0.01)
        runtime.say(f"More {n}.")
    assert seen[:-1] == [None] * (facts.ENOUGH - 1)
    assert seen[-1] == pytest.approx(1.3, rel=0.01)
    assert ModelFact.objects.get().samples == facts.ENOUGH


def _reporting(runtime, provider, ratio):
    """A turn whose answer reports so many times the estimate of the request that was sent."""
    provider.reset()

    def send(sent):
        turn = turns.open_turn(runtime.session)
        provider.play(answer("Fine.", input_tokens=int(ratio * turn.estimated_tokens)))

    provider.during = send
    return run(runtime)


@pytest.mark.parametrize("ratio", [0.2, 0.49, 2.6, 40.0])
def test_usage_that_cannot_be_this_requests_teaches_nothing(caller, provider, ratio):
    _reporting(caller(40_000), provider, ratio)
    assert not ModelFact.objects.filter(estimate_factor__isnull=False).exists()


def test_a_factor_follows_slowly_and_is_not_written_for_a_trifle(caller, provider):
    runtime = caller(40_000)
    for _ in range(facts.ENOUGH):
        _reporting(runtime, provider, 1.3)
        runtime.say("More.")
    _reporting(runtime, provider, 1.31)
    assert ModelFact.objects.get().samples == facts.ENOUGH
    runtime.say("More.")
    _reporting(runtime, provider, 2.3)
    assert facts.of("test-model")["estimate_factor"] == pytest.approx(1.5, rel=0.02)


def test_usage_that_a_client_reports_teaches_no_other_session(caller):
    runtime = caller(40_000)
    for _ in range(4):
        built = runtime.build()
        runtime.complete("Good.", usage={"input_tokens": int(1.3 * built.shown.tokens), "output_tokens": 1})
        runtime.say("More.")
    assert not ModelFact.objects.exists()
    assert runtime.build().shown.source == "usage"


# --- the tool that asks for a compaction


@pytest.mark.parametrize("parallel", [False, True])
def test_a_call_of_the_compact_tool_compacts_at_the_next_build_and_is_answered(caller, provider, parallel):
    runtime = caller(compact_tool=True)
    calls = [use("k1", "compact_conversation"), *([use("c1", path="a.py")] if parallel else [])]
    provider.play(Reply.of(json.dumps(calls), "tool_use", dict(USAGE)))
    run(runtime)
    (job,) = runtime.compactions()
    assert (job.reason, job.status) == ("tool", "requested")
    if parallel:
        runtime.append(new("user", [result("c1", "contents of a.py")]))
    stored = runtime.rows()
    provider.play("SUMMARY: as the model asked.", answer())
    done = run(runtime)
    sent = chats(provider)[-1]
    assert "SUMMARY: as the model asked." in sent
    assert "compact_conversation" in json.dumps(json.loads(sent)["tools"])
    assert (done.built.compaction.reason, done.built.compaction.pk) == ("tool", job.pk)
    results = [
        b["tool_use_id"]
        for m in json.loads(sent)["messages"] for b in m["content"]
        if isinstance(b, dict) and b["type"] == "tool_result"
    ]  # fmt: skip
    assert sorted(results) == sorted(c["id"] for c in calls)
    assert any(r.rule == "compact-result R11" for r in done.built.shown.request.repairs)
    assert runtime.rows()[:-1] == stored  # hango's result is stored nowhere


def test_a_result_that_the_client_sends_for_it_stands(caller, provider):
    runtime = caller(compact_tool=True)
    provider.play(Reply.of(json.dumps([use("k1", "compact_conversation")]), "tool_use", dict(USAGE)))
    run(runtime)
    runtime.append(new("user", [result("k1", "My own words on it.")]))
    provider.play("SUMMARY", answer())
    done = run(runtime)
    assert "My own words on it." in chats(provider)[-1]
    assert done.built.compaction.reason == "tool"
    assert not any("compact" in r.rule for r in done.built.shown.request.repairs)


def test_the_tool_is_no_tool_where_it_is_not_offered(caller, provider):
    runtime = caller()
    provider.play(Reply.of(json.dumps([use("k1", "compact_conversation")]), "tool_use", dict(USAGE)))
    run(runtime)
    assert runtime.compactions() == []
    assert "compact_conversation" not in chats(provider)[0]


# --- as a stream


def drained(events):
    seen = []
    while True:
        try:
            seen.append(next(events).name)
        except StopIteration as end:
            return seen, end.value


def test_refused_attempts_leave_nothing_in_the_stream(caller, provider):
    runtime = caller()
    provider.play(too_long(), "SUMMARY", failed(529), answer("Streamed."))
    with runtime.committing():
        seen, done = drained(call.stream(runtime.session))
    assert seen == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert overflown(done.attempts) == [("first", "overflow"), ("overflow", "completed")]
    assert text_of(runtime.rows())[-1] == text("Streamed.")


def test_an_empty_answer_still_passes_its_events_on(caller, provider):
    runtime = caller()
    provider.play(Reply("", "end_turn", dict(USAGE)))
    with runtime.committing():
        seen, done = drained(call.stream(runtime.session))
    assert seen == ["message_start", "message_delta", "message_stop"]
    assert (done.turn.status, text_of(runtime.rows())[-1]) == ("completed", [])
