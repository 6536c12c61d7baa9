"""Messages requests as Chat Completions and Responses requests (PROTOCOL section 7; the rules' ids stand beside the code).

What has no equivalent: thinking and signatures (dropped, never shown as text), cache marks, the provider's own tools and
their results (told as text), files that only the other provider holds. Tool arguments keep their text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from compaction.engine import exact
from compaction.engine.types import THINKING, Block, blocks_of
from compaction.providers import openai_media as media

LONGEST_ID = 40  # O5
LONGEST_NAME = 64  # O5; the Messages API allows 128
ERROR = "[tool error] "
SETTINGS = ("temperature", "top_p")
_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """Neighbouring messages of one role, which the Messages API takes as one (R3)."""

    role: str
    blocks: list[Block] = field(default_factory=list)


def id_of(given: str) -> str:
    """An id that both providers take; the same one for the same id."""
    if given and len(given) <= LONGEST_ID and not _NOT_IN_NAME.search(given):
        return given
    return "call_" + hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def name_of(given: str) -> str:
    """A function's name that OpenAI takes; the same one for the same name."""
    if given and len(given) <= LONGEST_NAME and not _NOT_IN_NAME.search(given):
        return given
    digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_NOT_IN_NAME.sub('_', given)[: LONGEST_NAME - 9]}_{digest}"


def names_in(body: Json) -> dict[str, str]:
    """The tools' own names by those that OpenAI knows them by."""
    return {name_of(str(tool["name"])): str(tool["name"]) for tool in _functions(body)}


def turns_of(body: str) -> list[Turn]:
    """The messages of a request, neighbours of one role joined; every block with its exact text."""
    span = next(((start, end) for key, _, start, end in exact.members(body) if key == "messages"), (0, 0))
    turns: list[Turn] = []
    for _, start, end in exact.elements(body[slice(*span)] or "[]"):
        raw = body[span[0] + start : span[0] + end]
        spans = {key: (value, raw[a:b]) for key, value, a, b in exact.members(raw)}
        role = str(spans["role"][0])
        if not turns or turns[-1].role != role:
            turns.append(Turn(role))
        turns[-1].blocks.extend(blocks_of(spans["content"][1])[0])
    return turns


def chat(body: str, *, official: bool) -> Json:
    """The Chat Completions request. `official`: it goes to OpenAI itself, which wants the newer name of `max_tokens`."""
    data = exact.loads(body)
    messages: list[Json] = []
    if system := system_of(data):
        messages.append({"role": "system", "content": system})
    calls: list[str] = []
    for turn in turns_of(body):
        if turn.role == "assistant":
            messages += _said_in_chat(turn)
            calls = [b.data["id"] for b in turn.blocks if b.kind == "tool_use"]
        elif turn.role == "system":
            messages.append({"role": "system", "content": media.text_of(turn.blocks)})
        else:
            results, rest = answered(turn, calls)
            for tool_id, result in results:  # O3: one message a call, in the order of the calls
                messages.append(
                    {"role": "tool", "tool_call_id": id_of(tool_id), "content": result_text(result)}
                )
            if content := media.for_chat(
                [*_attachments(results), *rest]
            ):  # O6: after all results of the round
                messages.append({"role": "user", "content": content})
            calls = []
    asked: Json = {"model": data["model"], "messages": messages}
    asked["max_completion_tokens" if official else "max_tokens"] = data["max_tokens"]
    asked |= {key: data[key] for key in SETTINGS if key in data}
    if data.get("stop_sequences"):
        asked["stop"] = data["stop_sequences"]
    if tools := [{"type": "function", "function": _function(tool)} for tool in _functions(data)]:
        asked["tools"] = tools
        asked |= _choice(data, lambda name: {"type": "function", "function": {"name": name}})
    return asked


def responses(body: str) -> Json:
    """The Responses request. Nothing is stored at the provider, and items carry no `id`, so nothing refers to it (P1, P3)."""
    data = exact.loads(body)
    items: list[Json] = []
    calls: list[str] = []
    for turn in turns_of(body):
        if turn.role == "assistant":
            items += _said_in_responses(turn)
            calls = [b.data["id"] for b in turn.blocks if b.kind == "tool_use"]
        elif turn.role == "system":
            items.append({"type": "message", "role": "developer", "content": media.text_of(turn.blocks)})
        else:
            results, rest = answered(turn, calls)
            for tool_id, result in results:  # P2, DeepSeek's way: nothing between calls and outputs
                output = _output(result)
                items.append({"type": "function_call_output", "call_id": id_of(tool_id), "output": output})
            if parts := media.for_responses(rest):
                items.append({"type": "message", "role": "user", "content": parts})
            calls = []
    asked: Json = {"model": data["model"], "input": items, "store": False}
    if system := system_of(data):
        asked["instructions"] = system
    asked["max_output_tokens"] = data["max_tokens"]
    asked |= {key: data[key] for key in SETTINGS if key in data}
    # Functions are strict unless told otherwise, and refuse schemas that the Messages API takes.
    if tools := [{"type": "function", **_function(tool), "strict": False} for tool in _functions(data)]:
        asked["tools"] = tools
        asked |= _choice(data, lambda name: {"type": "function", "name": name})
    return asked


