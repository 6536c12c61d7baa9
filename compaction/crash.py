"""Named places at which a test lets a process die, so that a fault is met exactly and never by sleeping.

`HANGO_CRASH_AT=after-provider` kills the process with SIGKILL when it first passes that place, `after-provider:3` at the
third time, and with a `!` at the end its whole process group, as a machine that goes down would.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from django.core.exceptions import ImproperlyConfigured

POINTS = (
    "after-claim",
    "before-provider",
    "after-provider",
    "before-mirror",
    "after-mirror",
    "before-ready",
    "after-ready",
    "after-append-commit",  # committed, and the doorbell not yet rung
)
_armed: tuple[str, int, bool] | None = None  # (point, passings left, with the group)


def arm(environ: Mapping[str, str]) -> None:
    """Reads HANGO_CRASH_AT. Raises `ImproperlyConfigured` for what names no point, and outside of tests (HANGO_TESTING)."""
    global _armed
    told = environ.get("HANGO_CRASH_AT", "").strip()
    point, _, count = told.removesuffix("!").partition(":")
    if told and environ.get("HANGO_TESTING") != "on":
        raise ImproperlyConfigured(
            "HANGO_CRASH_AT kills this process and is for hango's own tests only: unset it."
        )
    if told and (point not in POINTS or not (count or "1").isdigit() or count == "0"):
        raise ImproperlyConfigured(
            f"HANGO_CRASH_AT={told!r} is not valid: it accepts {', '.join(POINTS)}, with :n and !."
        )
    _armed = (point, int(count or 1), told.endswith("!")) if told else None


def at(point: str) -> None:
    """Dies here if the test asked for it; else one comparison."""
    global _armed
    if _armed is None or _armed[0] != point:
        return
    _, left, group = _armed
    if left > 1:
        _armed = (point, left - 1, group)
        return
    if group:
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
