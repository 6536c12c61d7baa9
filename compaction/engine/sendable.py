"""One stored block as it may be sent: the part of repair that needs no neighbours.

A block with nothing wrong comes back as the same object, so its bytes pass on. Rule numbers are those of
PROTOCOL section 1. Thinking is never edited (R40): what cannot be sent as it stands is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from compaction.engine import errors, exact
from compaction.engine.types import MEDIA, Block, Role, blocks_of

Note = Callable[[str, str], None]  # (rule, detail) of one change

EMPTY = "(empty)"
MAX_IMAGE_BASE64 = 5 * 1024 * 1024  # characters (R61): one larger image would poison every later request
# A pair of escapes, a lone surrogate (escaped or not), any other escape: read in this order, so that `\\ud800`
# (an escaped backslash before letters) is no surrogate.
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2}|[\ud800-\udfff])|\\.",
    re.DOTALL,
)


def plain(block: Block) -> Block:
    """Without the client's `cache_control`, with U+FFFD for lone surrogates: for system blocks and tools too."""
    return _well_formed(_unmarked(block))


def _unmarked(block: Block) -> Block:
    return _without(block, "cache_control") if "cache_control" in block.data else block


def _well_formed(block: Block) -> Block:
    if not exact.may_hold_lone_surrogates(block.raw):
        return block
    raw = _ESCAPES.sub(lambda m: "\ufffd" if m["lone"] else m[0], block.raw)
    return block if raw == block.raw else Block(raw, exact.loads(raw), block.marked)


def replaced(block: Block, **members: str) -> Block:
    """The block with some members' JSON texts replaced where they stand; every other text stays as it is."""
    return _from_texts(block, {key: members.get(key, text) for key, text in _texts(block).items()})


def inner_blocks(result: Block) -> tuple[Block, ...]:
    """A result's content as blocks with their exact texts; empty when there is none."""
    return blocks_of(_texts(result)["content"])[0] if result.data.get("content") else ()


def _without(block: Block, name: str) -> Block:
    return _from_texts(block, {key: text for key, text in _texts(block).items() if key != name})


def _texts(block: Block) -> dict[str, str]:
    """The JSON text of each member. A key that stands twice counts once, as its last value: so it was read."""
    try:
        return {key: block.raw[start:end] for key, _, start, end in exact.members(block.raw)}
    except errors.Malformed:
        return {key: exact.dumps(value) for key, value in block.data.items()}


def _from_texts(block: Block, texts: dict[str, str]) -> Block:
    raw = "{" + ",".join(f"{json.dumps(key)}:{text}" for key, text in texts.items()) + "}"
    return Block(raw, exact.loads(raw), block.marked)


def sendable(block: Block, role: Role, note: Note) -> Block | None:
    """The block as it may be sent in a message of `role`; None: it cannot be sent. `note` is told of each change."""
    bare = _unmarked(block)
    repair = _REPAIRS.get(block.kind)
    repaired = repair(bare, role, note) if repair else bare
    if repaired is None:
        return None
    sound = _well_formed(repaired)
    if sound is not repaired:
        note("surrogate", "lone surrogates are shown as U+FFFD")
    return sound


def tool_name(name: str) -> str:
    """The name with what no provider takes replaced (R19)."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:128] or "unnamed"


def _text(block: Block, role: Role, note: Note) -> Block | None:
    if not block.text.strip():
        note("blank-text R4", "a text block holds nothing but white space")
        return None
    if role == "user" and block.data.get("citations"):
        note("user-citations", "citations in a user's text are left out")
        return _without(block, "citations")
    return block


def _call(block: Block, role: Role, note: Note) -> Block:
    given, name = block.data["input"], block.data["name"]
    changed: dict[str, str] = {}
    if tool_name(name) != name:
        note("tool-name R19", f"the tool {name!r} is shown as {tool_name(name)}")
        changed["name"] = exact.dumps(tool_name(name))
    if not isinstance(given, dict):
        note("input R17", f"the input of {name} was no object")
        changed["input"] = _as_object(given)
    return replaced(block, **changed) if changed else block


def _as_object(given: object) -> str:
    """JSON text of an object: what a string spells, `{}` for nothing, else the value wrapped as `_raw`."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return "{}"
    if isinstance(given, str) and isinstance(_decoded(given), dict):
        return given.strip()
    return exact.dumps({"_raw": given})


def _decoded(text: str) -> Any:
    try:
        return exact.loads(text)
    except errors.Malformed:
        return None


def _result(block: Block, role: Role, note: Note) -> Block:
    content = block.data.get("content")
    if content is None and "content" in block.data:
        note("null-content R21", "a result's content is left out, not null")
        return _without(block, "content")
    if not isinstance(content, list):
        return block
    blank = any(b["type"] == "text" and not b["text"].strip() for b in content)
    if blank:
        note("blank-text R4", "a text block in a result holds nothing but white space")
    elif not any("cache_control" in b or _is_oversized(b) for b in content):
        return block
    kept = [_fitting(_unmarked(b), note) for b in inner_blocks(block) if b.kind != "text" or b.text.strip()]
    return replaced(block, content=f"[{','.join(b.raw for b in kept)}]" if kept else exact.dumps(EMPTY))


def _thinking(block: Block, role: Role, note: Note) -> Block | None:
    if block.kind == "thinking" and not (
        block.data.get("signature") and isinstance(block.data["signature"], str)
    ):
        note("thinking R40", "thinking without its signature cannot be sent")
        return None
    if _well_formed(block) is not block:
        note("thinking R40", "thinking with a lone surrogate cannot be sent, and may not be edited")
        return None
    return block


def _media(block: Block, role: Role, note: Note) -> Block:
    if role == "user":
        return _fitting(block, note)
    note(f"assistant-{block.kind}", f"a {block.kind} cannot be sent in an assistant message")
    return replace(Block.text_of(f"[The assistant's {block.kind} is not shown here.]"), marked=block.marked)


def _is_oversized(data: dict[str, Any]) -> bool:
    source = data.get("source")
    return (
        data.get("type") == "image"
        and isinstance(source, dict)
        and len(str(source.get("data", ""))) > MAX_IMAGE_BASE64
    )


def _fitting(block: Block, note: Note) -> Block:
    """The block, or a note in place of an image that no provider takes."""
    if not _is_oversized(block.data):
        return block
    note("image-too-large R61", "an image of more than 5 MB of base64 is left out")
    size = len(block.data["source"]["data"]) * 3 // 4
    return replace(
        Block.text_of(f"[An image of {size:,} bytes is left out here: the provider takes none so large.]"),
        marked=block.marked,
    )


_REPAIRS: dict[str, Callable[[Block, Role, Note], Block | None]] = {
    "text": _text,
    "tool_use": _call,
    "tool_result": _result,
    "thinking": _thinking,
    "redacted_thinking": _thinking,
    **dict.fromkeys(MEDIA, _media),
}
