"""Real processes: web, worker and beat of one stack, with the database of this run and a real broker."""

import pytest

from hango import stack
from tests import servers


@pytest.fixture
def start_stack(tmp_path, request, fresh_database_url):
    """start_stack(**settings): a running stack. On PostgreSQL it gets the tests' own Valkey, else it brings one."""
    running: list[stack.Stack] = []
    lines: list[str] = []

    def start(**settings: str) -> stack.Stack:
        env = {
            "HANGO_DATABASE_URL": fresh_database_url,
            "HANGO_BOOTSTRAP_API_KEY": "case-key",
            "HANGO_SWEEP_EVERY_S": "0.5",
            "HANGO_SHUTDOWN_S": "5",
            **settings,
        }
        if fresh_database_url and "HANGO_REDIS_URL" not in env:
            env["HANGO_REDIS_URL"] = request.getfixturevalue("fresh_redis_url")
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
    print("\n".join(line for line in lines if " sweep" not in line and "compaction.sweep" not in line))


@pytest.fixture
def upstream():
    """A running strict stand-in for the provider."""
    from tests.acceptance.upstream import Upstream

    with Upstream() as running:
        yield running
