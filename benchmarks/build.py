"""Build and append beside each other at 100 and at 10 000 stored messages, in one run: the ratio is what counts.

    python -m benchmarks.build          (SQLite in a temporary home; HANGO_DATABASE_URL for another database)

Both sessions show the same 100 newest messages; in the long one a summary stands for the rest. Prints medians in
milliseconds, queries, and the ratios; exit code 0 whatever they are, since machines differ.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

SHOWN = 100
SIZES = (100, 10_000)
ROUNDS = 60


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hango-bench-") as home:
        os.environ.update(
            HANGO_HOME=home,
            HANGO_PROVIDER="scripted",
            HANGO_LOG_LEVEL="ERROR",
            DJANGO_SETTINGS_MODULE="hango.settings",
        )
        import django  # noqa: PLC0415 - settings read the environment above

        django.setup()
        _measure()
    return 0


def _measure() -> None:
    from django.core.management import call_command  # noqa: PLC0415

    from compaction import jobs  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    jobs._send = lambda job_id: None  # no broker here: it is the database and our own code that are measured
    figures = {size: _of_size(size) for size in SIZES}
    print(f"{'stored':>8} {'build ms':>9} {'queries':>8} {'append ms':>10} {'queries':>8}")
    for size, (build, build_queries, add, add_queries) in figures.items():
        print(f"{size:>8} {build:>9.2f} {build_queries:>8} {add:>10.2f} {add_queries:>8}")
    small, large = (figures[size] for size in SIZES)
    print(f"ratio {SIZES[1]} : {SIZES[0]}  build {large[0] / small[0]:.2f}  append {large[2] / small[2]:.2f}")


def _of_size(size: int) -> tuple[float, int, float, int]:
    """(build ms, its queries, append ms, its queries), medians, of a session with so many stored messages."""
    from compaction import gather, outgoing, ready  # noqa: PLC0415
    from sessions_app import views  # noqa: PLC0415
    from sessions_app.models import Project, Session  # noqa: PLC0415

    project, _ = Project.objects.get_or_create(name="bench")
    session = Session.objects.create(
        project=project, public_id=f"bench-{size}", model="claude-sonnet-4-5", estimator="heuristic-1",
        tools='[{"name":"read_file","input_schema":{"type":"object"}}]',
    )  # fmt: skip
    stored = size - 1  # ends on a user's message; each round adds an assistant's and a user's
    for at in range(0, stored, 500):
        views.appended(session, [_message(i) for i in range(at, min(stored, at + 500))])
    if size > SHOWN:
        ready.imported(gather.state(session), "What was done so far.", size - SHOWN + 1)
        outgoing.build(session)
    builds: list[float] = []
    adds: list[float] = []
    for seq in range(stored, stored + 2 * ROUNDS, 2):
        adds += [_timed(views.appended, session, [_message(seq + i)]) for i in range(2)]
        builds.append(_timed(outgoing.build, session))
    seq = stored + 2 * ROUNDS
    add_queries = [_counted(views.appended, session, [_message(seq + i)]) for i in range(2)][-1]
    build_queries = _counted(outgoing.build, session)
    return statistics.median(builds), build_queries, statistics.median(adds), add_queries


def _message(seq: int) -> Any:
    from sessions_app.append import NewMessage  # noqa: PLC0415

    text = f"line {seq} of the file, with some words in it. " * 20
    if seq % 2 == 0 and seq % 20 == 0:
        return NewMessage("user", json.dumps(f"Question {seq}: {text}"))
    if seq % 2 == 0:
        return NewMessage(
            "user", json.dumps([{"type": "tool_result", "tool_use_id": f"t{seq - 1}", "content": text}])
        )
    if seq % 20 == 19:
        return NewMessage("assistant", json.dumps([{"type": "text", "text": text}]))
    return NewMessage(
        "assistant",
        json.dumps(
            [{"type": "tool_use", "id": f"t{seq}", "name": "read_file", "input": {"path": f"src/{seq}.py"}}]
        ),
    )


def _timed(call: Callable[..., Any], *arguments: Any) -> float:
    """Milliseconds that the call took."""
    began = time.perf_counter()
    call(*arguments)
    return (time.perf_counter() - began) * 1000


def _counted(call: Callable[..., Any], *arguments: Any) -> int:
    """How many queries the call made."""
    from django.db import connection  # noqa: PLC0415
    from django.test.utils import CaptureQueriesContext  # noqa: PLC0415

    with CaptureQueriesContext(connection) as captured:
        call(*arguments)
    return len(captured)


if __name__ == "__main__":
    sys.exit(main())
