"""Several at once on one session: threads with connections of their own, on the database of this run."""

import threading

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from compaction import compact, forced, outgoing
from compaction.models import Compaction
from sessions_app import views
from sessions_app.models import Project, Session
from tests.flows.conftest import make_session
from tests.flows.runtime import Runtime, judge, new, words

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(count, work):
    """work(n) in `count` threads that begin together; what each returned or raised."""
    gate, found = threading.Barrier(count), [None] * count

    def one(n):
        try:
            gate.wait(10)
            found[n] = work(n)
        except Exception as error:
            found[n] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


@pytest.fixture
def runtime(transactional_db, clock, bell):
    project, _ = Project.objects.get_or_create(name="flows")
    return Runtime(make_session(project, "together", 12_000), clock, bell)


def own(runtime):
    """The session as another process reads it."""
    return Session.objects.get(pk=runtime.session.pk)


def test_eight_threads_append_and_seq_has_no_gap_and_no_double(runtime):
    def work(n):
        return [
            [
                row.seq
                for row in views.appended(
                    own(runtime), [new("user", f"T{n}-{i}-a"), new("user", f"T{n}-{i}-b")]
                ).rows
            ]
            for i in range(5)
        ]

    found = at_once(8, work)
    assert [f for f in found if isinstance(f, Exception)] == []
    assert sorted(seq for calls in found for pair in calls for seq in pair) == list(range(80))
    rows = runtime.rows()
    assert [row["seq"] for row in rows] == list(range(80))
    assert len({row["digest"] for row in rows}) == 80
    for calls in found:
        assert all(b == a + 1 for a, b in calls)  # a batch stays together
    through = 0
    for row in rows:
        through += row["tokens"]
        assert row["tokens_through"] == through


def test_the_same_client_id_at_once_is_stored_once(runtime):
    found = at_once(
        6, lambda n: views.appended(own(runtime), [new("user", "the same", client_id="once")]).rows[0].seq
    )
    assert found == [0] * 6
    assert len(runtime.rows()) == 1


def test_two_builds_at_once_give_one_turn_and_the_same_bytes(runtime):
    runtime.exchanges(6)
    runtime.say("Now?")
    found = at_once(4, lambda n: outgoing.build(own(runtime)))
    assert [f for f in found if isinstance(f, Exception)] == []
    assert {(built.turn.number, built.body) for built in found} == {(1, found[0].body)}
    judge(found[0].body)
    assert runtime.session.turns.count() == 1
    assert runtime.turn(1).digest == found[0].turn.digest


def test_a_turn_is_closed_once_and_counted_once(runtime):
    from compaction import turns

    runtime.say("Now?")
    runtime.build()
    found = at_once(
        4,
        lambda n: turns.complete(
            own(runtime),
            1,
            new("assistant", f"answer {n % 2}"),
            "end_turn",
            {"input_tokens": 7 + n % 2},
            f"body {n % 2}",
        ),
    )
    kinds = [type(f).__name__ for f in found]
    assert kinds.count("Conflict") == 2
    assert kinds.count("Closed") == 2
    assert len(runtime.rows()) == 2
    assert runtime.fresh().last_input_tokens in (7, 8)


def test_twenty_asks_at_once_are_one_job_and_twenty_claims_one_call(runtime, provider):
    runtime.exchanges(10)
    found = at_once(8, lambda n: forced.compact_session(own(runtime), forced.Asked()).row.pk)
    assert [f for f in found if isinstance(f, Exception)] == []
    assert len(set(found)) == 1
    at_once(8, lambda n: compact.run(str(found[0])))
    assert len(provider.calls) == 1
    (job,) = Compaction.objects.all()
    assert (job.status, job.fence) == ("ready", 1)


def test_appends_go_on_while_a_summary_is_written(runtime, provider):
    runtime.exchanges(20)
    seen = []

    def meanwhile(call):
        seen.append(connection.in_atomic_block)
        seen.extend(
            at_once(
                3, lambda n: views.appended(own(runtime), [new("user", words(10, f"DURING-{n}"))]).rows[0].seq
            )
        )

    provider.during = meanwhile
    runtime.work()
    assert seen[0] is False
    assert sorted(seen[1:]) == [40, 41, 42]
    (job,) = runtime.compactions()
    assert job.status == "ready"


def test_a_build_takes_no_lock_on_the_session_row(runtime):
    runtime.say("Now?")
    with CaptureQueriesContext(connection) as caught:
        runtime.build()
    assert not [
        q for q in caught.captured_queries if "FOR UPDATE" in q["sql"] or "FOR NO KEY UPDATE" in q["sql"]
    ]
