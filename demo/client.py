"""hango's REST API over one kept-alive connection, with the time that each call took."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_IDLE_S = 1.0  # the server closes an idle connection after two


class Failed(RuntimeError):
    """The server refused a call, or broke."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its text as it came, its headers, and how long it took."""

    text: str
    headers: http.client.HTTPMessage
    ms: float

    @property
    def data(self) -> Any:
        return json.loads(self.text)

    @property
    def waited_ms(self) -> float:
        """Milliseconds that the server says it spent in or waiting for a compaction. Raises Failed when it does not say."""
        found = re.search(r"compaction;dur=([\d.]+)", self.headers.get("Server-Timing", ""))
        if found is None:
            raise Failed("a build's answer has no Server-Timing header")
        return float(found[1])

    def digest_of(self, member: str) -> str:
        """SHA-256 of the bytes of a member as they stand in the text; the first member of that name counts."""
        start = self.text.index(f'"{member}":') + len(member) + 3
        _, end = json.JSONDecoder().raw_decode(self.text, start)
        return hashlib.sha256(self.text[start:end].encode()).hexdigest()


class Client:
    """To be used from one thread. Nothing is retried: an append sent twice would be stored twice."""

    def __init__(self, url: str, key: str) -> None:
        self._address = urlsplit(url).netloc
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection(self._address, timeout=60)
        self._last = 0.0

    def get(self, path: str) -> Answer:
        return self._call("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        return self._call("POST", path, json.dumps(body, ensure_ascii=False).encode())

    def close(self) -> None:
        self._connection.close()

    def _call(self, method: str, path: str, body: bytes | None = None) -> Answer:
        if time.monotonic() - self._last > _IDLE_S:
            self._connection.close()
        began = time.perf_counter()
        try:
            self._connection.request(method, path, body, self._headers)
            response = self._connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{method} {path}: {type(error).__name__}: {error}") from error
        self._last = time.monotonic()
        if response.status >= 300:
            raise Failed(f"{method} {path}: {response.status}: {text[:1000]}")
        return Answer(text, response.headers, (time.perf_counter() - began) * 1000)
