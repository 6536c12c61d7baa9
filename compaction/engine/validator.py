"""The validator: why a provider would refuse a finished request (SPEC F7), the last look before it leaves.

It shares no code with `repair` and pairs by another method, so that one fault cannot blind both. A violation is a
fault of hango's own. Rule numbers are those of PROTOCOL section 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from compaction.engine import exact
from compaction.engine.types import THINKING, Block, OutgoingMessage, OutgoingRequest

MAX_MESSAGES = 100_000
MAX_MARKS = 4
NO_MARKS = THINKING | {"mcp_tool_listing", "fallback"}  # R52: these blocks have no such field
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def violations(request: OutgoingRequest) -> list[str]:
    """Why a provider would refuse this request, each with its rule; empty when it may be sent (SPEC F7)."""
    return [
        *_envelope(request), *_tool_names(request), *_marks(request), *_pairs(request.messages),
        *_server_pairs(request.messages),
        *(f"{at}: holds a lone surrogate (UTF-8)" for at, block in _all_blocks(request) if _has_lone_surrogate(block)),
        *(f"R4 {at}: blank text" for at, block in _all_blocks(request) if any(_is_blank(b) for b in _nested(block))),
    ]  # fmt: skip


def _all_blocks(request: OutgoingRequest) -> Iterator[tuple[str, Block]]:
    yield from ((f"tools.{i}", block) for i, block in enumerate(request.tools))
    yield from ((f"system.{i}", block) for i, block in enumerate((*request.system, *request.memory)))
    for i, message in enumerate(request.messages):
        yield from ((f"messages.{i}.content.{j}", block) for j, block in enumerate(message.blocks))


def _envelope(request: OutgoingRequest) -> Iterator[str]:
    if request.max_tokens < 1:
        yield "R9 max_tokens: at least 1"
    messages = request.messages
    if not 1 <= len(messages) <= MAX_MESSAGES:
        yield f"R1 messages: between 1 and {MAX_MESSAGES}, not {len(messages)}"
        return
    if messages[0].role != "user" and [b.kind for b in messages[0].blocks[:1]] != ["compaction"]:
        yield "R2 messages.0: the first message is not the user's"
    if messages[-1].role != "user":
        yield f"R5 messages.{len(messages) - 1}: the last message is not the user's"
    for i, message in enumerate(messages):
        if i and message.role == messages[i - 1].role:
            yield f"R3 messages.{i}: two {message.role} messages in a row"
        if all(b.kind in THINKING for b in message.blocks):
            yield f"R4 messages.{i}: no content, or thinking only"
        for j, block in enumerate(message.blocks):
            if block.kind == "thinking" and not isinstance(block.data.get("signature"), str):
                yield f"R40 messages.{i}.content.{j}: thinking without its signature"
            if message.role != "assistant" and _of_assistant(block.kind):
                yield f"R11 messages.{i}.content.{j}: {block.kind} in a user message"
            if block.kind == "tool_result" and message.role != "user":
                yield f"R12 messages.{i}.content.{j}: tool_result in an assistant message"


def _tool_names(request: OutgoingRequest) -> Iterator[str]:
    names = [tool.data["name"] for tool in request.tools if "name" in tool.data]
    if len(names) != len(set(names)):
        yield "R19 tools: names must be unique"
    uses = [b for m in request.messages for b in m.blocks if b.kind in {"tool_use", "tool_result"}]
    if uses and not request.tools:
        yield "R18 tools: requests with tool blocks must define tools"
    for name in [*names, *(b.data["name"] for b in uses if b.kind == "tool_use")]:
        if not _NAME.fullmatch(name):
            yield f"R19 tools: the name {name!r} is not allowed"


def _marks(request: OutgoingRequest) -> Iterator[str]:
    count = 0
    for at, block in _all_blocks(request):
        stored = sum("cache_control" in b for b in _nested(block))
        count += block.marked + stored
        if block.marked and "cache_control" in block.data:
            yield f"R7 {at}: cache_control would stand twice"
        if (block.marked or stored) and (block.kind in NO_MARKS or _is_blank(block.data)):
            yield f"R52 {at}: no cache_control on {block.kind}"
    if count > MAX_MARKS:
        yield f"R50 at most {MAX_MARKS} blocks with cache_control, not {count}"


def _pairs(messages: Sequence[OutgoingMessage]) -> Iterator[str]:
    """R10 to R17: looked at from each message alone, by counting ids in its neighbour."""
    used: set[str] = set()
    asked: list[str] = []
    for i, message in enumerate((*messages, OutgoingMessage("user", ()))):
        kinds = [b.kind for b in message.blocks]
        answers = [b.data["tool_use_id"] for b in message.blocks if b.kind == "tool_result"]
        yield from (
            f"R11 messages.{i}: the call {call} has no result here" for call in asked if call not in answers
        )
        yield from (
            f"R12 messages.{i}: the result {answer} has no call before it"
            for answer in answers
            if answer not in asked
        )
        if len(answers) != len(set(answers)):
            yield f"R13 messages.{i}: a call has more than one result"
        if "tool_result" in kinds[len(answers) :]:
            yield f"R14 messages.{i}: results come first"
        asked = []
        for call in (b.data for b in message.blocks if b.kind == "tool_use"):
            if call["id"] in used or not _ID.fullmatch(call["id"]):
                yield f"R10 messages.{i}: the id {call['id']!r} is not unique or not allowed"
            if not isinstance(call["input"], dict):
                yield f"R17 messages.{i}: the input of {call['id']} is no object"
            used.add(call["id"])
            asked.append(call["id"])


def _server_pairs(messages: Sequence[OutgoingMessage]) -> Iterator[str]:
    """R16, R30, R33: an unfinished call of the provider's own is open only while nothing but results comes."""
    unfinished: set[str] = set()
    for i, message in enumerate(messages):
        for block in message.blocks:
            if block.kind in _SERVER_CALLS:
                unfinished.add(block.data["id"])
            elif _is_server_result(block.kind):
                if block.data["tool_use_id"] not in unfinished:
                    yield f"R30 messages.{i}: {block.kind} without its call before it"
                unfinished.discard(block.data["tool_use_id"])
            elif unfinished and message.role == "user" and block.kind != "tool_result":
                yield f"R16 messages.{i}: only results may answer a turn with an unfinished server tool"
        if (
            unfinished
            and message.role == "assistant"
            and not any(b.kind == "tool_use" for b in message.blocks)
        ):
            yield f"R30 messages.{i}: a server tool without its result"


def _nested(block: Block) -> list[dict[str, Any]]:
    """The block and, for a result, the blocks in it."""
    inner = block.data.get("content") if block.kind == "tool_result" else None
    return [block.data, *inner] if isinstance(inner, list) else [block.data]


def _is_blank(block: dict[str, Any]) -> bool:
    """A text block that no provider takes: nothing in it but white space (R4)."""
    return block.get("type") == "text" and not str(block.get("text", "")).strip()


def _is_server_result(kind: str) -> bool:
    """`web_search_tool_result`, `mcp_tool_result`, …: the answer to a call that the provider itself made (R30)."""
    return kind.endswith("_tool_result")


def _of_assistant(kind: str) -> bool:
    return kind in THINKING or kind in _SERVER_CALLS or kind == "tool_use" or _is_server_result(kind)


def _has_lone_surrogate(block: Block) -> bool:
    if not exact.may_hold_lone_surrogates(block.raw):
        return False
    text = json.dumps(block.data, ensure_ascii=False)
    return exact.well_formed(text) != text
