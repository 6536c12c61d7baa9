"""From stored messages to messages that a provider accepts.

The transcript stays as it is; what is *shown* of it is made valid, as the last step of every build, and each change is
told as a `Repair`. What is healthy passes through byte for byte, and nothing that was said is lost: an orphan result
becomes labelled text. Rules are those of PROTOCOL section 1, worked off in the order of 1G.

What a round looks like depends on that round and on what came before it, so appending never rewrites the rounds that
are complete, and prompt caches live. One exception: a provider's own call that its next turn leaves unfinished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from compaction.engine import exact, integrity, sendable
from compaction.engine.types import MEDIA, THINKING, Block, Message, OutgoingMessage, Repair, Role

OPENING = "[The conversation so far begins with the assistant's message.]"
CONTINUE = "Continue."
NO_RESULT = "[no result was recorded for this call]"
COMPACTED = "The conversation is being compacted."


@dataclass(frozen=True, slots=True)
class _Part:
    """A block on its way. `seq`: the stored message it is from. `stored_id`: what a call is named in the transcript."""

    seq: int | None
    block: Block
    as_text: bool = False
    stored_id: str = ""


@dataclass(slots=True)
class _Turn:
    role: Role
    parts: list[_Part]

    @property
    def calls(self) -> list[_Part]:
        return [p for p in self.parts if p.block.kind == "tool_use"]


def repair(
    messages: Sequence[Message],
    *,
    lead: Sequence[Block] = (),
    compact_tool: bool = False,
    close: bool = False,
) -> tuple[tuple[OutgoingMessage, ...], tuple[Repair, ...]]:
    """The shown messages as they are sent, and what was changed.

    `lead`: hango's own blocks that open the request. `compact_tool`: an unanswered call of `compact_conversation`
    gets hango's own result (API rule 7). `close`: a request that would end on the assistant's words gets a user
    message at its end (R5, API rule 3). Nothing to send gives no messages.
    """
    repairs: list[Repair] = []
    turns = _turns(messages, lead, repairs)
    if turns and turns[0].role == "assistant" and turns[0].parts[0].block.kind != "compaction":
        repairs.append(Repair(None, "first-user R2", "a user message was put before the assistant's first"))
        turns.insert(0, _Turn("user", [_Part(None, Block.text_of(OPENING))]))
    if turns and turns[-1].calls:
        turns.append(_Turn("user", []))
    calls: list[_Part] = []
    for turn in turns:
        if turn.role == "user":
            turn.parts = _answered(calls, turn.parts, compact_tool, repairs)
        calls = turn.calls
    if close and turns and turns[-1].role == "assistant":
        repairs.append(
            Repair(None, "continue R5", "a user message was put at the end, which was the assistant's")
        )
        turns.append(_Turn("user", [_Part(None, Block.text_of(CONTINUE))]))
    return tuple(_outgoing(turn) for turn in turns), tuple(repairs)


def ending(
    messages: Sequence[Message], *, compact_tool: bool = False
) -> Literal["user", "calls", "answer", "nothing"]:
    """What the stored messages end on; those from the last assistant turn on are enough.

    `calls`: calls without all their results, and no words of the user after them (the results are still to come).
    `answer`: the assistant's text. `nothing`: there is nothing that could be shown.
    """
    turns = _turns(messages, (), [])
    if not turns:
        return "nothing"
    last = turns[-1]
    if last.role == "assistant" and not last.calls:
        return "answer"
    asked = last.calls or (turns[-2].calls if len(turns) > 1 else [])
    waiting = [
        c.stored_id for c in asked if not (compact_tool and c.block.data["name"] == integrity.COMPACT_TOOL)
    ]
    for part in last.parts:
        if last.role == "user" and part.block.kind != "tool_result":
            return "user"
        if part.block.data.get("tool_use_id") in waiting:
            waiting.remove(part.block.data["tool_use_id"])
    return "calls" if waiting else "user"


def missing_tools(messages: Sequence[Message | OutgoingMessage]) -> tuple[Block, ...]:
    """Minimal definitions of the tools that are called in these messages, in order of first use: for requests whose
    session defines no tools any more, since tool blocks without definitions are refused (R18)."""
    calls = (b for m in messages for b in m.blocks if b.kind == "tool_use")
    names = dict.fromkeys(sendable.tool_name(b.data["name"]) for b in calls)
    schema = {"type": "object"}
    return tuple(
        Block.of({"name": name, "description": "(not available any more)", "input_schema": schema})
        for name in names
    )


# ------------------------------------------------------------------------------------------ turns


def _turns(messages: Sequence[Message], lead: Sequence[Block], repairs: list[Repair]) -> list[_Turn]:
    """Alternating turns of blocks that may be sent, not yet paired (R3, R4, R30)."""
    used: set[str] = set()
    turns = [_Turn("user", [_Part(None, block) for block in lead])]
    turns = _joined([*turns, *(_sendable(m, used, repairs) for m in messages)], repairs)
    _drop_unfinished(turns, repairs)
    kept = []
    for turn in turns:
        if turn.role == "user" or any(p.block.kind not in THINKING for p in turn.parts):
            kept.append(turn)
        elif turn.parts:
            repairs.append(
                Repair(turn.parts[0].seq, "thinking-only R4", "a message of thinking alone is left out")
            )
    return _joined(kept, repairs)


def _sendable(message: Message, used: set[str], repairs: list[Repair]) -> _Turn:
    """The message's blocks as they may be sent, its calls under the ids by which they are shown (R10)."""

    def note(rule: str, detail: str) -> None:
        repairs.append(Repair(message.seq, rule, detail))

    ids = [call.data["id"] for call in message.calls]
    shown = message.shown_ids or integrity.shown_ids(ids, used, message.seq) or tuple(ids)
    used.update(shown)
    names = iter(zip(ids, shown, strict=True))
    turn = _Turn(message.role, [])
    if not message.blocks:
        note("empty-message R4", "a message without content is left out")
    for stored in message.blocks:
        block, stored_id = sendable.sendable(stored, message.role, note), ""
        if block is not None and block.kind == "tool_use":
            stored_id, name = next(names)
            if name != stored_id:
                note("id-renamed R10", f"the call {stored_id} is shown as {name}")
                block = sendable.replaced(block, id=exact.dumps(name))
        if block is not None:
            turn.parts.append(_Part(message.seq, block, message.as_text, stored_id))
    return turn


