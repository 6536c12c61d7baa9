"""How small the request of the next rung has to be (SPEC F10)."""

from __future__ import annotations

import pytest

from compaction.engine import overflow, trigger
from compaction.engine.trigger import Limits

AT = trigger.lines(Limits(window=100_000, max_tokens=0, counts_output=False), 0)


@pytest.mark.parametrize(
    ("refused", "compacted", "truncated"),
    [
        (300_000, 80_000, 100_000),  # the lines decide
        (120_000, 80_000, 84_000),
        (100_000, 70_000, 70_000),  # a refusal under the window: the true one is smaller than thought
        (10_000, 7_000, 7_000),
    ],
)
def test_what_is_sent_after_a_refusal_is_smaller_than_what_was_refused(
    refused: int, compacted: int, truncated: int
) -> None:
    assert (AT.clear, AT.usable) == (80_000, 100_000)
    assert overflow.compaction_target(AT, refused) == compacted < refused
    assert overflow.truncation_target(AT, refused) == truncated < refused


def test_the_rungs_are_climbed_in_this_order() -> None:
    assert list(overflow.Rung) == ["", "overflow", "truncate"]
