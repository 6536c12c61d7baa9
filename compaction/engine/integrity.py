"""What is wrong: with a message that arrives, with what the transcript then holds, and with a finished request.

Four questions, asked at four moments: `malformed` (refused at append, API rule 4), `warnings` (accepted, but broken),
`shown_ids` (which ids the calls get, decided once at append) and `violations` (the validator, the last look before a
request leaves). The validator shares no code with `repair`, so that one fault cannot blind both. Rule numbers are
those of PROTOCOL section 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from compaction.engine import exact
from compaction.engine.types import THINKING, Block, Message, OutgoingMessage, OutgoingRequest, Repair, Role

MAX_MESSAGES = 100_000
MAX_MARKS = 4
NO_MARKS = THINKING | {"mcp_tool_listing", "fallback"}  # R52: these blocks have no such field
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def is_blank(block: dict[str, Any]) -> bool:
    """A text block that no provider takes: nothing in it but white space (R4)."""
    return block.get("type") == "text" and (not block["text"] or block["text"].isspace())


def is_server_result(kind: str) -> bool:
    """`web_search_tool_result`, `mcp_tool_result`, …: the answer to a call that the provider itself made (R30)."""
    return kind.endswith("_tool_result")


# ------------------------------------------------------------------------------------------ at append


def shown_ids(calls: Sequence[str], taken: Container[str], seq: int) -> tuple[str, ...] | None:
    """Ids under which the calls of the assistant message `seq` are shown, in their order (R10). None: as they stand.

    `taken`: every id that the session used or showed before. An id that is in it, or stands earlier in the same
    message, becomes `{id}_{seq}`; characters that no provider takes become `_`. Decided once and stored, so that the
    shown form never depends on which part of the transcript is shown.
    """
    chosen: list[str] = []
    for k, call in enumerate(calls):
        if _ID.fullmatch(call):
            base, name = f"{call}_{seq}", call
        else:
            base = name = re.sub(r"[^a-zA-Z0-9_-]", "_", call) + f"_{seq}" if call else f"toolu_{seq}_{k}"
        n = 1
        while name in taken or name in chosen:
            name = base if n == 1 else f"{base}_{n}"
            n += 1
        chosen.append(name)
    return None if chosen == list(calls) else tuple(chosen)


_TEXT = (str,)
_FIELDS: dict[str, tuple[tuple[str, tuple[type, ...], str], ...]] = {
    "text": (("text", _TEXT, "R4: text is a string"),),
    "tool_use": (
        ("id", _TEXT, "R10: a call's id is a string"),
        ("name", _TEXT, "R19: a tool's name is a string"),
        ("input", (object,), "R17: a call has an input"),
    ),
    "tool_result": (("tool_use_id", _TEXT, "R12: a result names its call in tool_use_id, a string"),),
    "image": (("source", (dict,), "an image has a source, an object"),),
    "document": (("source", (dict,), "a document has a source, an object"),),
    "thinking": (("thinking", _TEXT, "R40: thinking is a string"),),
    "redacted_thinking": (("data", _TEXT, "R40: redacted thinking has data, a string"),),
    "server_tool_use": (("id", _TEXT, "R30: a call's id is a string"),),
    "mcp_tool_use": (("id", _TEXT, "R33: a call's id is a string"),),
}
_SERVER_RESULT = (("tool_use_id", _TEXT, "R30: a result names its call in tool_use_id, a string"),)
_ASSISTANT_ONLY = THINKING | SERVER_CALLS | {"tool_use"}


def malformed(role: object, content: object, pointer: str) -> list[dict[str, str]]:
    """What makes a message no message at all (API rule 4): [{"pointer", "detail"}], empty when it is well-formed.

    `role` and `content` are the decoded values, `pointer` the message's own JSON pointer, such as `/messages/3`.
    """
    found: list[dict[str, str]] = []

    def note(at: str, detail: str) -> None:
        found.append({"pointer": pointer + at, "detail": detail})

    if role not in ("user", "assistant"):
        note("/role", "the role is user or assistant")
    if isinstance(content, list):
        for i, block in enumerate(content):
            _check_block(block, str(role), f"/content/{i}", note)
    elif not isinstance(content, str):
        note("/content", "content is text or an array of blocks")
    return found


def _check_block(block: object, place: str, at: str, note: Callable[[str, str], None]) -> None:
    """`place`: the role of the message, or `tool_result` for a block inside one."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str):
        return note(at, "a block is an object with a type, a string")
    for field, types, detail in _SERVER_RESULT if is_server_result(kind) else _FIELDS.get(kind, ()):
        if field not in block or not isinstance(block[field], types):
            note(f"{at}/{field}", detail)
    if place != "assistant" and (kind in _ASSISTANT_ONLY or is_server_result(kind)):
        note(at, f"R11, R30: {kind} stands in an assistant message only")
    if kind == "tool_result":
        if place != "user":
            note(at, "R12: tool_result stands in a user message only")
        inner = block.get("content")
        if isinstance(inner, list):
            for i, part in enumerate(inner):
                _check_block(part, "tool_result", f"{at}/content/{i}", note)
        elif inner is not None and not isinstance(inner, str):
            note(f"{at}/content", "R21: a result's content is text or an array of blocks")
    return None