def _joined(turns: Iterable[_Turn], repairs: list[Repair]) -> list[_Turn]:
    """Empty turns left out, neighbours of one role made one turn (R3, R15)."""
    joined: list[_Turn] = []
    for turn in turns:
        if joined and turn.parts and joined[-1].role == turn.role:
            before = joined[-1].parts[-1].seq
            if before is not None:
                detail = f"shown in one {turn.role} message with message {before}"
                repairs.append(Repair(turn.parts[0].seq, "joined R3", detail))
            joined[-1] = _Turn(turn.role, joined[-1].parts + turn.parts)
        elif turn.parts:
            joined.append(turn)
    return joined


def _drop_unfinished(turns: list[_Turn], repairs: list[Repair]) -> None:
    """Calls of the provider's own (server tools, MCP) and their results go together or not at all (R30, R32, R33).

    They may stay unfinished only while client calls of the same turn are answered, by nothing but results (R16): when
    other words came, the unfinished call is left out, which is the smallest change that keeps the words.
    """
    waiting: dict[str, _Part] = {}
    dead: list[_Part] = []
    asked: Counter[str] = Counter()
    for turn in turns:
        for part in turn.parts:
            kind, data = part.block.kind, part.block.data
            if kind in integrity.SERVER_CALLS:
                dead += [waiting[data["id"]]] if data["id"] in waiting else []
                waiting[data["id"]] = part
            elif integrity.is_server_result(kind) and waiting.pop(data["tool_use_id"], None) is None:
                dead.append(part)
        given = Counter(str(p.block.data.get("tool_use_id", "")) for p in turn.parts)  # "": no result
        if given - asked if turn.role == "user" else not turn.calls:
            dead += waiting.values()
            waiting.clear()
        asked = Counter(call.stored_id for call in turn.calls)
    repairs.extend(Repair(p.seq, "server-tool R30", f"an unpaired {p.block.kind} is left out") for p in dead)
    for turn in turns if dead else ():
        turn.parts = [p for p in turn.parts if not any(p is d for d in dead)]


