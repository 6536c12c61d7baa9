"""Real processes: web, worker and beat of one stack, with the database of this run and a real broker."""

import itertools

import pytest

from hango import stack
from tests import servers

_redis_numbers = itertools.cycle(range(8, 16))


@pytest.fixture
def start_stack(tmp_path, fresh_database_url):
    """start_stack(**settings): a running stack. On PostgreSQL it gets the tests' own Valkey, else it brings one. A second
    stack has a database and a broker of its own."""
    running: list[stack.Stack] = []
    lines: list[str] = []
    databases: list[str] = []

    def start(**settings: str) -> stack.Stack:
        database = fresh_database_url
        if database and running:
            databases.append(database := servers.new_database())
        env = {
            "HANGO_DATABASE_URL": database,
            "HANGO_BOOTSTRAP_API_KEY": "case-key",
            "HANGO_SWEEP_EVERY_S": "0.5",
            "HANGO_SHUTDOWN_S": "5",
            **settings,
        }
        if database and "HANGO_REDIS_URL" not in env:
            env["HANGO_REDIS_URL"] = servers.new_redis(next(_redis_numbers))
        home = tmp_path / f"home-{len(running)}"
        running.append(
            stack.Stack(
                home, servers.free_port(), env, say=lambda name, line: lines.append(f"{name} | {line}")
            )
        )
        running[-1].start()
        return running[-1]

    yield start
    for one in running:
        one.stop()
    for database in databases:
        servers.drop_database(database)
    print("\n".join(line for line in lines if " sweep" not in line and "compaction.sweep" not in line))


@pytest.fixture
def upstream():
    """A running strict stand-in for the provider."""
    from tests.acceptance.upstream import Upstream

    with Upstream() as running:
        yield running
