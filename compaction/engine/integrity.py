"""What is wrong with a message that arrives, and with what the transcript then holds.

Three questions, all asked at append: `malformed` (refused, API rule 4), `warnings` (accepted, but it will be shown
repaired; a strict session refuses it too) and `shown_ids` (which ids its calls get, decided once). Rule numbers are
those of PROTOCOL section 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence

from compaction.engine import sendable
from compaction.engine.types import THINKING, Message, Repair, Role

COMPACT_TOOL = "compact_conversation"
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_OPTIONAL = "?"  # before the id of an open call that needs no result of the client's
_ID = re.compile(r"[a-zA-Z0-9_-]+")


def is_server_result(kind: str) -> bool:
    """`web_search_tool_result`, `mcp_tool_result`, …: the answer to a call that the provider itself made (R30)."""
    return kind.endswith("_tool_result")


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


_FIELDS: dict[tuple[str, str], tuple[type, str]] = {
    ("text", "text"): (str, "R4: text is a string"),
    ("tool_use", "id"): (str, "R10: a call's id is a string"),
    ("tool_use", "name"): (str, "R19: a tool's name is a string"),
    ("tool_use", "input"): (object, "R17: a call has an input"),
    ("tool_result", "tool_use_id"): (str, "R12: a result names its call in tool_use_id, a string"),
    ("image", "source"): (dict, "R21: an image has a source, an object"),
    ("document", "source"): (dict, "R21: a document has a source, an object"),
    ("thinking", "thinking"): (str, "R40: thinking is a string"),
    ("redacted_thinking", "data"): (str, "R40: redacted thinking has data, a string"),
    ("server_tool_use", "id"): (str, "R30: a call's id is a string"),
    ("mcp_tool_use", "id"): (str, "R33: a call's id is a string"),
    ("*_tool_result", "tool_use_id"): (str, "R30: a result names its call in tool_use_id, a string"),
}


def _of_assistant(kind: str) -> bool:
    return kind in THINKING or kind in SERVER_CALLS or kind == "tool_use" or is_server_result(kind)


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
        note(at, "a block is an object with a type, a string")
        return
    owner = "*_tool_result" if is_server_result(kind) else kind
    for (of, field), (wanted, detail) in _FIELDS.items():
        if of == owner and (field not in block or not isinstance(block[field], wanted)):
            note(f"{at}/{field}", detail)
    if place != "assistant" and _of_assistant(kind):
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


def warnings(
    messages: Sequence[Message],
    open_calls: Sequence[str] = (),
    after: Role | None = None,
    *,
    compact_tool: bool = False,
) -> tuple[list[Repair], tuple[str, ...]]:
    """What of these well-formed new messages will be shown repaired, and the calls that are open after them.

    It sees the new messages only. `open_calls`: what the last append returned, kept as it is; `after`: the role of the
    last stored message. `warnings(stored messages from the last assistant turn on)[1]` gives the open calls anew.
    `compact_tool`: a call of `compact_conversation` may stay without a result (API rule 7). A second result that
    comes in a later append is told as an orphan.
    """
    found: list[Repair] = []
    waiting, answered, told = list(open_calls), set[str](), set[str]()

    def missing(seq: int) -> None:
        for name in waiting:
            if name not in told and not name.startswith(_OPTIONAL):
                found.append(
                    Repair(seq, "missing-result R11", f"the call {name} has no result before this message")
                )
        told.update(waiting)

    for message in messages:
        found += _own_faults(message)
        if all(b.kind == "text" and not b.text.strip() for b in message.blocks):
            continue
        if message.role == "assistant":
            if message.seq == 0:
                found.append(Repair(0, "assistant-first R2", "the conversation begins with the assistant"))
            if after == "user":
                missing(message.seq)
                waiting, answered = [], set()
            for call in message.calls:
                optional = compact_tool and call.data["name"] == COMPACT_TOOL
                waiting.append(_OPTIONAL * optional + call.data["id"])
        for result in message.results:
            name = result.data["tool_use_id"]
            if name in waiting or _OPTIONAL + name in waiting:
                waiting.remove(name if name in waiting else _OPTIONAL + name)
                answered.add(name)
            else:
                rule = "duplicate-result R13" if name in answered else "orphan-result R12"
                found.append(Repair(message.seq, rule, f"no open call has the id {name}"))
        if message.asks:
            missing(message.seq)
        after = message.role
    return found, tuple(waiting)


def _own_faults(message: Message) -> list[Repair]:
    """What is wrong with a message whatever stands around it: what repair would change in its blocks."""
    found: list[Repair] = []

    def note(rule: str, detail: str) -> None:
        found.append(Repair(message.seq, rule, detail))

    if not message.blocks:
        note("empty-message R4", "the message has no content")
    if message.shown_ids is not None:
        note("id-renamed R10", f"its calls are shown as {', '.join(message.shown_ids)}")
    for block in message.blocks:
        sendable.sendable(block, message.role, note)
    return found
