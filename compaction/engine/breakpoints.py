"""Where prompt-cache breakpoints go (SPEC F11, PROTOCOL R50-R54).

At most four: the last stable system block (or the last tool), the summary message, the end of the history, and with
what is left bridges. A breakpoint finds only entries that stand at most 20 blocks before it, itself included, so the
bridges step back from the end, each where the look of the one behind it ends: what one request wrote at its end, the
next one finds, although a turn of many parallel calls came since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compaction.engine.types import THINKING, Block

MAX_BREAKPOINTS = 4  # PROTOCOL R50
BRIDGE = 19  # blocks; one less than the look back of PROTOCOL R53, for a block that repair puts in between
NO_MARKS = THINKING | {"mcp_tool_listing", "fallback"}  # kinds without such a field (PROTOCOL R52)


def may_carry(block: Block) -> bool:
    """Not on thinking and other kinds without the field, nor on empty text (PROTOCOL R52)."""
    return block.kind not in NO_MARKS and not (block.kind == "text" and not block.text.strip())


def of_blocks(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks with the last one that may carry a mark marked (system blocks, tools)."""
    at = next((i for i in range(len(blocks) - 1, -1, -1) if may_carry(blocks[i])), None)
    return tuple(replace(b, marked=True) if i == at else b for i, b in enumerate(blocks))


def positions(carriers: Sequence[bool], *, summary_end: int | None, available: int) -> list[int]:
    """Indices of the message blocks to mark, given which may carry a mark; at most `available`.

    `summary_end`: index of the last block of the summary message.
    """
    wanted: list[int] = []

    def mark(at: int) -> int:
        """Marks the nearest block at or before `at` that may carry a mark; where that is, -1 for nowhere."""
        while at >= 0 and not carriers[at]:
            at -= 1
        if at >= 0 and at not in wanted:
            wanted.append(at)
        return at

    first = -1 if summary_end is None else mark(summary_end)
    at = mark(len(carriers) - 1)
    while at - BRIDGE > first and len(wanted) < available:
        at = mark(at - BRIDGE)
    return sorted(wanted)
