"""The embedded default as an object: its processes can be started, killed and stopped one by one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from hango import embedded, home, processes

ROOT = Path(__file__).resolve().parent.parent
STOP_ORDER = ("web", "beat", "worker", "valkey")
_DO_NOT_INHERIT = ("HANGO_", "ANTHROPIC_", "OPENAI_", "OTEL_", "DJANGO_", "PORT", "CELERY_", "TIKTOKEN_")


class DidNotStart(RuntimeError):
    """A part of the stack ended or did not answer; the message holds its name and its last lines."""


class Stack:
    """Web, worker, beat and private Valkey of one `HANGO_HOME`.

    `env` holds settings by name; of this process's own environment nothing of hango's is passed on, so a
    stack depends on its arguments alone. `say(name, line)` gets the output. Leaving the `with` stops all.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        env: Mapping[str, str] | None = None,
        *,
        say: Callable[[str, str], None] | None = None,
        grace_s: float = 10,
    ) -> None:
        self.home = folder.resolve()
        self.port = port
        self.grace_s = grace_s
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(_DO_NOT_INHERIT)}
        self.env = {
            **inherited,
            **(env or {}),
            "HANGO_HOME": str(self.home),
            "PORT": str(port),
            "DJANGO_SETTINGS_MODULE": "hango.settings",
            "PYTHONUNBUFFERED": "1",
        }
        host = self.env.get("HANGO_HOST", "127.0.0.1")
        self.url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104 - compared, not bound
        self.processes = processes.Processes(say)

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Everything, in order; returns when the web server answers. Raises DidNotStart."""
        home.prepare(self.home)
        if not self.env.get("HANGO_REDIS_URL") and not self.env.get("HANGO_REDIS_URL_FILE"):
            self.start_valkey()
        self.prepare()
        self.start_web()
        self.start_worker()
        self.start_beat()
        self.wait_for_web()

    def prepare(self) -> None:
        """Migrations and first keys. Raises DidNotStart."""
        self.run("-m", "hango.prepare")

    def run(self, *arguments: str) -> str:
        """Run Python with `arguments` in this stack's environment; its output. Raises DidNotStart."""
        done = subprocess.run(
            [sys.executable, *arguments], env=self.env, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DidNotStart(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def start_valkey(self) -> None:
        """The private broker. Raises DidNotStart."""
        home.prepare(self.home)
        process = self._start("valkey", embedded.valkey_command(self.home))
        try:
            embedded.wait_for_valkey(self.home, process)
        except embedded.ValkeyDidNotStart as exc:
            raise DidNotStart(f"{exc}\n{self.processes.tail('valkey')}") from exc

    def start_web(self) -> None:
        """gunicorn; see `wait_for_web`."""
        self._start("web", [*_module("gunicorn"), "-c", "hango/gunicorn_conf.py", "hango.wsgi"], "web")

    def start_worker(self) -> None:
        """A Celery worker: SIGTERM lets a running summary end for a while, then hands it back."""
        # Gossip and mingling only delay the start: workers have nothing to tell each other.
        quiet = ("--without-gossip", "--without-mingle")
        level = ("--loglevel", self.env.get("HANGO_LOG_LEVEL") or "INFO")
        command = [*_module("celery"), "-q", "-A", "hango", "worker", *level, *quiet]
        self._start("worker", command, "worker", REMAP_SIGTERM="SIGQUIT")

    def start_beat(self) -> None:
        """Celery's clock, which rings the sweep."""
        self._start("beat", [*_module("celery"), "-q", "-A", "hango", "beat", "--pidfile="], "beat")

    def wait_for_web(self, seconds: float = 120) -> None:
        """Return when `/healthz` answers. Raises DidNotStart when a process ends first, or in the end."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ended = self.processes.ended()
            if ended:
                raise DidNotStart(f"{ended} ended:\n{self.processes.tail(ended)}")
            try:
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=2) as answer:  # noqa: S310 - own server
                    if answer.status == 200:
                        return
            except urllib.error.HTTPError as exc:
                raise DidNotStart(f"web answers {exc.code} on /healthz; see HANGO_ALLOWED_HOSTS") from exc
            except OSError:
                pass  # not yet
            time.sleep(0.05)
        raise DidNotStart(f"web did not answer within {seconds:g} s:\n{self.processes.tail('web')}")

    def kill(self, name: str) -> None:
        """SIGKILL `web`, `worker`, `beat` or `valkey` with all its children; it can be started again."""
        self.processes.kill(name)

    def stop(self) -> None:
        """Stop what runs, web first and the broker last, within `grace_s` seconds. Idempotent."""
        self.processes.stop_all(STOP_ORDER, self.grace_s)
        self.processes.close()

    def _start(self, name: str, command: list[str], role: str = "", **extra: str) -> subprocess.Popen[bytes]:
        env = {**self.env, **extra, **({"HANGO_ROLE": role} if role else {})}
        return self.processes.start(name, command, env, ROOT)


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", name]
