"""A stored message as something to read: its blocks as labelled plain texts, which the page escapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from compaction.engine import quoting, types
from sessions_app.readonly import indented

LONGEST = 6_000  # characters of one block on a page of many messages


@dataclass(frozen=True, slots=True)
class Part:
    """One block. `kind` is how it is drawn: text, call, result, error, thinking, media or other."""

    kind: str
    label: str
    text: str
    name: str = ""
    id: str = ""
    cut: bool = False


def parts(content: str, names: dict[str, str], longest: int | None = LONGEST) -> list[Part]:
    """The blocks of a message's content text. `names`: tool names by call id, read and added to, so that a result can
    say of which tool it is. `longest`: characters after which a block is clipped; None: never."""
    blocks, _ = types.blocks_of(content)
    return [_clipped(part, longest) for block in blocks for part in _parts(block.data, names)]


def system(raw: str) -> str:
    """The system prompt's text; blocks that are not text as JSON."""
    if not raw:
        return ""
    blocks, _ = types.blocks_of(raw)
    return "\n\n".join(block.text or indented(block.data) for block in blocks)


def _parts(data: dict[str, Any], names: dict[str, str]) -> Iterator[Part]:
    kind = data.get("type")
    if kind == "text" and isinstance(data.get("text"), str):
        yield Part("text", "", data["text"])
    elif kind == "thinking":
        yield Part("thinking", "Thinking", str(data.get("thinking") or "(signature only)"))
    elif kind == "redacted_thinking":
        yield Part("thinking", "Thinking, encrypted", "")
    elif kind == "tool_use":
        names[str(data.get("id"))] = str(data.get("name"))
        yield Part("call", "Call", indented(data.get("input")), str(data.get("name")), str(data.get("id")))
    elif kind == "tool_result":
        yield from _result(data, names)
    elif kind in types.MEDIA:
        yield Part("media", str(kind).capitalize(), quoting.media_note(data))
    else:
        yield Part("other", "Block", indented(data), str(kind))


def _result(data: dict[str, Any], names: dict[str, str]) -> Iterator[Part]:
    call = str(data.get("tool_use_id"))
    kind, label = ("error", "Error") if data.get("is_error") else ("result", "Result")
    inner = [part for piece in quoting.result_parts(data.get("content")) for part in _parts(piece, names)]
    for part in inner or [Part("text", "", "(empty)")]:
        yield Part(
            kind, label, part.text if part.kind != "call" else indented(data), names.get(call, ""), call
        )


def _clipped(part: Part, longest: int | None) -> Part:
    shown = part.text if longest is None else quoting.clip(part.text, longest)
    return Part(
        part.kind,
        part.label,
        quoting.harmless(shown),
        quoting.one_line(part.name),
        quoting.one_line(part.id),
        cut=shown != part.text,
    )