def warnings(
    messages: Sequence[Message], open_calls: Sequence[str] = (), after: Role | None = None
) -> tuple[list[Repair], tuple[str, ...]]:
    """What of these well-formed new messages will be shown repaired, and the calls that are open after them.

    It sees the new messages only. `open_calls`: stored ids of the last assistant turn's calls that have no result
    yet; `after`: the role of the last stored message. `warnings(stored messages from the last assistant turn on)[1]`
    gives the first of them anew. A second result that comes in a later append is told as an orphan.
    """
    found: list[Repair] = []
    waiting, answered, told = list(open_calls), set[str](), set[str]()

    def missing(seq: int) -> None:
        for call in waiting:
            if call not in told:
                found.append(Repair(seq, "missing-result R11", f"the call {call} has no result before this message"))
        told.update(waiting)

    for message in messages:
        found += _own_faults(message)
        if all(is_blank(b.data) for b in message.blocks):
            continue
        if message.role == "assistant":
            if message.seq == 0:
                found.append(Repair(0, "assistant-first R2", "the conversation begins with the assistant"))
            if after == "user":
                missing(message.seq)
                waiting, answered = [], set()
            waiting += [call.data["id"] for call in message.calls]
        for result in message.results:
            call = result.data["tool_use_id"]
            if call in waiting:
                waiting.remove(call)
                answered.add(call)
            else:
                rule = "duplicate-result R13" if call in answered else "orphan-result R12"
                found.append(Repair(message.seq, rule, f"no open call has the id {call}"))
        if message.asks:
            missing(message.seq)
        after = message.role
    return found, tuple(waiting)


def _own_faults(message: Message) -> Iterator[Repair]:
    """What is wrong with a message whatever stands around it."""
    if not message.blocks:
        yield Repair(message.seq, "empty-message R4", "the message has no content")
    if message.shown_ids is not None:
        yield Repair(message.seq, "id-renamed R10", f"its calls are shown as {', '.join(message.shown_ids)}")
    for block in message.blocks:
        if any(is_blank(b) for b in _nested(block)):
            yield Repair(message.seq, "blank-text R4", "a text block holds nothing but white space")
        if block.kind == "tool_use" and not isinstance(block.data["input"], dict):
            yield Repair(message.seq, "input R17", f"the input of {block.data['name']} is no object")
        if _has_lone_surrogate(block):
            yield Repair(message.seq, "surrogate", "a lone surrogate is shown as U+FFFD")


# ------------------------------------------------------------------------------------------ before sending


def violations(request: OutgoingRequest) -> list[str]:
    """Why a provider would refuse this request, each with its rule; empty when it may be sent (SPEC F7)."""
    return [
        *_envelope(request), *_tool_names(request), *_marks(request), *_pairs(request.messages),
        *_server_pairs(request.messages),
        *(f"{at}: holds a lone surrogate (UTF-8)" for at, block in _all_blocks(request) if _has_lone_surrogate(block)),
        *(f"R4 {at}: blank text" for at, block in _all_blocks(request) if any(is_blank(b) for b in _nested(block))),
    ]  # fmt: skip


def _all_blocks(request: OutgoingRequest) -> Iterator[tuple[str, Block]]:
    yield from ((f"tools.{i}", block) for i, block in enumerate(request.tools))
    yield from ((f"system.{i}", block) for i, block in enumerate((*request.system, *request.memory)))
    for i, message in enumerate(request.messages):
        yield from ((f"messages.{i}.content.{j}", block) for j, block in enumerate(message.blocks))


def _nested(block: Block) -> list[dict[str, Any]]:
    """The block and, for a result, the blocks in it."""
    inner = block.data.get("content") if block.kind == "tool_result" else None
    return [block.data, *inner] if isinstance(inner, list) else [block.data]


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
            if block.kind in _ASSISTANT_ONLY and message.role != "assistant":
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
        if (block.marked or stored) and (block.kind in NO_MARKS or is_blank(block.data)):
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
        yield from (f"R11 messages.{i}: the call {call} has no result here" for call in asked if call not in answers)
        yield from (f"R12 messages.{i}: the result {answer} has no call before it" for answer in answers if answer not in asked)
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
            if block.kind in SERVER_CALLS:
                unfinished.add(block.data["id"])
            elif is_server_result(block.kind):
                if block.data["tool_use_id"] not in unfinished:
                    yield f"R30 messages.{i}: {block.kind} without its call before it"
                unfinished.discard(block.data["tool_use_id"])
            elif unfinished and message.role == "user" and block.kind != "tool_result":
                yield f"R16 messages.{i}: only results may answer a turn with an unfinished server tool"
        if unfinished and message.role == "assistant" and not any(b.kind == "tool_use" for b in message.blocks):
            yield f"R30 messages.{i}: a server tool without its result"


def _has_lone_surrogate(block: Block) -> bool:
    return exact.may_hold_lone_surrogates(block.raw) and _ill_formed(block.data)


def _ill_formed(value: object) -> bool:
    if isinstance(value, str):
        return exact.well_formed(value) != value
    if isinstance(value, dict):
        return any(_ill_formed(k) or _ill_formed(v) for k, v in value.items())
    return isinstance(value, list) and any(_ill_formed(v) for v in value)
