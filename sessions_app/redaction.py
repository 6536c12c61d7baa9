"""`limits.redact`: patterns in RE2 syntax, whose matching time is linear whatever the pattern (google-re2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import re2

from compaction.engine import exact

REDACTED = "[redacted]"


def fault(pattern: str) -> str | None:
    """Why the pattern cannot be used; None when it can."""
    try:
        if _compiled(pattern).fullmatch(""):
            return "matches the empty text"
    except re2.error as error:
        said = error.args[0] if error.args else ""
        return f"is no RE2 pattern: {said.decode() if isinstance(said, bytes) else said}"
    return None


@lru_cache(maxsize=64)
def of(patterns: tuple[str, ...]) -> Callable[[str], str] | None:
    """A function that takes every match out of a text; None for no patterns."""
    if not patterns:
        return None
    compiled = [_compiled(pattern) for pattern in patterns]

    def redact(text: str) -> str:
        text = exact.well_formed(text)
        for pattern in compiled:
            text = pattern.sub(REDACTED, text)
        return text

    return redact


def of_limits(limits: dict[str, object]) -> Callable[[str], str] | None:
    """The same for a session's `limits`."""
    given = limits.get("redact")
    return of(tuple(given)) if isinstance(given, Sequence) else None


def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False  # it would print the pattern
    return re2.compile(pattern, options=options)
