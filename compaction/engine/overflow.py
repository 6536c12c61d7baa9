"""The overflow ladder: which rung comes next, and how small its request has to be (SPEC F10, DESIGN 5)."""

from __future__ import annotations

from enum import StrEnum

from compaction.engine.trigger import Lines

SHRINK = 0.7  # of the refused size: a refusal says that the true window is smaller than thought


class Rung(StrEnum):
    """How far up the ladder a turn is: nothing refused yet, compacted after a refusal, truncated after a second."""

    FIRST = ""
    OVERFLOW = "overflow"
    TRUNCATE = "truncate"


def compaction_target(at: Lines, refused: int) -> int:
    """Tokens that a compaction after a refusal of `refused` tokens has to come down to; else truncation is next."""
    return min(at.clear, int(SHRINK * refused))


def truncation_target(at: Lines, refused: int) -> int:
    """Tokens that mechanical truncation aims at. Anything strictly smaller than what was refused may be tried."""
    return min(at.usable, int(SHRINK * refused))
