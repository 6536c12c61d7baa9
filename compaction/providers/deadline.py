"""A bound on a whole provider call. The SDKs' own time limit is for each read, so that an answer of one byte a minute, or
headers that never end, would hold a worker for ever."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2

PIECE = 65_536  # bytes written at a time
_own = threading.local()  # `until`: when this thread's call has to be over, by the monotonic clock


@contextmanager
def until(moment: float) -> Iterator[None]:
    """Reads and writes of this thread end at that moment of the monotonic clock, as a time limit of the SDK."""
    before = getattr(_own, "until", None)
    _own.until = moment
    try:
        yield
    finally:
        _own.until = before


def each(moment: float, lines: Iterable[str]) -> Iterator[str]:
    """The lines that come before that moment. Whoever takes them may do other things, on any thread, in between."""
    rest = iter(lines)
    while True:
        with until(moment):
            line = next(rest, None)
        if line is None:
            return
        yield line


def bind(client: Any) -> None:
    """Makes an SDK's client keep to `until`, on its direct way and through proxies. httpx offers no public place for a
    network backend, so the pools are reached by their private names; a test notices when those change."""
    inner = client._client
    for transport in (inner._transport, *filter(None, inner._mounts.values())):
        pool = transport._pool
        pool._network_backend = _Backend(pool._network_backend)


def _left(limit_s: float | None, late: type[Exception]) -> float | None:
    moment = getattr(_own, "until", None)
    if moment is None:
        return limit_s
    left = moment - time.monotonic()
    if left <= 0:
        raise late("the time of the whole call is over")
    return left if limit_s is None else min(limit_s, left)


class _Backend(httpcore2.NetworkBackend):
    def __init__(self, real: httpcore2.NetworkBackend) -> None:
        self._real = real

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **more: Any
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._real.connect_tcp(host, port, left, *args, **more))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, *args: Any, **more: Any
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._real.connect_unix_socket(path, left, *args, **more))

    def sleep(self, seconds: float) -> None:
        self._real.sleep(seconds)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, real: httpcore2.NetworkStream) -> None:
        self._real = real

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._real.read(max_bytes, _left(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for at in range(0, len(buffer), PIECE):  # whoever reads slowly gets no new time limit with every byte
            self._real.write(buffer[at : at + PIECE], _left(timeout, httpcore2.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._real.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._real.get_extra_info(info)

    def close(self) -> None:
        self._real.close()