# ------------------------------------------------------------------------------------------ pairs


def _answered(
    calls: list[_Part], parts: list[_Part], compact_tool: bool, repairs: list[Repair]
) -> list[_Part]:
    """A user turn after `calls`: their results first, each once (R11 to R15), then everything else as it stood.

    Results are matched by stored id, and among equal ids by position.
    """
    waiting = list(calls)
    given: dict[str, list[object]] = {}  # contents of the results that are shown, by stored id
    results: list[_Part] = []
    rest: list[_Part] = []
    moved = False
    for part in parts:
        if part.block.kind != "tool_result":
            rest.append(part)
            continue
        stored_id = part.block.data["tool_use_id"]
        content = part.block.data.get("content")
        call = next((c for c in waiting if c.stored_id == stored_id), None)
        if call is not None:
            waiting.remove(call)
            given.setdefault(stored_id, []).append(content)
            moved = moved or bool(rest)
            results.append(replace(part, block=_named(part.block, call.block.data["id"])))
        elif content in given.get(stored_id, ()):
            repairs.append(Repair(part.seq, "duplicate-result R13", f"the result of {stored_id} came before"))
        else:
            repairs.append(
                Repair(part.seq, "orphan-result R12", f"the result of {stored_id} is shown as text")
            )
            rest += _told(part)
    if moved:
        repairs.append(
            Repair(results[-1].seq, "results-first R14", "results were moved before other content")
        )
    return results + [_synthesised(call, compact_tool, repairs) for call in waiting] + rest


def _named(result: Block, shown_id: str) -> Block:
    if result.data["tool_use_id"] == shown_id:
        return result
    return sendable.replaced(result, tool_use_id=exact.dumps(shown_id))


def _synthesised(call: _Part, compact_tool: bool, repairs: list[Repair]) -> _Part:
    name, shown_id = call.block.data["name"], call.block.data["id"]
    if compact_tool and name == integrity.COMPACT_TOOL:
        repairs.append(Repair(call.seq, "compact-result R11", f"the call {shown_id} got hango's own result"))
        return _Part(None, Block.of({"type": "tool_result", "tool_use_id": shown_id, "content": COMPACTED}))
    repairs.append(Repair(call.seq, "missing-result R11", f"the call {shown_id} of {name} has no result"))
    data = {"type": "tool_result", "tool_use_id": shown_id, "content": NO_RESULT, "is_error": True}
    return _Part(None, Block.of(data))


def _told(part: _Part) -> list[_Part]:
    """A result without its call, as a labelled text block and its pictures and documents, so that nothing is lost."""
    inner = sendable.inner_blocks(part.block)
    media = [b for b in inner if b.kind in MEDIA]
    texts = [b.text if b.kind == "text" else b.raw for b in inner if b.kind not in MEDIA]
    label = f"[Result of a tool call that is not shown: {part.block.data['tool_use_id']}]"
    blocks = [Block.text_of("\n".join([label, *texts])), *media]
    blocks[-1] = replace(blocks[-1], marked=part.block.marked)
    return [replace(part, block=block) for block in blocks]


def _outgoing(turn: _Turn) -> OutgoingMessage:
    sources = dict.fromkeys(p.seq for p in turn.parts if p.seq is not None)
    as_text = len(turn.parts) == 1 and turn.parts[0].as_text
    return OutgoingMessage(turn.role, tuple(p.block for p in turn.parts), tuple(sources), as_text)
