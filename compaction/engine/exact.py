"""JSON, byte for byte: which part of a text is which value.

The transcript is passed on as it came (key order, number forms, escapes), because prompt caches and signed
thinking compare bytes (PROTOCOL R40, R56). So values are read with the standard decoder, and their *text* is
kept beside them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from compaction.engine.errors import Malformed

_SPACE = re.compile(r"[ \t\n\r]*")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # the escape, and not an escaped backslash before `u0000`


def _no_constant(name: str) -> Any:
    raise Malformed(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def dumps(value: object) -> str:
    """Compact JSON text; non-ASCII as it is, but lone surrogates escaped so that the text stays UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if _encodable(text) else json.dumps(value, separators=(",", ":"))


def loads(text: str) -> Any:
    """The value of a whole JSON text. Raises `Malformed`."""
    value, end = value_at(text, _skip(text, 0))
    if _skip(text, end) != len(text):
        raise Malformed(f"there is more text after the JSON value, at character {end}")
    return value


def value_at(text: str, at: int) -> tuple[Any, int]:
    """(value, end) of the JSON value that starts at `at`. Raises `Malformed`."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Malformed("the JSON is nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise Malformed(f"not JSON: {error}") from None


def members(text: str, at: int = 0) -> Iterator[tuple[str, Any, int, int]]:
    """(key, value, start, end) of each member of the object at `at`; a key that stands twice is `Malformed`."""
    at = _skip(text, _expect(text, _skip(text, at), "{"))
    seen: set[str] = set()
    if _peek(text, at) == "}":
        return
    while True:
        at = _expect(text, at, '"')
        try:
            key, at = scanstring(text, at, True)
        except json.JSONDecodeError as error:
            raise Malformed(f"not JSON: {error.msg} at character {error.pos}") from None
        if key in seen:
            raise Malformed(f"the key {key!r} stands twice in one object")
        seen.add(key)
        start = _skip(text, _expect(text, _skip(text, at), ":"))
        value, end = value_at(text, start)
        yield key, value, start, end
        at = _skip(text, end)
        if _peek(text, at) == "}":
            return
        at = _skip(text, _expect(text, at, ","))


def elements(text: str, at: int = 0) -> Iterator[tuple[Any, int, int]]:
    """(value, start, end) of each element of the array at `at`."""
    at = _skip(text, _expect(text, _skip(text, at), "["))
    if _peek(text, at) == "]":
        return
    while True:
        value, end = value_at(text, at)
        yield value, at, end
        at = _skip(text, end)
        if _peek(text, at) == "]":
            return
        at = _skip(text, _expect(text, at, ","))


def with_member(raw: str, key: str, value: object) -> str:
    """The object's text with one more member at its end."""
    body = raw.rstrip()[:-1].rstrip()
    return f"{body}{'' if body.endswith('{') else ','}{json.dumps(key)}:{dumps(value)}}}"


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every string in it changed, but for the keys of objects."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [mapped(v, change) for v in value]
    if isinstance(value, dict):
        return {k: mapped(v, change) for k, v in value.items()}
    return value


def storable(value: object) -> bool:
    """Whether every database takes the value as text or JSON: no NUL and no lone surrogate in any of its strings."""
    text = json.dumps(value, ensure_ascii=False)
    return _encodable(text) and not _NUL.search(text)


def stored_form(text: str) -> str:
    """The text as every database takes it: U+FFFD for a NUL or a lone surrogate."""
    return well_formed(text).replace("\0", "\ufffd")


def pointer_part(key: str) -> str:
    """A member's name as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def may_hold_lone_surrogates(raw: str) -> bool:
    """False when the text has no escape of a surrogate at all: the cheap first look."""
    return "\\ud" in raw or "\\uD" in raw or not _encodable(raw)


def well_formed(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD."""
    return text if _encodable(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _peek(text: str, at: int) -> str:
    return text[_skip(text, at) : _skip(text, at) + 1]


def _expect(text: str, at: int, char: str) -> int:
    if text[at : at + 1] != char:
        raise Malformed(f"not JSON: expected {char!r} at character {at}")
    return at + 1
