"""The strict upstream as a process of its own, and how a test tells it what to do."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import servers

SCRIPT = Path(__file__).resolve().parent.parent / "upstream" / "strict_anthropic.py"


class Upstream:
    """`url` is what ANTHROPIC_BASE_URL names."""

    def __init__(self) -> None:
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Upstream":
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--port", str(self.port)], stdout=subprocess.DEVNULL
        )
        until = time.monotonic() + 20
        while True:
            try:
                self.log()
                return self
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < until, "the strict upstream did not start"
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()

    def control(self, *rules: dict[str, Any], windows: dict[str, int] | None = None) -> None:
        self._call("/_control", {"rules": list(rules), "windows": windows or {}})

    def log(self, purpose: str = "") -> list[dict[str, Any]]:
        calls = self._call("/_log")["calls"]
        return [c for c in calls if not purpose or (c["purpose"] == purpose and c["endpoint"] == "messages")]

    def _call(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method="GET" if body is None else "POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
