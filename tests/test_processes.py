"""Child processes: stopped in order, killed whole, and gone when their starter is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hango import processes

ROOT = Path(__file__).resolve().parent.parent
SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
# A child that ignores SIGTERM, and a grandchild of it.
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print(child.pid, flush=True); time.sleep(60)",
]


def gone(pid: int) -> bool:
    """Ended, or a zombie that whoever inherited it has not read yet."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return not done.stdout.strip() or done.stdout.strip().startswith("Z")


def wait_for(condition, seconds=10):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to be in time"
        time.sleep(0.02)


@pytest.fixture
def lines():
    return []


@pytest.fixture
def children(lines):
    group = processes.Processes(lambda name, line: lines.append((name, line)))
    yield group
    group.close()


def test_output_is_told_with_its_name(children, lines):
    children.start("one", SLEEPER, os.environ, ROOT)
    wait_for(lambda: ("one", "up") in lines)
    assert children.tail("one") == "up"


def test_one_that_ends_by_itself_is_noticed(children):
    children.start("fine", SLEEPER, os.environ, ROOT)
    assert children.ended() is None
    children.start("brief", [sys.executable, "-c", "raise SystemExit(3)"], os.environ, ROOT)
    wait_for(lambda: children.ended() == "brief")
    assert children.process("brief").returncode == 3


def test_what_ignores_the_request_is_killed_with_its_children(children, lines):
    leader = children.start("stubborn", STUBBORN, os.environ, ROOT)
    wait_for(lambda: lines)
    start = time.monotonic()
    children.stop("stubborn", 0.3)
    assert time.monotonic() - start < 5
    assert leader.returncode == -signal.SIGKILL
    wait_for(lambda: gone(int(lines[0][1])))


def test_a_killed_one_can_be_started_again(children):
    children.start("one", SLEEPER, os.environ, ROOT)
    children.kill("one")
    assert children.ended() is None
    children.start("one", SLEEPER, os.environ, ROOT)


def test_all_stop_in_the_order_given(children):
    started = {name: children.start(name, SLEEPER, os.environ, ROOT) for name in ("a", "b", "c")}
    children.stop_all(("c", "a"), 5)
    assert [process.returncode for process in started.values()] == [-signal.SIGTERM] * 3


def test_children_do_not_outlive_a_starter_that_was_killed():
    code = (
        "import os, sys, time; from pathlib import Path; from hango import processes\n"
        "group = processes.Processes()\n"
        f"child = group.start('one', {SLEEPER!r}, os.environ, Path('.'))\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        starter.kill()
    wait_for(lambda: gone(pid))
