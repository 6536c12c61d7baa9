"""Text from a transcript, made safe to stand inside text of ours: cut, marked off, on one line, without control
characters. It is data: nothing here reads it as instructions, a pattern or a format string.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from compaction.engine import exact

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_MARK = re.compile(r"={4,}+(\d{0,9})")
_TICKS = re.compile("`+")
_JOINER = "\u200d"
_LONGEST_NOTE = 64  # characters that the note of a cut may take


def harmless(text: str) -> str:
    """The text without lone surrogates, NUL and control characters (shown as ␀, ␛ …); tabs and line ends stay."""
    return _CONTROL.sub(_picture, exact.well_formed(text))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, at most about `limit` characters."""
    flat = " ".join(harmless(text[: 8 * limit]).split())
    return flat if len(flat) <= limit else flat[: boundary(flat, limit)] + "…"


def boundary(text: str, at: int) -> int:
    """The nearest position not after `at` where the text may be cut: not before a combining mark, a variation
    selector or a skin tone, and not beside a zero-width joiner."""
    for _ in range(16):
        if 0 < at < len(text) and _joined(text[at - 1], text[at]):
            at -= 1
    return at


def _joined(before: str, after: str) -> bool:
    return (
        before == _JOINER
        or after == _JOINER
        or unicodedata.combining(after) != 0
        or "\ufe00" <= after <= "\ufe0f"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
    )


def clip(text: str, limit: int) -> str:
    """Head and tail of a text over `limit` characters, and between them how much is missing, in characters."""
    if len(text) <= limit + _LONGEST_NOTE:
        return text
    head = boundary(text, limit * 2 // 3)
    tail = boundary(text, len(text) - (limit - head))
    return f"{text[:head]}\n[… {tail - head:,} of {len(text):,} characters left out …]\n{text[tail:]}"


def mark(texts: Iterable[str]) -> str:
    """The sign that our dividing lines begin with: `====`, or the lowest `====n` that none of the texts contains.

    So no text can forge a dividing line, and the same texts give the same sign.
    """
    taken: set[str] = set()
    for text in texts:
        for match in _MARK.finditer(text):
            taken.update(match[1][:length] for length in range(len(match[1]) + 1))
    number = 0
    while (str(number) if number else "") in taken:
        number += 1
    return f"====={number}"[1:] if number else "===="


def fence(text: str) -> str:
    """A row of backticks longer than any in the text, at least three: it can fence the text in markdown."""
    return "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))


def result_parts(content: object) -> Iterator[dict[str, Any]]:
    """The content of a tool result as blocks, whether it was a string, a list or absent."""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict):
            yield part
        elif part is not None:
            yield {"type": "text", "text": part if isinstance(part, str) else exact.dumps(part)}


def media_note(data: dict[str, Any]) -> str:
    """What an image or a document is, on one line: kind, title, media type, and its size in bytes or its address."""
    source = data.get("source")
    source = source if isinstance(source, dict) else {}
    facts = [
        data.get("type"),
        data.get("title"),
        source.get("media_type"),
        source.get("url") or source.get("file_id"),
    ]
    if isinstance(encoded := source.get("data"), str):
        size = len(encoded) if source.get("type") == "text" else len(encoded.rstrip("=")) * 3 // 4
        facts.append(f"{size:,} bytes")
    return "[" + ", ".join(one_line(str(fact)) for fact in facts if fact) + "]"
