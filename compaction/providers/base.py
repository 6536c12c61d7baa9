"""What hango asks of a model provider. Requests and answers are in the Anthropic Messages shape; another provider's own
shape is made from it, and read back into it, inside that provider's module."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from compaction.engine import exact


@dataclass(frozen=True)
class Call:
    """One request to a model. `body`: the exact JSON text of a Messages request, without `stream`; `timeout_s`: the longest
    it may take, in seconds; `purpose`: chat, summarize or count, sent as `X-Hango-Purpose` (API.md)."""

    body: str
    timeout_s: float
    purpose: str = "chat"

    @cached_property
    def data(self) -> dict[str, Any]:
        """The body as a value; not to be changed."""
        data: dict[str, Any] = exact.loads(self.body)
        return data

    @property
    def model(self) -> str:
        return str(self.data["model"])

    @property
    def max_tokens(self) -> int:
        return int(self.data["max_tokens"])

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.data["messages"])

    @property
    def system(self) -> str:
        """The text of the system blocks."""
        system = self.data.get("system") or ""
        return system if isinstance(system, str) else "\n".join(b["text"] for b in system)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer. `usage` is in the Anthropic shape: the three input fields are disjoint parts of one sum.
    `content`: the exact JSON text of its content blocks; made from `text` when not given. `raw`: the provider's own
    answer, where `content` was converted from another shape, since conversion loses some of it."""

    text: str
    stop_reason: str | None
    usage: dict[str, Any] = field(default_factory=dict)
    called_tool: bool = False
    content: str = ""
    raw: str = ""

    @classmethod
    def of(cls, content: str, stop_reason: str | None, usage: dict[str, Any], raw: str = "") -> Reply:
        """The answer whose content blocks have this JSON text."""
        blocks = exact.loads(content)
        text = "".join(b["text"] for b in blocks if b.get("type") == "text")
        return cls(text, stop_reason, usage, any(b.get("type") == "tool_use" for b in blocks), content, raw)

    @property
    def blocks(self) -> str:
        """The content's JSON text, also of an answer that was given as text."""
        return self.content or exact.dumps([{"type": "text", "text": self.text}] if self.text else [])


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event of a streamed answer: its name and its data's JSON text, as the Messages API sends them."""

    name: str
    data: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do. `prompt_caching`: it takes cache breakpoints; `counts_tokens`: it can count a request."""

    prompt_caching: bool
    counts_tokens: bool


class Provider(Protocol):
    """A model provider. All three raise `ProviderFailed` for everything but an answer; none retries by itself."""

    name: str
    capabilities: Capabilities

    def send(self, call: Call) -> Reply:
        """The whole answer."""
        ...

    def stream(self, call: Call) -> Generator[Event, None, Reply]:
        """The answer's events as they come; the generator returns the whole answer. Closing it ends the call."""
        ...

    def count(self, call: Call) -> int:
        """Input tokens of the request, as the provider counts them. Only with `capabilities.counts_tokens`."""
        ...
