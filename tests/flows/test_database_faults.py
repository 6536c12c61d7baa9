"""A database that is killed, locked, full or replaced, in the middle of a write: a 503 that asks to come back, nothing
half-written, and a worker that waits for it (docs/reliability.md). The faults are the database's own, of this run's kind."""

import contextlib
import sqlite3

import psycopg
import pytest
from django.conf import settings
from django.db import DatabaseError, connection

from compaction import again
from sessions_app import auth
from sessions_app.models import Project, Session
from tests import invariants, servers
from tests.api.client import Api, assistant, user
from tests.flows.runtime import Runtime, new, words

pytestmark = pytest.mark.django_db(transaction=True)
POSTGRES = "postgresql" in settings.DATABASES["default"]["ENGINE"]


def raised(code):
    """PostgreSQL itself raises the error of that SQLSTATE in the place of the statement."""

    @contextlib.contextmanager
    def fault():
        def spoil(execute, sql, params, many, context):
            return execute(
                f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$", (), False, context
            )

        yield spoil

    return fault


@contextlib.contextmanager
def killed():
    """The server ends this connection just before the statement, as a restart, a failover or a time limit does."""

    def spoil(execute, sql, params, many, context):
        with psycopg.connect(servers.postgres_url(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
        return execute(sql, params, many, context)

    yield spoil


@contextlib.contextmanager
def locked():
    """Somebody else writes for longer than the time limit, which is shortened here."""

    def spoil(execute, sql, params, many, context):
        connection.connection.execute("PRAGMA busy_timeout = 20")
        with contextlib.closing(sqlite3.connect(connection.settings_dict["NAME"])) as other:
            other.execute("BEGIN IMMEDIATE")
            return execute(sql, params, many, context)

    yield spoil


@contextlib.contextmanager
def full():
    """No page can be added to the file."""

    def pages(count):
        with contextlib.closing(connection.connection.execute(f"PRAGMA max_page_count = {count}")) as cursor:
            return cursor.fetchone()[0]

    def spoil(execute, sql, params, many, context):
        pages(1)  # SQLite takes the present size for what is less
        return execute(sql, params, many, context)

    connection.connection.execute("VACUUM")  # nor is one free within it
    try:
        yield spoil
    finally:
        connection.ensure_connection()
        pages(1_073_741_823)


MESSAGE, ANSWER, TURN, JOB = (
    'INSERT INTO "transcript_message"',
    'INSERT INTO "transcript_idempotentanswer"',
    'INSERT INTO "compaction_turn"',
    'UPDATE "compaction_compaction"',
)
RAISED = {
    "deadlock": "40P01",
    "serialization failure": "40001",
    "lock timeout": "55P03",
    "idle in transaction": "25P03",
    "disk full": "53100",
    "read only after a failover": "25006",
    "shutting down": "57P01",
}
FAULTS = {"killed": killed, **{name: raised(code) for name, code in RAISED.items()}}
if not POSTGRES:
    FAULTS = {"locked": locked, "full": full}


def faults(*statements):
    """Every fault of this database at the first of the statements, a lost connection at the others. SQLite's lock is met at the begin of a transaction, its full
    disk by what is large."""
    both = [(fault, statements[0]) for fault in FAULTS] + [("killed", other) for other in statements[1:]]
    if not POSTGRES:
        both = [("locked", s if s == JOB else "BEGIN") for s in statements[:1]]
        both += [("full", s) for s in statements if s in (MESSAGE, JOB)]
    return both


@contextlib.contextmanager
def struck(fault, statement, times=1):
    """The fault strikes the first `times` statements that begin so."""
    left = [times]
    with fault() as spoil:

        def watch(execute, sql, params, many, context):
            if not (left[0] and sql.startswith(statement)):
                return execute(sql, params, many, context)
            left[0] -= 1
            return spoil(execute, sql, params, many, context)

        with connection.execute_wrapper(watch):
            yield
    connection.close_if_unusable_or_obsolete()
    assert left[0] < times, f"no statement began with {statement!r}"


@pytest.fixture
def api(transactional_db, own_history):
    return Api(auth.make_key(Project.objects.create(name="struck")))


BIG = [user("MINE " + "x" * 60_000), assistant("y" * 60_000)]


def test_an_append_is_a_503_to_try_again_and_nothing_of_it_is_written(api):
    for n, (fault, statement) in enumerate(faults(MESSAGE, ANSWER)):
        append(api, api.session(f"s-{n}"), fault, statement)
    assert invariants.broken() == []


def append(api, session, fault, statement):
    api.say(session, user("before"), assistant("ok"))
    sent = {"messages": BIG}
    with struck(FAULTS[fault], statement):
        answer = api.post(f"{session}/messages/", sent, Idempotency_Key=session)
    answer.problem(503, "try-again")
    assert int(answer.headers["Retry-After"]) > 0
    assert "MINE" not in answer.text
    assert len(api.transcript(session)) == 2
    for _ in range(2):  # the client tries again, and once more because it did not hear the answer
        again = api.post(f"{session}/messages/", sent, Idempotency_Key=session).expect(201)
        assert [m["seq"] for m in again["appended"]] == [2, 3]
    assert len(api.transcript(session)) == 4


def test_a_build_or_a_completed_turn_is_a_503_that_leaves_the_turn_as_it_was(api):
    for n, (fault, statement) in enumerate(faults(TURN, MESSAGE)):
        turn(api, api.session(f"s-{n}"), fault, statement)
    assert invariants.broken() == []


def turn(api, session, fault, statement):
    api.say(session, user("Now?"))
    number = api.build(session)["turn"] if statement == MESSAGE else None
    with struck(FAULTS[fault], statement):
        if number:
            answer = api.complete(session, number, "z" * 60_000)
        else:
            answer = api.post(f"{session}/requests/", {})
    answer.problem(503)
    api.complete(session, number or api.build(session)["turn"]).expect(200)


@pytest.fixture
def start(api, clock, bell):
    """start(): a runtime whose session has a job."""

    def begin(name):
        api.session(name, limits={"max_input_tokens": 12_000}, max_tokens=1_000)
        runtime = Runtime(Session.objects.get(public_id=name), clock, bell)
        one = words(200)
        runtime.append(*(new(role, f"{n} {one}") for n in range(30) for role in ("user", "assistant")))
        return runtime

    return begin


def test_a_result_waits_for_the_database_and_is_recorded_once_without_another_call(start, provider, watch):
    for n, (fault, statement) in enumerate(faults(JOB)):
        runtime = start(f"s-{n}")
        provider.play("SUMMARY: paid for. " + words(900))
        with contextlib.ExitStack() as strike:
            provider.during = lambda call: strike.enter_context(struck(FAULTS[fault], statement))  # noqa: B023
            runtime.work()
        (row,) = runtime.compactions()
        assert (row.status, row.fence, row.error_code) == ("ready", 1, ""), fault
        assert len(provider.calls) == n + 1, fault
    invariants.sweep_until_quiet(inline=True, move=runtime.clock.move)
    assert invariants.broken() == []


def test_a_database_that_stays_away_leaves_the_job_to_its_lease(start, provider, watch):
    for n, fault in enumerate(["killed", "read only after a failover"] if POSTGRES else ["locked"]):
        runtime, times = start(f"s-{n}"), len(again.PAUSES_S) + 1
        with contextlib.ExitStack() as strike:
            # The record's tries, and those of giving the job back.
            provider.during = lambda call: strike.enter_context(struck(FAULTS[fault], JOB, 2 * times))  # noqa: B023
            with pytest.raises(DatabaseError):
                runtime.work()
        (row,) = runtime.compactions()
        assert (row.status, row.fence, row.summary) == ("running", 1, ""), fault
        invariants.sweep_until_quiet(inline=True, move=runtime.clock.move)
        (row,) = runtime.compactions()
        assert (row.status, row.fence) == ("ready", 2), fault
        assert len(provider.calls) == 2 * (n + 1), fault
    assert invariants.broken() == []
