"""What hango asks of a model provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a model. `timeout_s`: the longest it may take, in seconds; `purpose`: chat, summarize or count,
    sent as `X-Hango-Purpose` (API.md)."""

    model: str
    system: str
    messages: tuple[dict[str, Any], ...]
    max_tokens: int
    timeout_s: float
    purpose: str = "summarize"


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer: its text, why it stopped, its usage in the Anthropic shape, and whether it called a tool."""

    text: str
    stop_reason: str | None
    usage: dict[str, Any] = field(default_factory=dict)
    called_tool: bool = False


class Provider(Protocol):
    """A model provider. `complete` raises `ProviderFailed` for everything but an answer."""

    name: str

    def complete(self, call: Call) -> Reply: ...
