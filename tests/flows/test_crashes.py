"""Processes that really die, stand still or come back late at every named point, on the database of this run; then the sweep
until quiet, and all invariants (docs/reliability.md)."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from compaction import crash, jobs, tasks
from compaction.models import Compaction
from compaction.providers.base import Reply
from sessions_app import views
from sessions_app.models import Project
from tests import invariants
from tests.flows.conftest import make_session
from tests.flows.runtime import Runtime, new

pytestmark = [
    pytest.mark.django_db(transaction=True),
    # A server of another test may have a thread; what is forked here uses none.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
LEASE_S = 300
CRASHED = -signal.SIGKILL


class Child:
    """A process like this one at the moment that it was made, which does `work` and ends."""

    def __init__(self, work: Callable[[], object]) -> None:
        connections.close_all()  # neither may go on with the other's connection
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

    def wait(self) -> int:
        """Its exit code, or less than zero the signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def wait_until_it_stands_still(self) -> None:
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)


def armed(work: Callable[[], object], crash_at: str) -> Callable[[], object]:
    def run() -> None:
        crash.arm({"HANGO_CRASH_AT": crash_at, "HANGO_TESTING": "on"})
        work()

    return run


@pytest.fixture
def runtime(transactional_db, clock, bell, own_history):
    project, _ = Project.objects.get_or_create(name="flows")
    return Runtime(make_session(project, "mortal", 12_000), clock, bell)


@pytest.fixture
def job(runtime):
    """A job that is asked for and that nobody has begun."""
    runtime.exchanges(20)
    runtime.bell.clear()
    return str(runtime.live().pk)


@pytest.fixture
def calls(tmp_path, monkeypatch, provider):
    """How often the provider was called, by whichever process."""
    log, real = tmp_path / "calls", provider.send

    def send(call) -> Reply:
        with log.open("a") as file:
            file.write(".")
        return real(call)

    monkeypatch.setattr(provider, "send", send)
    return lambda: len(log.read_text()) if log.exists() else 0


@pytest.fixture
def settled(clock):
    """settled(): sweeps until quiet; every invariant holds. What is stored of compactions."""

    def settle() -> list[Compaction]:
        invariants.sweep_until_quiet(inline=True, move=clock.move)
        assert invariants.broken() == []
        return list(Compaction.objects.order_by("created_at"))

    return settle


CALLS = {
    "after-claim": 1,
    "before-provider": 1,
    "after-provider": 2,  # paid for twice: no provider takes an idempotency key
    "before-mirror": 2,
    "after-mirror": 2,
    "before-ready": 2,
    "after-ready": 1,
}


@pytest.mark.parametrize("point", CALLS)
def test_a_worker_that_dies_anywhere_costs_a_lease_and_at_most_one_call(
    runtime, job, calls, settled, clock, point
):
    assert Child(armed(lambda: tasks.compact(job), point)).wait() == CRASHED
    tasks.compact(job)  # delivered again at once: the lease holds, or it is done
    assert calls() == (point not in ("after-claim", "before-provider"))
    clock.move(LEASE_S + 1)
    (row,) = settled()
    assert row.status == "ready"
    assert (row.fence, row.attempts) == ((1, 1) if point == "after-ready" else (2, 2))
    assert calls() == CALLS[point]
    tasks.compact(job)
    assert calls() == CALLS[point]
    runtime.say("Now?")
    runtime.build()
    assert settled() == [row]


def test_every_point_is_met_by_a_test():
    assert {*CALLS, "after-append-commit"} == set(crash.POINTS)


def test_a_web_process_that_dies_before_it_rings_has_stored_all_and_the_sweep_starts_the_work(
    runtime, calls, settled, clock
):
    runtime.exchanges(8)
    assert runtime.compactions() == []

    def append() -> None:
        for n in range(20):
            views.appended(runtime.session, [new("user", "w" * 800), new("assistant", f"{n} " + "w" * 800)])

    assert Child(armed(append, "after-append-commit")).wait() == CRASHED
    assert runtime.live().status == "requested"
    assert runtime.bell == []
    stored = len(runtime.rows())
    assert runtime.sweep() == 1
    runtime.work()
    assert calls() == 1
    assert [row.status for row in settled()] == ["ready"]
    assert len(runtime.rows()) == stored


def test_a_web_process_that_dies_within_an_append_leaves_nothing_of_it(runtime, settled):
    runtime.exchanges(3)

    def append() -> None:
        with transaction.atomic():
            views.appended(runtime.session, [new("user", "HALF")])
            os.kill(os.getpid(), signal.SIGKILL)

    assert Child(append).wait() == CRASHED
    assert len(runtime.rows()) == 6
    assert runtime.append(new("user", "whole")).rows[0].seq == 6
    settled()


