"""`python -m hango.run` as a process, for tests that treat it as a user does."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests import servers

ROOT = Path(__file__).resolve().parent.parent


class Supervisor:
    """A running `python -m hango.run` and what it has written."""

    def __init__(self, home: Path, database_url: str, **variables: str) -> None:
        inherited = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("HANGO_", "DJANGO_", "ANTHROPIC_", "OPENAI_"))
        }
        self.home = home
        self.port = int(variables.get("PORT", servers.free_port()))
        env = {
            **inherited,
            "HANGO_HOME": str(home),
            "HANGO_DATABASE_URL": database_url,
            "PORT": str(self.port),
            "HANGO_SHUTDOWN_S": "5",
            "HANGO_WEB_WORKERS": "1",
            "HANGO_WORKERS": "1",
            **variables,
        }
        self.log = home.parent / f"log-{home.name}-{self.port}"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hango.run"], env=env, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT
            )

    def wait_until_ready(self, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while "hango is ready" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)

    def get(self, path: str) -> tuple[int, dict]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as exc:
            return exc.code, json.load(exc)

    def children(self) -> list[str]:
        """Command lines of processes that have this home in their environment, zombies apart."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and int(entry.name) != self.process.pid:
                    environment = (entry / "environ").read_bytes()
                    arguments = (entry / "cmdline").read_bytes()
                    if f"HANGO_HOME={self.home}".encode() in environment.split(b"\0"):
                        found.append(arguments.replace(b"\0", b" ").decode())
        return found

    def wait_for_nobody(self, seconds: float = 10) -> None:
        """Return when no child is left."""
        until = time.monotonic() + seconds
        while left := self.children():
            assert time.monotonic() < until, left
            time.sleep(0.1)

    def close(self) -> None:
        """Stop it if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
