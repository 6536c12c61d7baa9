"""What a provider's error answers mean, whichever provider it is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from compaction.engine import exact
from compaction.engine.errors import Malformed, ProviderFailed

MAY_PASS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")  # kinds are stored and shown: anything but a name is left out


def failed(status: int, body: str, headers: Mapping[str, str]) -> ProviderFailed:
    """The failure that an error answer means. Its own text is kept for classification only, and in no message of ours: it
    may quote the prompt."""
    kind, message = said(body)
    return ProviderFailed(
        f"the provider answered {status} {kind}".strip(),
        kind=kind or f"http-{status}",
        http_status=status,
        retry_after_s=retry_after(headers.get("retry-after-ms"), headers.get("retry-after")),
        retryable=status in MAY_PASS,
        message=message,
    )


def said(body: str) -> tuple[str, str]:
    """(kind, message) of an error's JSON text, in any of the shapes that providers use."""
    try:
        value = exact.loads(body)
    except Malformed:
        return "", body
    inner = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(inner, str):
        return "", inner
    return kind_of(inner), str(inner.get("message") or body) if isinstance(inner, dict) else body


def kind_of(error: Any) -> str:
    """The name of an error: its code, or its type where the code is only a number."""
    if not isinstance(error, dict):
        return ""
    details = error.get("details")
    codes = [
        details.get("error_code") if isinstance(details, dict) else None,
        error.get("code"),
        error.get("type"),
    ]
    names = [str(code) for code in codes if code is not None and _NAME.fullmatch(str(code))]
    return next((name for name in names if not name.isdigit()), names[0] if names else "")


def no_answer(error: Exception) -> ProviderFailed:
    return ProviderFailed(
        f"no answer from the provider: {type(error).__name__}", kind="connection", retryable=True
    )


def bad_answer(what: str = "the provider's answer is no message") -> ProviderFailed:
    return ProviderFailed(what, kind="bad-answer", retryable=True)


def retry_after(milliseconds: str | None, seconds: str | None) -> float | None:
    """Seconds that the provider asks to wait; None for nothing that can be read."""
    for text, scale in ((milliseconds, 0.001), (seconds, 1.0)):
        try:
            value = float(text or "") * scale
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            return value
    return None
