"""What a run of the demo wrote down: one entry a turn, and what was read back at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Action = Literal["nothing", "truncated", "swapped", "deferred", "dropped"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call. `sent` counts the request by the strict rule, `budget` is what hango held it for; tokens both.

    `inside`: the compaction that it adopted was made during the build. `fault`: why the request would be refused.
    """

    number: int
    sent: int
    budget: int
    trigger: int
    precompute: int | None
    action: Action
    build_ms: float
    waited_ms: float
    inside: bool = False
    fault: str | None = None


@dataclass(slots=True)
class Recording:
    """The whole run. Messages as {role, content}, oldest first; `evicted`: how many the last request does not show."""

    window: int
    turns: list[Turn] = field(default_factory=list)
    appended: list[dict[str, Any]] = field(default_factory=list)
    raw_tokens: int = 0
    largest_result: int = 0  # tokens
    cache_read: int = 0  # input tokens that a prompt cache would have served
    planted: dict[str, str] = field(default_factory=dict)  # identifier → where it was said
    last_request: dict[str, Any] = field(default_factory=dict)
    last_compaction: dict[str, Any] | None = None
    evicted: int = 0
    # read back at the end
    session: dict[str, Any] = field(default_factory=dict)
    stored: list[dict[str, Any]] = field(default_factory=list)
    history: str = ""

    @property
    def swaps(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.action == "swapped"]
