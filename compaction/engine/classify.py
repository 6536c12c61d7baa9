"""What a provider's error means (PROTOCOL section 3): a decision by tables, in this order.

(1) status 200: only the stop or finish signal counts, unless an error came in the stream. (2) rate limits win over all
that looks like something else. (3) status 500 and up. (4) stable codes. (5) other faults of the request. (6) numbers of
input and output. (7) words for an overflow. (8) a status without words. Else unknown, which is never an overflow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from compaction.engine import numbers, signals
from compaction.engine.numbers import Stated
from compaction.engine.signals import Kind, Signal

HEAD, TAIL = 8_000, 2_000  # characters of a message that are read: what is wrong stands first, codes last
_ESCAPES = re.compile(r"\\+(?:u00(?:27|60)|[nrt\"'/\\])")
_CODES = re.compile(
    r"[\"'](?:code|type|error_code|status)[\"'] ?: ?[\"']?([\w.-]{1,60})|\b(\w{1,60}(?:Error|Exception))\b"
)
_STATUS = re.compile(r"(?<![0-9])[1-5][0-9]{2}(?![0-9])")
_AN_ERROR = re.compile(
    r"error|exception|fail|invalid|exceeded|exhausted|throttl|too_l|unavailable|overloaded|^[0-9]{3,5}$",
    re.IGNORECASE,
)
_A_STOP = re.compile(r"(?:stop|finish|done)_?reason|^(?:model_)?context_window_exceeded$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Error:
    provider: str
    status: int | None
    codes: tuple[str, ...]
    text: str  # the type and the message

    def matches(self, signal: Signal) -> bool:
        return (
            (not signal.status or self.status in signal.status)
            and (signal.provider is None or signal.provider.search(self.provider) is not None)
            and (signal.code is None or any(signal.code.search(code) for code in self.codes))
            and (signal.text is None or signal.text.search(self.text) is not None)
            and (signal.unless is None or signal.unless.search(self.text) is None)
        )

    def first(self, table: Iterable[Signal]) -> Kind | None:
        return next((signal.kind for signal in table if self.matches(signal)), None)


def classify(*, provider: str, status: int | None, type: str | None, message: str) -> Kind:  # noqa: A002 - the provider's word
    """The kind of a provider's answer. Takes anything, also nothing; never raises.

    `status`: of HTTP, None for an error in a stream; `type`: the error's code or type, or `stop_reason=…`.
    """
    kind, words, number = _plain(type), _plain(message), _number(status)
    if number is not None and 200 <= number < 300:
        if not (_AN_ERROR.search(kind) and not _A_STOP.search(kind)) and not words.startswith('{"error"'):
            return _Error("", None, (), kind).first(signals.STOPS) or Kind.NONE
        number = None
    codes = (kind, *(a or b for a, b in _CODES.findall(words)))
    error = _Error(_plain(provider), number, codes, words)
    return (
        _rate(_Error(error.provider, number, codes, f"{kind} {words}"))
        or _server(error)
        or _length(error, signals.CODES)
        or error.first(signals.FAULTS)
        or _by_numbers(numbers.read(words))
        or error.first(signals.OVERFLOWS)
        or error.first(signals.REST)
        or Kind.UNKNOWN
    )


def limits_of(message: str) -> Stated:
    """The numbers of tokens that an overflow's words name; nothing of a message that is about something else."""
    words = _plain(message)
    error = _Error("", None, (), words)
    if error.first(signals.RATES) or error.first(signals.FAULTS):
        return Stated()
    return numbers.read(words)


def _rate(error: _Error) -> Kind | None:
    if error.first(signals.RATES) is None:
        return None
    if signals.LONG_CONTEXT.search(error.text):
        return Kind.ENTITLE
    limit, requested = numbers.rate(error.text)
    if limit is not None and requested is not None:
        return Kind.RATE_SINGLE if requested > limit else Kind.RATE
    return Kind.RATE_SINGLE if signals.TOO_LARGE_AT_ONCE.search(error.text) else Kind.RATE


def _server(error: _Error) -> Kind | None:
    if error.status is None:
        return error.first(signals.SERVERS)
    return Kind.SERVER if error.status >= 500 else None


def _length(error: _Error, table: Iterable[Signal]) -> Kind | None:
    """What a code says; one for "too long" covers the output too, and the numbers beside it tell which."""
    kind = error.first(table)
    return (_by_numbers(numbers.read(error.text)) or kind) if kind is Kind.OVERFLOW else kind


def _by_numbers(stated: Stated) -> Kind | None:
    if stated.limit is None or stated.input is None or stated.output is None:
        return None
    return Kind.OVERFLOW if stated.input >= stated.limit else Kind.OVERFLOW_OUT


def _plain(value: object) -> str:
    """One line of text without JSON's escapes; of a long one its head and its end."""
    text = value if isinstance(value, str) else "" if value is None else str(value)[: HEAD + TAIL]
    if len(text) > HEAD + TAIL:
        text = f"{text[:HEAD]} {text[-TAIL:]}"
    return " ".join(_ESCAPES.sub(_unescaped, text).split())


def _unescaped(match: re.Match[str]) -> str:
    return " " if match[0][-1] in "nrt" else match[0][-1] if match[0][-1] in "\"'/" else "'"


def _number(status: object) -> int | None:
    """The status as a number; it may come as text."""
    if isinstance(status, bool) or status is None:
        return None
    found = _STATUS.search(str(status)[:40])
    return int(found[0]) if found else None
