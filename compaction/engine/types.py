"""The plain values that the engine works on. All are frozen; tokens are *base units* unless a name says otherwise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from compaction.engine import exact

Role = Literal["user", "assistant"]
Source = Literal["provider", "usage", "estimate"]


class Reason(StrEnum):
    """Why a compaction was made (SPEC O1)."""

    THRESHOLD = "threshold"
    OVERFLOW = "overflow"
    TOOL = "tool"
    TRUNCATE = "truncate"
    MANUAL = "manual"
    IMPORTED = "imported"


@dataclass(frozen=True, slots=True)
class Block:
    """One content block, system block or tool definition: its exact JSON text, and the same as a value (read only)."""

    raw: str
    data: dict[str, Any] = field(compare=False, repr=False)
    marked: bool = False  # carries a prompt-cache breakpoint

    @classmethod
    def of(cls, data: dict[str, Any]) -> Block:
        return cls(exact.dumps(data), data)

    @classmethod
    def text_of(cls, text: str) -> Block:
        return cls.of({"type": "text", "text": text})

    @property
    def kind(self) -> str:
        return str(self.data.get("type", ""))

    @property
    def text(self) -> str:
        """The text of a text block; empty for other kinds."""
        text = self.data.get("text", "") if self.kind == "text" else ""
        return text if isinstance(text, str) else ""


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message as the engine sees it.

    `as_text`: the content was a bare JSON string; `blocks` then holds the one text block that means the same.
    `shown_ids`: the ids under which this assistant message's tool calls are shown, in order of the calls, decided
    once when the message was stored (ids repeat in real transcripts); None: as they stand.
    """

    seq: int
    role: Role
    blocks: tuple[Block, ...]
    tokens: int = 0
    as_text: bool = False
    pinned: bool = False
    shown_ids: tuple[str, ...] | None = None
    produced_on: str = ""

    def of_kind(self, kind: str) -> list[Block]:
        return [b for b in self.blocks if b.kind == kind]

    @property
    def calls(self) -> list[Block]:
        return self.of_kind("tool_use") if self.role == "assistant" else []

    @property
    def results(self) -> list[Block]:
        return self.of_kind("tool_result") if self.role == "user" else []

    @property
    def asks(self) -> bool:
        """A user message with words, a picture or a document of its own, not only results."""
        return self.role == "user" and any(b.text.strip() or b.kind in MEDIA for b in self.blocks)


MEDIA = frozenset({"image", "document"})
THINKING = frozenset({"thinking", "redacted_thinking"})


def blocks_of(raw: str) -> tuple[tuple[Block, ...], bool]:
    """(blocks, was a bare string) of a message's content text, which must be valid JSON text of a string or an
    array of objects (checked when it was stored)."""
    if raw.lstrip().startswith('"'):
        return (
            Block(f'{{"type":"text","text":{raw.strip()}}}', {"type": "text", "text": exact.loads(raw)}),
        ), True
    return tuple(Block(raw[start:end], value) for value, start, end in exact.elements(raw)), False


@dataclass(frozen=True, slots=True)
class View:
    """What of the transcript a turn shows. All fields are `seq` positions; a new turn inherits the last one's view.

    `kept_from`: first message after those that the summary stands for (0: no summary). `first_seq`: first message
    shown; [kept_from, first_seq) was dropped mechanically. `args_cut_before`: older messages have large tool
    arguments and results cut. `block_limit`: blocks over so many tokens are shown as previews (0: none).
    `thinking_cut_before`: older messages are shown without their thinking, which was bound to something else.
    `memories`: where memory stands within the messages (seq, name of its blocks): it stays there, so that a change of
    it costs no earlier message its cache.
    """

    compaction: str | None = None
    kept_from: int = 0
    first_seq: int = 0
    args_cut_before: int = 0
    block_limit: int = 0
    thinking_cut_before: int = 0
    memories: tuple[tuple[int, str], ...] = ()
    last_seq: int = -1


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before the shown messages: the blocks of the one user message that opens the request.

    `summary`: the summary message's text as it was composed when the compaction was recorded. `dropped`: what must
    not be lost of messages that were dropped without a summary (pins, the request being worked on, in full).
    """

    summary: str = ""
    dropped: str = ""

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(Block.text_of(text) for text in (self.summary, self.dropped) if text)


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything that shapes a request and is not a message. `memory` blocks come after the stable system blocks."""

    model: str
    system: tuple[Block, ...] = ()
    tools: tuple[Block, ...] = ()
    memory: tuple[Block, ...] = ()
    system_as_text: bool = False
    memory_placement: Literal["system", "message"] = "system"
    binds_thinking: bool = False  # thinking is valid only after what it was produced on (PROTOCOL R43)
    compact_tool: bool = False  # the request offers `compact_conversation` (API rule 7)
    redact: tuple[str, ...] = ()  # patterns whose matches never leave (API.md, `limits.redact`)
    arg_limit: int = 500  # tokens of a tool argument or result that truncation leaves whole
    caching: bool = True  # the provider takes cache breakpoints
    render_version: int = (
        2  # which rules make the bytes: a past request is rebuilt by those that it was sent by
    )


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that the built request shows differently from what is stored. `seq` is None for the request's edges."""

    seq: int | None
    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of a request. `sources`: the `seq`s it was made of (none: written by hango)."""

    role: Role
    blocks: tuple[Block, ...]
    sources: tuple[int, ...] = ()
    as_text: bool = False


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request in the shape of the Anthropic Messages API, not yet text."""

    model: str
    max_tokens: int
    system: tuple[Block, ...]
    tools: tuple[Block, ...]
    messages: tuple[OutgoingMessage, ...]
    memory: tuple[Block, ...] = ()
    system_as_text: bool = False
    repairs: tuple[Repair, ...] = ()
    truncated: int = 0  # tool arguments and results that were cut

    def body(self) -> str:
        """The JSON text that is sent: stored text passed on, only marks added."""
        parts = [f'"model":{exact.dumps(self.model)}', f'"max_tokens":{self.max_tokens}']
        if self.system or self.memory:
            parts.append(f'"system":{_array((*self.system, *self.memory), self.system_as_text)}')
        if self.tools:
            parts.append(f'"tools":{_array(self.tools, False)}')
        messages = ",".join(
            f'{{"role":"{m.role}","content":{_array(m.blocks, m.as_text)}}}' for m in self.messages
        )
        parts.append(f'"messages":[{messages}]')
        return "{" + ",".join(parts) + "}"

    def elements(self) -> list[str]:
        """The prompt's elements in the order of the provider's cache, memory in `system` left out (API.md,
        `prefix_changed`): equal elements at the front are what a prompt cache can reuse."""
        tools = ["t" + b.raw for b in self.tools]
        system = ["s" + b.raw for b in self.system]
        return tools + system + [m.role[0] + b.raw for m in self.messages for b in m.blocks]


def _array(blocks: tuple[Block, ...], as_text: bool) -> str:
    if as_text and len(blocks) == 1 and not blocks[0].marked:
        return next(
            blocks[0].raw[start:end] for key, _, start, end in exact.members(blocks[0].raw) if key == "text"
        )
    return (
        "["
        + ",".join(
            exact.with_member(b.raw, "cache_control", {"type": "ephemeral"}) if b.marked else b.raw
            for b in blocks
        )
        + "]"
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """How large the request is, in the model's tokens. `source`: provider, usage or estimate (API.md)."""

    input_tokens: int
    window: int
    trigger: int
    precompute_at: int | None
    source: Source


def digest_of(text: str) -> str:
    """SHA-256 of the UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