def test_a_zombie_that_comes_back_after_its_lease_is_refused(runtime, job, calls, provider, settled, clock):
    """SIGSTOP in the provider's call, for longer than the lease; SIGCONT when another worker is done."""

    def stand_still(call) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def zombie() -> None:
        provider.play("SUMMARY-ZOMBIE: too late.")
        provider.during = stand_still
        tasks.compact(job)

    child = Child(zombie)
    child.wait_until_it_stands_still()
    clock.move(LEASE_S + 1)
    provider.play("SUMMARY-SECOND: in time.")
    (row,) = settled()
    assert "SUMMARY-SECOND" in row.summary
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait() == 0
    assert settled() == [row]
    assert "SUMMARY-SECOND" in Compaction.objects.get(pk=row.pk).summary
    assert calls() == 2


def test_a_transcript_that_kills_every_worker_is_given_up_and_others_go_on(
    runtime, job, calls, settled, clock
):
    for n in range(jobs.MAX_ATTEMPTS):
        assert Child(armed(lambda: tasks.compact(job), "after-provider")).wait() == CRASHED
        assert runtime.job(job).attempts == n + 1
        clock.move(LEASE_S + 1)
    other = Runtime(make_session(runtime.session.project, "healthy", 12_000), clock, runtime.bell)
    other.exchanges(20)
    assert other.work()[0].status == "ready"
    runtime.bell.clear()
    deaths = calls()
    tasks.compact(job)
    row = runtime.job(job)
    assert (row.status, row.error_code, row.lease_until) == ("failed", "worker-lost", None)
    assert runtime.sweep() == 0  # nor is it asked for again at once
    assert calls() == deaths == jobs.MAX_ATTEMPTS + 1
    runtime.say("Still there?")
    runtime.build()
    settled()


def test_the_sweep_gives_up_a_lost_job_as_well(runtime, job, settled, clock):
    Compaction.objects.filter(pk=job).update(
        status="running", attempts=jobs.MAX_ATTEMPTS, lease_until=clock.moment
    )
    assert runtime.sweep() == 0
    assert [row.error_code for row in settled()] == ["worker-lost"]


@pytest.mark.parametrize("skew_s", [LEASE_S + 1, -LEASE_S - 1])
def test_hosts_whose_clocks_differ_pay_at_most_one_more_call(
    runtime, job, calls, provider, settled, clock, skew_s
):
    """The second host's clock is five minutes ahead of the first one's, so that every lease looks over to it."""

    def meanwhile(call) -> None:
        clock.move(abs(skew_s))
        runtime.sweep()
        runtime.work()
        clock.move(-abs(skew_s))

    if skew_s < 0:
        clock.move(skew_s)
        Compaction.objects.update(created_at=clock.moment)
    provider.play("SUMMARY-FAST: by the host ahead.", "SUMMARY-SLOW: by the host behind.")
    provider.during = meanwhile
    tasks.compact(job)
    runtime.sweep()
    runtime.work()
    (row,) = settled()
    assert "SUMMARY-FAST" in row.summary  # the inner call is answered first
    assert (row.fence, calls()) == (2, 2)


# --- the switch


def test_a_process_that_is_told_to_die_does_not_start_outside_of_tests(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import hango.settings"],
        env={"PATH": os.environ["PATH"], "HANGO_HOME": str(tmp_path), "HANGO_CRASH_AT": "after-claim"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "HANGO_CRASH_AT kills this process" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("told", ["nowhere", "after-claim:0", "after-claim:x", ":1", "!"])
def test_a_point_that_is_none_is_named(told):
    with pytest.raises(ImproperlyConfigured, match=r"HANGO_CRASH_AT=.* is not valid: it accepts after-claim"):
        crash.arm({"HANGO_CRASH_AT": told, "HANGO_TESTING": "on"})


@pytest.mark.parametrize(("told", "passed"), [("after-claim:3", 2), ("after-claim!", 0), ("after-claim", 0)])
def test_a_point_may_kill_at_its_nth_passing_and_the_whole_group(told, passed, tmp_path):
    count = tmp_path / "count"

    def work() -> None:
        os.setpgid(0, 0)
        neighbour = os.fork()
        if not neighbour:
            signal.pause()
        (tmp_path / "neighbour").write_text(str(neighbour))
        crash.at("before-ready")
        for _ in range(5):
            crash.at("after-claim")
            with count.open("a") as file:
                file.write(".")

    assert Child(armed(work, told)).wait() == CRASHED
    assert (len(count.read_text()) if count.exists() else 0) == passed
    neighbour = int((tmp_path / "neighbour").read_text())
    if told.endswith("!"):
        _gone(neighbour)
    else:
        os.kill(neighbour, signal.SIGKILL)


def _gone(pid: int) -> None:
    """Waits for the end of a process that is not a child of this one."""
    state = Path(f"/proc/{pid}/stat")
    while state.exists() and state.read_text().rsplit(")")[1].split()[0] != "Z":
        signal.sigtimedwait([], 0.01)
