"""The two counters come in a migration of their own, and go by one step down with nothing else (SPEC N6)."""

import json

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

COUNTERS = {"last_input_tokens", "compactions"}
BEFORE, AFTER = [("transcript", "0001_initial")], [("transcript", "0002_session_counters")]


def columns():
    with connection.cursor() as cursor:
        return {
            table: {c.name for c in connection.introspection.get_table_description(cursor, table)}
            for table in connection.introspection.table_names(cursor)
        }


def everything(without=frozenset()):
    """Every row of every table of ours."""
    found = {}
    with connection.cursor() as cursor:
        for table, names in columns().items():
            if table.startswith(("transcript_", "compaction_")):
                kept = sorted(names - without)
                listed = ", ".join(f'"{name}"' for name in kept)
                cursor.execute(f'SELECT {listed} FROM "{table}" ORDER BY 1, 2')
                found[table] = [tuple(map(str, row)) for row in cursor.fetchall()]
    return found


@pytest.fixture
def back():
    yield
    MigrationExecutor(connection).migrate(MigrationExecutor(connection).loader.graph.leaf_nodes())


@pytest.mark.django_db(transaction=True)
def test_one_step_down_drops_the_two_counters_and_nothing_else(transactional_db, start, back):
    runtime = start(limits={"max_wait_s": 20, "precompute_frac": None})
    runtime.exchanges(30)
    runtime.say("And now?")
    runtime.build()
    runtime.complete("Done.", usage={"input_tokens": 900, "output_tokens": 3})
    assert (runtime.fresh().last_input_tokens, runtime.session.compactions) == (900, 1)
    transcript = [json.loads(row["content"]) for row in runtime.rows()]
    MigrationExecutor(connection).migrate(AFTER)  # without what later versions added
    tables, rows = columns(), everything(COUNTERS)

    MigrationExecutor(connection).migrate(BEFORE)
    down = columns()
    assert {t: tables[t] - down[t] for t in tables if tables[t] != down.get(t)} == {
        "transcript_session": COUNTERS
    }
    assert everything() == rows

    MigrationExecutor(connection).migrate(AFTER)
    assert columns() == tables
    assert everything(COUNTERS) == rows
    MigrationExecutor(connection).migrate(MigrationExecutor(connection).loader.graph.leaf_nodes())
    session = runtime.fresh()
    assert (session.last_input_tokens, session.compactions) == (0, 0)  # not null, 0 by default
    assert [json.loads(row["content"]) for row in runtime.rows()] == transcript
    assert runtime.exchange("Still there?", "Yes.").compaction is not None
    assert runtime.fresh().last_input_tokens > 0
