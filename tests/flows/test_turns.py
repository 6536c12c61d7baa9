"""A turn: one compaction however often it is built (SPEC N3), closed once, its counters written once (SPEC N5)."""

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction import turns
from compaction.engine.errors import Conflict, NothingToSend, ResultsMissing
from tests.flows.runtime import new, shown_text, text, use, words

USAGE = {
    "input_tokens": 1_200,
    "cache_read_input_tokens": 300,
    "cache_creation_input_tokens": 7,
    "output_tokens": 50,
}


def updates_of(queries, table="transcript_session"):
    return [
        q["sql"]
        for q in queries
        if q["sql"].startswith("UPDATE") and f'"{table}"' in q["sql"].split("SET")[0]
    ]


def over_the_trigger(start, **limits):
    runtime = start(limits={"max_wait_s": 20, "precompute_frac": None, **limits})
    runtime.exchanges(30)
    runtime.say("And now?")
    return runtime


def test_a_second_build_in_the_same_turn_gives_the_same_turn_compaction_and_bytes(start, provider):
    runtime = over_the_trigger(start)
    one = runtime.build()
    two = runtime.build()
    assert one.compaction is not None
    assert (two.turn.number, two.compaction, two.body, two.turn.digest) == (
        one.turn.number,
        one.compaction,
        one.body,
        one.turn.digest,
    )
    assert len(provider.calls) == 1
    assert runtime.session.turns.count() == 1


def test_an_open_turn_keeps_its_compaction_when_a_newer_one_is_ready_and_messages_came(start, provider):
    runtime = over_the_trigger(start)
    one = runtime.build()
    provider.play("SUMMARY-2: a newer one.")
    runtime.exchanges(6, first=100)
    runtime.request_job()
    (newer,) = runtime.work()
    assert newer.status == "ready"
    assert newer.kept_from > one.compaction.kept_from
    runtime.say("And one thing more.")
    two = runtime.build()
    assert (two.turn.number, two.compaction) == (one.turn.number, one.compaction)
    assert two.shown.view.last_seq > one.shown.view.last_seq
    assert "And one thing more." in shown_text(two)
    assert two.shown.request.elements()[: len(one.shown.request.elements())] == one.shown.request.elements()
    runtime.complete("Yes.")
    runtime.say("Next.")
    three = runtime.build()
    assert three.turn.number == one.turn.number + 1
    assert three.compaction == newer


def test_the_session_row_is_updated_once_a_turn_whatever_was_retried_inside(start):
    """Two turns, the first with an overflow, a compaction and a retry: two UPDATEs of the session."""
    runtime = start(limits={"max_wait_s": 20})
    runtime.exchanges(12)
    with CaptureQueriesContext(connection) as caught:
        runtime.say("One.")
        runtime.build()
        climbed = runtime.overflow()
        assert climbed.rung == "overflow"
        runtime.build()
        runtime.work()
        runtime.complete("First answer.", usage=USAGE)
        runtime.say("Two.")
        runtime.build()
        runtime.complete("Second answer.", usage={"input_tokens": 2_000, "output_tokens": 5})
    assert len(updates_of(caught.captured_queries)) == 2, updates_of(caught.captured_queries)
    session = runtime.fresh()
    assert (session.last_input_tokens, session.compactions) == (2_000, 1)
    first = runtime.turn(1)
    assert [(a["rung"], a["outcome"]) for a in first.attempts if a["outcome"] == "overflow"] == [
        ("first", "overflow")
    ]


def test_the_input_is_what_the_cache_read_and_wrote_too(start):
    runtime = start()
    runtime.say("Hello.")
    runtime.build()
    runtime.complete("Hi.", usage=USAGE)
    assert runtime.fresh().last_input_tokens == 1_507


def test_failed_turns_count_too_once(start):
    runtime = start(limits={"max_wait_s": 0})
    runtime.exchanges(12)
    runtime.say("One.")
    runtime.build()
    with CaptureQueriesContext(connection) as caught:
        outcomes = [runtime.overflow() for _ in range(3)]
    assert outcomes[-1].built is None
    assert len(updates_of(caught.captured_queries)) == 1
    session = runtime.fresh()
    turn = runtime.turn(1)
    assert turn.status == "failed"
    assert session.last_input_tokens == turn.input_tokens > 0
    assert session.compactions == int(turn.adopted)
    with pytest.raises(Conflict):
        runtime.overflow()
    with CaptureQueriesContext(connection) as caught:
        assert not turns.fail(runtime.session, turn)
    assert updates_of(caught.captured_queries) == []


