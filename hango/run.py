"""`python -m hango.run`: the embedded default in the foreground.

Starts Valkey (unless HANGO_REDIS_URL names a broker), web, worker and beat. It restarts nothing: when one
ends by itself all are stopped, and the exit code is 1. Ctrl-C or SIGTERM stops all; a second one kills.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import IO

from django.core.exceptions import ImproperlyConfigured

from hango import home, stack


def main() -> int:
    """The exit code: 0 after Ctrl-C or SIGTERM, 1 when something failed, 2 for a wrong setting."""
    try:
        from hango import settings  # noqa: PLC0415 - a wrong setting is told in one line, not as a traceback
    except ImproperlyConfigured as exc:
        return _fail(str(exc), 2)
    home.prepare(settings.HANGO_HOME)
    lock = _lock(settings.HANGO_HOME)
    if lock is None:
        return _fail(f"another hango is running in {settings.HANGO_HOME} (HANGO_HOME)", 1)
    if not _is_free(settings.HANGO_HOST, settings.PORT):
        return _fail(f"port {settings.PORT} is taken: set PORT to another", 1)
    with lock:
        return _run(settings.HANGO_HOME, settings.PORT, settings.HANGO_SHUTDOWN_S)


def _run(folder: Path, port: int, grace_s: float) -> int:
    stopping = threading.Event()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    signal.signal(signal.SIGINT, ask_to_stop)
    signal.signal(signal.SIGTERM, ask_to_stop)
    own = {key: value for key, value in os.environ.items() if key != "HANGO_ROLE"}
    running = stack.Stack(folder, port, own, say=_say, grace_s=grace_s)
    try:
        running.start()
        print(f"hango is ready: {running.url} (Ctrl-C stops it)", flush=True)
        while not stopping.wait(0.2):
            ended = running.processes.ended()
            if ended:
                code = running.processes.process(ended).returncode
                return _fail(f"{ended} ended with {code}; stopping all", 1)
    except stack.DidNotStart as exc:
        return 0 if stopping.is_set() else _fail(str(exc), 1)
    except KeyboardInterrupt:
        return 1
    else:
        print("stopping", flush=True)
        return 0
    finally:
        try:
            running.stop()
        except KeyboardInterrupt:
            running.processes.close()


def _say(name: str, line: str) -> None:
    sys.stdout.write(f"{name:<6} | {line}\n")
    sys.stdout.flush()


def _fail(message: str, code: int) -> int:
    print(f"hango: {message}", file=sys.stderr, flush=True)
    return code


def _lock(folder: Path) -> IO[str] | None:
    """Held as long as the file is open: two supervisors of one home would steal each other's broker."""
    file = (folder / "run.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