def system_of(data: Json) -> str:
    system = data.get("system") or ""
    return system if isinstance(system, str) else "\n\n".join(str(b.get("text", "")) for b in system)


def answered(turn: Turn, calls: Iterable[str]) -> tuple[list[tuple[str, Block]], list[Block]]:
    """(results in the order of their calls, everything else of a user's turn); a result without its call is told as text
    (O4), and a call without its result is an error that says so (O3)."""
    results = {str(b.data["tool_use_id"]): b for b in reversed(turn.blocks) if b.kind == "tool_result"}
    lost = {"type": "tool_result", "content": "[result not available]", "is_error": True}
    ordered = [(i, results.pop(i, Block.of({**lost, "tool_use_id": i}))) for i in calls]
    rest = [
        Block.text_of(result_text(b)) if b.kind == "tool_result" else b
        for b in turn.blocks
        if b.kind != "tool_result" or str(b.data["tool_use_id"]) in results
    ]
    return ordered, rest


def result_text(result: Block) -> str:
    """A tool result as text, which is all that a tool message takes (O6)."""
    parts = parts_of(result)
    text = media.text_of(b for b in parts if not media.attached(b))
    if not text and any(media.attached(b) for b in parts):
        text = "[see the attachment below]"
    return (ERROR if result.data.get("is_error") else "") + text


def parts_of(block: Block) -> list[Block]:
    """The blocks of a tool result's content."""
    content = block.data.get("content") or []
    return [Block.text_of(content)] if isinstance(content, str) else [Block.of(part) for part in content]


def _output(result: Block) -> str | list[Json]:
    """Responses take images and files in an output (P1); text alone stays a string."""
    parts = parts_of(result)
    if not any(media.attached(b) for b in parts):
        return result_text(result)
    error = [Block.text_of(ERROR.strip())] if result.data.get("is_error") else []
    return media.for_responses([*error, *parts])


def _attachments(results: Iterable[tuple[str, Block]]) -> Iterator[Block]:
    for tool_id, result in results:
        if shown := [b for b in parts_of(result) if media.attached(b)]:
            yield Block.text_of(f"[attachment of the result of {id_of(tool_id)}]")
            yield from shown


def _said(turn: Turn) -> str:
    """What the assistant said, as text: never its thinking."""
    return media.text_of(
        b for b in turn.blocks if b.kind not in THINKING and b.kind not in ("tool_use", "compaction")
    )


def _summaries(turn: Turn) -> list[str]:
    """What the provider itself compacted, where it can be read: it stands for what came before (7C)."""
    return [str(b.data["content"]) for b in turn.blocks if b.kind == "compaction" and b.data.get("content")]


def _said_in_chat(turn: Turn) -> list[Json]:
    made: list[Json] = [{"role": "user", "content": summary} for summary in _summaries(turn)]
    said: Json = {"role": "assistant", "content": _said(turn) or None}
    if calls := [b for b in turn.blocks if b.kind == "tool_use"]:
        said["tool_calls"] = [
            {
                "id": id_of(b.data["id"]),
                "type": "function",
                "function": {"name": name_of(b.data["name"]), "arguments": _arguments(b)},
            }
            for b in calls
        ]
    return [*made, said] if calls or said["content"] else made  # O2


def _said_in_responses(turn: Turn) -> list[Json]:
    items: list[Json] = [
        {"type": "message", "role": "user", "content": summary} for summary in _summaries(turn)
    ]
    if said := _said(turn):
        items.append({"type": "message", "role": "assistant", "content": said})
    for b in (b for b in turn.blocks if b.kind == "tool_use"):
        call = {"call_id": id_of(b.data["id"]), "name": name_of(b.data["name"]), "arguments": _arguments(b)}
        items.append({"type": "function_call", **call})
    return items


def _arguments(call: Block) -> str:
    """The arguments' own text (O5)."""
    return next(
        (call.raw[start:end] for key, _, start, end in exact.members(call.raw) if key == "input"), "{}"
    )


def _functions(data: Json) -> list[Json]:
    """The tools that we run; those that the other provider runs have no schema, and cannot be offered."""
    return [tool for tool in data.get("tools") or [] if "input_schema" in tool]


def _function(tool: Json) -> Json:
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"name": name_of(str(tool["name"])), **described, "parameters": tool["input_schema"]}


def _choice(data: Json, named: Any) -> Json:
    choice = data.get("tool_choice") or {}
    kind = choice.get("type")
    made: Json = {}
    if kind == "tool":
        made["tool_choice"] = named(name_of(str(choice.get("name", ""))))
    elif kind in ("auto", "any", "none"):
        made["tool_choice"] = "required" if kind == "any" else kind
    if choice.get("disable_parallel_tool_use"):
        made["parallel_tool_calls"] = False
    return made
