"""Liveness and readiness. Neither tells an address, a name or an error's text."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import redis
from django.conf import settings
from django.core.files.storage import FileSystemStorage, storages
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse

log = logging.getLogger(__name__)
LIMIT_S = 1.0


def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as this process answers."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> HttpResponse:
    """200 when database, broker and storage all answer within a second, else 503.

    `{"status": "ready" | "unavailable", "database": "ok" | "failed" | "timeout", "broker": …, "storage": …}`
    """
    checks = {part: _begin(part) for part in PARTS}
    until = time.monotonic() + LIMIT_S
    states = {part: check.state(until) for part, check in checks.items()}
    ready = all(state == "ok" for state in states.values())
    return JsonResponse(
        {"status": "ready" if ready else "unavailable", **states},
        status=200 if ready else 503,
        headers={"Cache-Control": "no-store"},
    )


def database() -> None:
    """Raises when the database does not answer."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def broker() -> None:
    """Raises when the broker does not answer."""
    client = redis.Redis.from_url(settings.HANGO_REDIS_URL, socket_timeout=LIMIT_S)
    try:
        client.ping()
    finally:
        client.close()


def storage() -> None:
    """Raises when history files could not be written (a folder) or looked up (a bucket)."""
    history = storages["history"]
    if not isinstance(history, FileSystemStorage):
        history.exists("readyz")
        return
    folder = Path(history.location)
    while not folder.exists():  # it is made with the first file
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError("history folder")


PARTS: dict[str, Callable[[], None]] = {"database": database, "broker": broker, "storage": storage}


class _Check(threading.Thread):
    """One part's check in a thread of its own, since not every client keeps a time limit."""

    def __init__(self, part: str) -> None:
        super().__init__(name=f"readyz-{part}", daemon=True)
        self._part = part
        self._state = "timeout"

    def run(self) -> None:
        try:
            PARTS[self._part]()
            self._state = "ok"
        except Exception as exc:  # any failure at all means: not ready
            log.warning("readyz: %s failed: %s", self._part, type(exc).__name__)
            self._state = "failed"
        finally:
            connections.close_all()

    def state(self, until: float) -> str:
        self.join(max(0.0, until - time.monotonic()))
        return self._state


_running: dict[str, _Check] = {}
_lock = threading.Lock()


def _begin(part: str) -> _Check:
    # A check that hangs is joined, not started again beside itself: a poller would pile up threads.
    with _lock:
        check = _running.get(part)
        if check is None or not check.is_alive():
            check = _running[part] = _Check(part)
            check.start()
        return check
