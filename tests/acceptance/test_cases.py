"""The public cases against a live stack: the runner plays the runtime and the provider, and kills processes."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import servers

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(280)]

HERE = Path(__file__).resolve().parent
RUNNER = HERE.parent / "cases" / "run_cases.py"
LIMIT_S = 240
NOT_IN_THE_API = {"132"}  # deletes one message


class Control:
    """Answers the runner's hooks in the one thread that holds the processes."""

    def __init__(self, running) -> None:
        self.running = running
        self.restarts = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(0.1)
        self.store = self._open_store()

    def hook(self, name: str) -> str:
        return f"{sys.executable} {HERE / 'hook.py'} {self.listener.getsockname()[1]} {name}"

    def serve_until(self, runner: subprocess.Popen) -> None:
        until = time.monotonic() + LIMIT_S
        while runner.poll() is None:
            assert time.monotonic() < until, "the cases did not end in time"
            try:
                line, _ = self.listener.accept()
            except TimeoutError:
                continue
            with line, line.makefile("rw") as file:
                asked = json.loads(file.readline())
                getattr(self, asked["name"])(asked)
                file.write("done\n")

    def restart(self, asked) -> None:
        """As a crash of the machine: web and worker are gone at once, and come back on the same store."""
        self.running.kill("web")
        self.running.kill("worker")
        self.running.start_web()
        self.running.start_worker()
        self.running.wait_for_web()
        self.restarts += 1

    def fault(self, asked) -> None:
        """A process dies in the middle of an append."""
        assert asked["fault"] == "torn_tail"
        assert self._at_the_store("torn_tail", asked["session"]) == ""
        assert self.store.wait() == -9
        self.store.communicate()

    def clock(self, asked) -> None:
        assert self._at_the_store("clock", asked["advance_s"]) == "done\n"

    def _at_the_store(self, *words: str) -> str:
        if self.store.poll() is not None:
            self.store = self._open_store()
        self.store.stdin.write(" ".join(words) + "\n")
        self.store.stdin.flush()
        return self.store.stdout.readline()

    def _open_store(self) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.faults"],
            env=self.running.env,
            cwd=HERE.parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self.listener.close()
        if self.store.poll() is None:
            self.store.kill()
            self.store.communicate()


@pytest.mark.parametrize("mode", ["build", "turns"])
def test_no_case_fails_that_must_pass(start_stack, tmp_path, mode):
    profiles = subprocess.run(
        [sys.executable, str(RUNNER), "--print-profiles"], capture_output=True, text=True, check=True
    ).stdout
    provider_port = servers.free_port()
    running = start_stack(
        ANTHROPIC_BASE_URL=f"http://127.0.0.1:{provider_port}",
        ANTHROPIC_API_KEY="test",
        HANGO_MODEL_PROFILES=profiles,
        # A process that is killed while the provider hangs is given up after the lease, which the runner's 30 s outlast.
        HANGO_LEASE_S="6",
        HANGO_SUMMARY_TIMEOUT_S="4",
        HANGO_WEB_WORKERS="1",
        HANGO_WORKERS="1",
    )
    control = Control(running)
    found = tmp_path / "found.json"
    command = [
        sys.executable,
        str(RUNNER),
        "--base-url",
        running.url,
        "--api-key",
        "case-key",
        "--mode",
        mode,
    ]
    command += ["--provider-port", str(provider_port), "--json", str(found)]
    for option in ("restart", "fault", "clock"):
        command += [f"--{option}-cmd", control.hook(option)]
    with (tmp_path / "said").open("w") as said:
        runner = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, cwd=RUNNER.parent)
        try:
            control.serve_until(runner)
        finally:
            runner.kill()
            runner.wait()
            control.close()
    said = (tmp_path / "said").read_text()
    results = json.loads(found.read_text())
    assert len(results) == len(list(RUNNER.parent.glob("[0-9]*.json"))), said
    assert [r["id"] for r in results if r["status"] == "failed" and r["severity"] == "must"] == [], said
    assert {r["id"] for r in results if r["status"] == "skipped"} == NOT_IN_THE_API, said
    assert runner.returncode == 0, said
    assert control.restarts >= 5
    print(said)
