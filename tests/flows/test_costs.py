"""What a call costs does not grow with the age of the session (DESIGN 4)."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction.models import Turn
from tests.flows.runtime import new, text, words


def aged(start, messages):
    """A session of so many messages whose older part is summarised, in the middle of its work."""
    runtime = start(20_000)
    for n in range(0, messages, 200):
        batch = [
            (new("user", words(20, f"M-{i}")), new("assistant", words(20)))
            for i in range(min(200, messages - n) // 2)
        ]
        runtime.append(*[m for pair in batch for m in pair])
    runtime.work()
    runtime.request_job()
    runtime.work()
    runtime.exchange("A first turn.", "Done.")
    assert Turn.objects.filter(session=runtime.session, compaction__isnull=False).count() == 1
    assert runtime.session.messages.count() == messages + 2
    return runtime


def queries(call):
    with CaptureQueriesContext(connection) as caught:
        call()
    return [q["sql"].split(" FROM ")[-1][:120] for q in caught.captured_queries]


@pytest.fixture
def young_and_old(start):
    return aged(start, 100), aged(start, 2_000)


def test_append_build_and_close_take_as_many_queries_at_2000_messages_as_at_100(young_and_old):
    steps = {
        "append": lambda runtime: runtime.append(
            new("user", "One more.", client_id="c-1"), new("user", text("And one."))
        ),
        "build": lambda runtime: runtime.build(),
        "again": lambda runtime: runtime.build(),
        "close": lambda runtime: runtime.complete("Yes.", usage={"input_tokens": 900, "output_tokens": 1}),
    }
    for name, step in steps.items():
        young, old = (queries(lambda r=runtime, s=step: s(r)) for runtime in young_and_old)
        assert len(young) == len(old), (name, young, old)
        assert len(old) < 40, name


def test_a_build_reads_the_shown_rows_and_no_others(young_and_old):
    _, old = young_and_old
    old.say("Now?")
    with CaptureQueriesContext(connection) as caught:
        built = old.build()
    assert len(built.shown.request.messages) < 100
    reads = [
        q["sql"]
        for q in caught.captured_queries
        if '"content"' in q["sql"] and "transcript_message" in q["sql"]
    ]
    for sql in reads:
        assert '"seq" >=' in sql or "pinned" in sql or "LIMIT 1" in sql, sql
