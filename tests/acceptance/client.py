"""The REST API as a runtime uses it: plain HTTP, JSON, one key."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any


class Client:
    def __init__(self, base_url: str, key: str = "case-key") -> None:
        self.base, self.key = f"{base_url}/api/v1", key
        self.headers: dict[str, str] = {}

    def call(self, method: str, path: str, body: object = None, expect: int = 200) -> Any:
        request = urllib.request.Request(
            self.base + path, method=method, data=None if body is None else json.dumps(body).encode()
        )
        request.add_header("Authorization", f"Bearer {self.key}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text, self.headers = answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        assert status == expect, f"{method} {path}: {status} {text[:500]!r}"
        return (
            json.loads(text) if text and "json" in self.headers.get("Content-Type", "json") else text.decode()
        )

    def pages(self, path: str) -> list[dict[str, Any]]:
        found, following = [], path
        while following:
            page = self.call("GET", following)
            found += page["results"]
            following = page["next"].split("/api/v1")[1] if page["next"] else ""
        return found

    def waited_ms(self) -> float:
        """How long the last build waited for a compaction, or made one."""
        return float(self.headers["Server-Timing"].split("dur=")[1].split(",")[0])


def wait_for(seconds: float, condition: Callable[[], Any]) -> Any:
    """What the condition gives as soon as it gives something."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come to be in time"
        time.sleep(0.05)
    return found