def test_an_appended_answer_closes_the_open_turn_with_one_update_and_unknown_usage(start):
    runtime = start()
    runtime.say("Hello.")
    built = runtime.build()
    with CaptureQueriesContext(connection) as caught:
        runtime.append(new("assistant", "Hi."), new("user", "And?"))
    assert len(updates_of(caught.captured_queries)) == 1
    turn = runtime.turn(1)
    assert (turn.status, turn.usage) == ("completed", None)
    assert runtime.fresh().last_input_tokens == built.shown.size
    with pytest.raises(Conflict):
        runtime.complete("Another answer.", number=1)
    assert runtime.build().turn.number == 2


def test_an_answer_that_does_not_follow_what_was_shown_does_not_close_the_turn(start):
    runtime = start()
    runtime.say("Hello.")
    runtime.build()
    runtime.append(new("user", "Wait."), new("assistant", "Hi."))
    assert runtime.turn(1).status == "open"


def test_completing_again_gives_the_same_answer_and_writes_nothing(start):
    runtime = start()
    runtime.say("Hello.")
    runtime.build()
    first = runtime.complete("Hi.", usage=USAGE, body="the same body")
    rows = runtime.rows()
    with CaptureQueriesContext(connection) as caught:
        again = runtime.complete("Hi.", usage=USAGE, number=1, body="the same body")
    assert updates_of(caught.captured_queries) == []
    assert again.turn.status == first.turn.status == "completed"
    assert again.seq == first.seq == 1
    assert again.warnings == first.warnings
    assert runtime.rows() == rows
    with pytest.raises(Conflict):
        runtime.complete("Something else.", number=1, body="another body")
    assert runtime.rows() == rows


def test_an_answer_that_came_after_other_messages_is_stored_after_them_and_is_no_anchor(start):
    runtime = start()
    runtime.say("Hello.")
    built = runtime.build()
    runtime.say("And something else.")
    closed = runtime.complete("Hi.", usage={"input_tokens": 5_000, "output_tokens": 1})
    assert closed.seq == 2
    assert any("messages-since-build" in w for w in closed.warnings)
    runtime.say("So?")
    following = runtime.build()
    assert following.shown.size < 2 * built.shown.size < 5_000
    assert following.shown.source == "estimate"


def test_reported_usage_is_the_anchor_of_the_next_budget(start):
    runtime = start()
    runtime.say(words(500))
    built = runtime.build()
    reported = int(built.shown.size * 1.5)
    runtime.complete("Hi.", usage={"input_tokens": reported, "output_tokens": 1})
    runtime.say("So?")
    following = runtime.build()
    assert following.shown.source == "usage"
    assert reported < following.shown.size < reported + 80


def test_nothing_is_built_of_nothing_nor_on_calls_without_results(start):
    runtime = start()
    with pytest.raises(NothingToSend):
        runtime.build()
    runtime.say("Hello.")
    runtime.build()
    runtime.complete([use("c1", path="a")])
    with pytest.raises(ResultsMissing):
        runtime.build()
    assert runtime.session.turns.count() == 1


def test_the_compact_tool_asks_for_a_compaction_that_is_shown_from_the_next_turn_on(start, provider):
    runtime = start(compact_tool=True)
    runtime.exchanges(10)
    runtime.say("Tidy up.")
    runtime.build()
    runtime.complete([*text("I do."), use("call-77", "compact_conversation")])
    (job,) = runtime.compactions()
    assert (job.reason, job.apply) == ("tool", "next_build")
    runtime.work()
    following = runtime.build()
    assert following.compaction.pk == job.pk
    assert any(
        r.rule for r in following.shown.request.repairs
    )  # hango's own result stands for the missing one
    stored = json.dumps([r["content"] for r in runtime.rows()])
    assert stored.count("call-77") == 1


def test_build_and_failure_ring_too_when_the_session_is_over_its_line(start):
    """Append, build and close all end in the question whether a compaction is due (DESIGN 4)."""
    runtime = start()
    runtime.exchanges(12)
    runtime.say("And?")
    assert runtime.compactions() == []
    built = runtime.build(
        memory=json.dumps(text(words(3_400, "MEMORY")))
    )  # it is the memory that takes it over the line
    assert built.lines.precompute < built.shown.size <= built.lines.trigger
    assert [j.status for j in runtime.compactions()] == ["requested"]
