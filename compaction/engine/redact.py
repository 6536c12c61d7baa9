"""What a client never wants to leave in a request or a summary (`limits.redact`): it wins over "verbatim" (API.md).

Matched on decoded text, one string at a time, before anything is cut. Ids, names and kinds of blocks are no text.
Signed thinking cannot be edited (PROTOCOL R40), so a thinking block with a match is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compaction.engine import exact
from compaction.engine.tokens import Estimator, message_tokens
from compaction.engine.types import THINKING, Block, Message

Redact = Callable[[str], str]
STRUCTURE = frozenset(
    {"type", "id", "name", "tool_use_id", "media_type", "signature", "data", "cache_control"}
)


def message(whole: Message, redact: Redact, estimator: Estimator) -> Message:
    """The message without matches; the same object when it has none."""
    kept = blocks(whole.blocks, redact)
    if kept is whole.blocks:
        return whole
    return replace(whole, blocks=kept, tokens=message_tokens(estimator, kept))


def blocks(whole: tuple[Block, ...], redact: Redact) -> tuple[Block, ...]:
    """The blocks without matches; the same tuple when there are none."""
    changed = [_block(b, redact) for b in whole]
    if all(new is old for new, old in zip(changed, whole, strict=True)):
        return whole
    return tuple(b for b in changed if b is not None)


def texts(whole: Sequence[str], redact: Redact) -> list[str]:
    return [redact(text) for text in whole]


def _block(block: Block, redact: Redact) -> Block | None:
    if block.kind in THINKING:
        text = str(block.data.get("thinking", ""))
        return block if redact(text) == text else None
    data = {k: v if k in STRUCTURE else exact.mapped(v, redact) for k, v in block.data.items()}
    return block if data == block.data else replace(Block.of(data), marked=block.marked)
