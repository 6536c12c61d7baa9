"""A long session in a small window, on real input, against the embedded default.

KEEP=1 goes on serving afterwards, with the admin, until Ctrl-C. SAWTOOTH=path.svg writes the picture of the run.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

from demo import checks, client, explorer, record, runtime, sawtooth, screen, tools
from hango import stack

PACE_S = 0.25  # a model's answer
START_S = 120  # longest that the web server may take to answer
DELAY_S = 2  # a model's summary
PACKAGES = ("django", "rest_framework", "celery", "kombu")
INTRO = """\
hango demo: one session of {turns} turns in a window of {window:,} tokens
An agent without a model explores the code of {packages} with real tools; its answers take {pace} s.
The summarizer is given {delay} s, as a model would take: waiting for it would show in the time of the builds.
Every request is counted and judged by the strict rules of tests/upstream, which know nothing of hango.

Bars: tokens sent, on the scale of the window; `:` background work begins, `|` trigger. What a build did:
truncated (old tool results cut), swapped (a ready summary adopted), deferred (due, but still being written).
"""


def main() -> int:
    """The exit code: 0 when every check holds."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _stop)
    folder = Path(tempfile.mkdtemp(prefix="hango-demo-"))
    keep = os.environ.get("KEEP", "") not in ("", "0")
    try:
        return _demo(folder, keep)
    except (stack.DidNotStart, client.Failed) as error:
        print(f"\nthe demo failed: {error}\n{_tail(folder / 'log')}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    finally:
        if keep:
            print(f"Its files are left in {folder}.", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _demo(folder: Path, keep: bool) -> int:
    agent = explorer.Explorer(tools.Tools(tools.installed(*PACKAGES), folder / "notes"))
    shown = screen.Screen(agent.turns)
    key = secrets.token_urlsafe(24)
    settings = {
        "HANGO_PROVIDER": "extractive",
        "HANGO_SUMMARIZER_DELAY_S": str(DELAY_S),
        "HANGO_BOOTSTRAP_API_KEY": key,
        "HANGO_LOG_LEVEL": "WARNING",
    }
    began = time.monotonic()
    packages = ", ".join(PACKAGES)
    shown.say(
        INTRO.format(turns=agent.turns, window=runtime.WINDOW, packages=packages, pace=PACE_S, delay=DELAY_S)
    )
    with (folder / "log").open("w", encoding="utf-8") as log:

        def say(name: str, line: str) -> None:
            log.write(f"{name:<6} | {line}\n")
            log.flush()

        with stack.Stack(folder / "home", _free_port(), settings, say=say) as server:
            _start(server)
            api = client.Client(server.url, key)
            driver = runtime.Runtime(api, agent, PACE_S)
            driver.run(shown.turn)
            api.close()
            good = _judge(shown, driver.recording, time.monotonic() - began)
            if keep:
                _serve(server, folder)
    return 0 if good else 1


def _start(server: stack.Stack) -> None:
    """As `server.start`, but one after the other and with patience: the machine may be small and busy."""
    server.start_valkey()
    server.prepare()
    server.start_web()
    server.wait_for_web(START_S)
    server.start_worker()
    server.start_beat()


def _judge(shown: screen.Screen, run: record.Recording, seconds: float) -> bool:
    shown.say()
    found = checks.all_of(run)
    for check in found:
        shown.check(check)
    sent = sum(turn.sent for turn in run.turns)
    shown.say(
        f"\n   A prompt cache would have served {run.cache_read / max(1, sent):.0%} of the {sent:,} input tokens."
    )
    failed = [check.name for check in found if not check.holds]
    shown.say(f"   {'FAILED: ' + ', '.join(failed) if failed else 'All checks hold'}, after {seconds:.0f} s.")
    picture = os.environ.get("SAWTOOTH")
    if picture:
        Path(picture).write_text(sawtooth.svg(run), encoding="utf-8")
        shown.say(f"   The picture of this run is in {picture}.")
    return not failed


def _serve(server: stack.Stack, folder: Path) -> None:
    """Goes on serving until Ctrl-C, with a login for the admin."""
    password = secrets.token_urlsafe(12)
    subprocess.run(
        [sys.executable, "manage.py", "createsuperuser", "--noinput", "--username", "demo", "--email", "demo@example.org"],
        env={**server.env, "DJANGO_SUPERUSER_PASSWORD": password}, cwd=stack.ROOT, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    print(f"\nAdmin: {server.url}/admin/   user demo, password {password}")
    print(f"API key: {server.env['HANGO_BOOTSTRAP_API_KEY']}   files: {folder}   Ctrl-C stops.", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("\nstopping")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(encoding="utf-8").splitlines()[-lines:]) if log.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
