"""Typed readers of environment variables.

Each reader notes its variable in `REGISTRY`, from which the table of settings is printed, and raises
`ImproperlyConfigured` naming the variable and what it accepts. An empty value counts as not set.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured


@dataclass(frozen=True)
class Setting:
    """One variable: its default as a reader would write it, what it accepts, what it means."""

    name: str
    default: str
    accepts: str
    meaning: str


REGISTRY: dict[str, Setting] = {}

_ON = {"on", "true", "yes", "1"}
_OFF = {"off", "false", "no", "0"}


def _read(name: str, default: object, accepts: str, meaning: str) -> str:
    if isinstance(default, bool):
        default = "on" if default else "off"
    REGISTRY[name] = Setting(name, str(default), accepts, meaning)
    return os.environ.get(name, "").strip()


def _wrong(name: str, raw: str, accepts: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name}={raw!r} is not valid: it accepts {accepts}.")


def text(name: str, default: str, meaning: str, accepts: str = "text") -> str:
    """The variable as it is, without outer white space."""
    return _read(name, default, accepts, meaning) or default


def names(name: str, default: str, meaning: str) -> list[str]:
    """A comma-separated list, blanks dropped."""
    value = _read(name, default, "a comma-separated list", meaning) or default
    return [part.strip() for part in value.split(",") if part.strip()]


def secret(name: str, meaning: str) -> str:
    """A value that may also stand in the file named by `<name>_FILE` (a mounted secret)."""
    value = _read(name, "", f"text, or {name}_FILE: the path of a file holding it", meaning)
    path = os.environ.get(f"{name}_FILE", "").strip()
    if value or not path:
        return value
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not UTF-8 text"
        raise ImproperlyConfigured(f"{name}_FILE={path!r} cannot be read: {reason}.") from exc


def integer(name: str, default: int, meaning: str, *, low: int = 0, high: int | None = None) -> int:
    """A whole number of at least `low` and at most `high`; underscores may group digits."""
    accepts = f"a whole number from {low}" + (f" to {high}" if high is not None else " up")
    raw = _read(name, default, accepts, meaning)
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError as exc:
        raise _wrong(name, raw, accepts) from exc
    if value < low or (high is not None and value > high):
        raise _wrong(name, raw, accepts)
    return value


def number(name: str, default: float, meaning: str, *, low: float = 0.0, high: float = math.inf) -> float:
    """A finite number from `low` to `high`."""
    accepts = f"a number from {low:g} up" if high == math.inf else f"a number from {low:g} to {high:g}"
    raw = _read(name, f"{default:g}", accepts, meaning)
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError as exc:
        raise _wrong(name, raw, accepts) from exc
    if not math.isfinite(value) or not low <= value <= high:
        raise _wrong(name, raw, accepts)
    return value


def flag(name: str, default: bool, meaning: str) -> bool:
    """On or off."""
    raw = _read(name, default, "on or off", meaning)
    if not raw:
        return default
    if raw.lower() not in _ON | _OFF:
        raise _wrong(name, raw, "on or off")
    return raw.lower() in _ON


def choice(name: str, default: str, among: Sequence[str], meaning: str) -> str:
    """One of `among`, whatever its case."""
    accepts = ", ".join(among[:-1]) + f" or {among[-1]}"
    raw = _read(name, default, accepts, meaning) or default
    for option in among:
        if option.lower() == raw.lower():
            return option
    raise _wrong(name, raw, accepts)


def json_object(name: str, meaning: str, accepts: str = "a JSON object") -> dict[str, Any]:
    """A JSON object; `{}` when not set."""
    raw = _read(name, "{}", accepts, meaning)
    try:
        value = json.loads(raw or "{}")
    except ValueError as exc:
        raise _wrong(name, raw, accepts) from exc
    if not isinstance(value, dict):
        raise _wrong(name, raw, accepts)
    return value
