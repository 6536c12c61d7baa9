"""The overflow ladder: which rung comes next, and how small its request has to be (SPEC F10, DESIGN 5)."""

from __future__ import annotations

from enum import StrEnum

from compaction.engine.classify import classify as classify
from compaction.engine.classify import limits_of as limits_of
from compaction.engine.numbers import Stated as Stated
from compaction.engine.signals import Kind as Kind
from compaction.engine.trigger import Lines

# What a smaller request cures; a single request over a rate limit is one too, since waiting never helps it.
CURABLE = frozenset({Kind.OVERFLOW, Kind.OVERFLOW_OUT, Kind.BODY, Kind.RATE_SINGLE})
NO_OVERFLOW = frozenset(
    {Kind.RATE, Kind.ENTITLE, Kind.PARAM, Kind.MEDIA, Kind.SEQ, Kind.BINDING, Kind.SERVER}
)
LEAST_ANSWER = 256  # tokens; `max_tokens` is never lowered below, a compaction is better then
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
