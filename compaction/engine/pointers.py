"""Results that only point at an earlier result ("unchanged since last read"), after that one has left the request.

Tools save tokens with such stubs; once the earlier result is summarised, dropped or cut, the stub tells nothing, and a model
that trusts it works from memory (cases 091). A note says where the text stands. Nothing is guessed of results that say
something of their own: they are long, or speak of no earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from compaction.engine.tokens import Estimator, message_tokens
from compaction.engine.types import Block, Message

LONGEST = 400  # characters; a stub is a line or two
_STUB = re.compile(
    r"\b(unchanged|not\s+changed|no\s+changes?)\b.{0,60}\b(since|see|refer|earlier|previous|above|last)\b"
    r"|\b(see|refer\s+to|same\s+as|identical\s+to)\b.{0,30}\b(earlier|previous|above|last|prior)\b"
    r"|\balready\s+(read|shown|sent|in\s+(the\s+)?context)\b",
    re.IGNORECASE | re.DOTALL,
)
_NOTE = (
    "\n[Where the earlier result that this one speaks of is not shown above in full, it stands in {where}.]"
)


def dangling(
    shown: Sequence[Message], whole: Sequence[Message], estimator: Estimator, where: str, *, evicted: bool
) -> tuple[Message, ...]:
    """The shown messages, each stub whose earlier result of the same call is not shown whole with a note added.

    `whole`: the same messages before old results were cut; `evicted`: others stood before them; `where`: path of the
    history file.
    """
    if not any(_is_stub(block) for message in whole for block in message.results):
        return tuple(shown)
    in_full: dict[
        tuple[str, str], bool
    ] = {}  # by call (tool, input): whether its newest own result is shown whole
    calls: dict[str, tuple[str, str]] = {}
    made = []
    for message, before in zip(shown, whole, strict=True):
        if before.calls:
            calls = {str(b.data.get("id")): _call(b) for b in before.calls}
        blocks = list(message.blocks)
        for i, original in enumerate(before.blocks):
            call = calls.get(str(original.data.get("tool_use_id")))  # other kinds of block have none
            if call is None:
                continue
            if not _is_stub(original):
                in_full[call] = blocks[i] is original
            elif not in_full.get(call, not evicted):
                blocks[i] = _noted(blocks[i], where)
        if all(a is b for a, b in zip(blocks, message.blocks, strict=True)):
            made.append(message)
        else:
            weight = message_tokens(estimator, tuple(blocks))
            made.append(replace(message, blocks=tuple(blocks), tokens=weight))
    return tuple(made)


def _call(block: Block) -> tuple[str, str]:
    return str(block.data.get("name")), repr(block.data.get("input"))


def _is_stub(block: Block) -> bool:
    text = _text(block)
    return text is not None and len(text) <= LONGEST and _STUB.search(text) is not None


def _text(block: Block) -> str | None:
    """The text of a result that is one text and no error."""
    content = block.data.get("content")
    if block.data.get("is_error"):
        return None
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else None


def _noted(block: Block, where: str) -> Block:
    note, content = _NOTE.format(where=where), block.data.get("content")
    longer = (
        content + note
        if isinstance(content, str)
        else [{**b, "text": b["text"] + note} for b in content or ()]
    )
    return replace(Block.of({**block.data, "content": longer}), marked=block.marked)
