"""Where prompt-cache breakpoints go (SPEC F11, PROTOCOL R50-R54).

At most four: the last stable system block (or the last tool), the summary message, the end of the history, and one
bridge. A breakpoint finds only entries written at most 20 blocks before it, so bridges stand at fixed multiples of
that distance: the next request puts them where this one wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compaction.engine.types import THINKING, Block

MAX_BREAKPOINTS = 4  # PROTOCOL R50
BRIDGE = 15  # blocks; under the 20 of PROTOCOL R53, so that a merged block more does not break the chain


def may_carry(block: Block) -> bool:
    """Not on thinking, nor on empty text (PROTOCOL R52)."""
    return block.kind not in THINKING and not (block.kind == "text" and not block.text.strip())


def of_blocks(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks with the last one that may carry a mark marked (system blocks, tools)."""
    at = next((i for i in range(len(blocks) - 1, -1, -1) if may_carry(blocks[i])), None)
    return tuple(replace(b, marked=True) if i == at else b for i, b in enumerate(blocks))


def positions(carriers: Sequence[bool], *, summary_end: int | None, available: int) -> list[int]:
    """Indices of the message blocks to mark, given which may carry a mark; at most `available`.

    `summary_end`: index of the last block of the summary message.
    """
    wanted: list[int] = []

    def want(at: int) -> None:
        """Mark the nearest block at or before `at` that may carry a mark."""
        while at >= 0 and not carriers[at]:
            at -= 1
        if at >= 0 and at not in wanted and len(wanted) < available:
            wanted.append(at)

    if summary_end is not None:
        want(summary_end)
    want(len(carriers) - 1)
    bridge = (len(carriers) - 1) // BRIDGE * BRIDGE
    while bridge > (summary_end or 0) and len(wanted) < available:
        want(bridge)
        bridge -= BRIDGE
    return sorted(wanted)
