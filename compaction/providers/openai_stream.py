"""Streams of the two OpenAI APIs as events of the Messages API.

Text is passed on as it comes. A tool call is passed on whole when it is complete: its arguments may turn out to be no
JSON, and then have to be wrapped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from compaction.engine import exact
from compaction.engine.errors import Malformed, ProviderFailed
from compaction.providers import openai_answers as answers
from compaction.providers.base import Event, Reply
from compaction.providers.failures import bad_answer
from compaction.providers.sse import lines_to_events

Json = dict[str, Any]
Events = Generator[Event, None, None]


class _Blocks:
    """Writes the events of an answer's blocks, one open at a time."""

    def __init__(self, model: str) -> None:
        self.model, self.index, self.open, self.begun = model, -1, False, False

    def start(self, answer_id: object) -> Events:
        if self.begun:
            return
        self.begun = True
        message = {
            "id": str(answer_id or ""),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
        }
        rest = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
        yield _event("message_start", message={**message, **rest})

    def text(self, text: str) -> Events:
        if not text:
            return
        if not self.open:
            self.index, self.open = self.index + 1, True
            yield _event("content_block_start", index=self.index, content_block={"type": "text", "text": ""})
        yield _event("content_block_delta", index=self.index, delta={"type": "text_delta", "text": text})

    def stop(self) -> Events:
        if self.open:
            self.open = False
            yield _event("content_block_stop", index=self.index)

    def tool(self, block: str) -> Events:
        """A tool call by its whole JSON text."""
        yield from self.stop()
        self.index += 1
        arguments = next(block[start:end] for key, _, start, end in exact.members(block) if key == "input")
        begun = {**exact.loads(block), "input": {}}
        yield _event("content_block_start", index=self.index, content_block=begun)
        delta = {"type": "input_json_delta", "partial_json": arguments}
        yield _event("content_block_delta", index=self.index, delta=delta)
        yield _event("content_block_stop", index=self.index)

    def end(self, reply: Reply) -> Events:
        yield from self.stop()
        delta = {"stop_reason": reply.stop_reason, "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=reply.usage)
        yield _event("message_stop")


def chat(lines: Iterable[str], model: str, names: Mapping[str, str]) -> Generator[Event, None, Reply]:
    """The events of a chat completion's chunks; returns the whole answer."""
    blocks, whole = _Blocks(model), _Completion()
    for data in _values(lines):
        answers.fail_if_error(data)
        yield from blocks.start(data.get("id"))
        try:
            said = whole.add(data)
        except (KeyError, TypeError, AttributeError, IndexError):
            raise bad_answer("the provider sent an event that cannot be read") from None
        if said:
            yield from blocks.text(said)
    if whole.finish is None:
        raise _broken_off()
    reply = answers.from_chat(exact.dumps(whole.message()), names)
    for _, start, end in exact.elements(reply.content):
        if reply.content.startswith('{"type":"tool_use"', start):
            yield from blocks.tool(reply.content[start:end])
    yield from blocks.end(reply)
    return reply


class _Completion:
    """A chat completion put together from its chunks."""

    def __init__(self) -> None:
        self.id, self.content, self.refusal = "", "", ""
        self.calls: dict[int, Json] = {}
        self.finish: str | None = None
        self.usage: Json | None = None

    def add(self, chunk: Json) -> str:
        """Takes a chunk; returns the text in it."""
        self.id = str(chunk.get("id") or self.id)
        self.usage = chunk.get("usage") or self.usage
        text = ""
        for choice in (chunk.get("choices") or [])[:1]:
            delta = choice.get("delta") or {}
            refusal = str(delta.get("refusal") or "")
            said = str(delta.get("content") or "")
            self.content, self.refusal = self.content + said, self.refusal + refusal
            text += said + refusal
            for part in delta.get("tool_calls") or []:
                made = part.get("function") or {}
                # A server without indexes sends whole calls, each with an id of its own.
                at = part.get("index")
                at = at if isinstance(at, int) else len(self.calls) if part.get("id") else len(self.calls) - 1
                call = self.calls.setdefault(at, {"id": "", "name": "", "arguments": ""})
                call["id"] = part.get("id") or call["id"]
                call["name"] += made.get("name") or ""
                call["arguments"] += made.get("arguments") or ""
            self.finish = choice.get("finish_reason") or self.finish
        return text

    def message(self) -> Json:
        calls = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for _, c in sorted(self.calls.items())
        ]
        message: Json = {"role": "assistant", "content": self.content or None}
        message |= {"refusal": self.refusal} if self.refusal else {}
        message |= {"tool_calls": calls} if calls else {}
        return {
            "id": self.id,
            "choices": [{"message": message, "finish_reason": self.finish}],
            "usage": self.usage,
        }


def responses(lines: Iterable[str], model: str, names: Mapping[str, str]) -> Generator[Event, None, Reply]:
    """The events of a response's events; returns the whole answer."""
    blocks = _Blocks(model)
    said: dict[tuple[object, object], str] = {}
    items: list[Json] = []
    for data in _values(lines):
        kind = data.get("type")
        given = data.get("response")
        answer: Json = given if isinstance(given, dict) else {}
        if kind in ("error", "response.failed"):
            answers.fail_if_error({**data, **answer, "status": "failed"})
        yield from blocks.start(answer.get("id"))
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            place = (data.get("output_index"), data.get("content_index"))
            if said and place not in said:
                yield from blocks.stop()
            said[place] = said.get(place, "") + str(data.get("delta") or "")
            yield from blocks.text(str(data.get("delta") or ""))
        elif kind == "response.output_item.done" and isinstance(data.get("item"), dict):
            items.append(data["item"])
            yield from _item(blocks, data, said, names)
        elif kind in ("response.completed", "response.incomplete"):
            raw = exact.dumps({**answer, "output": answer.get("output") or items})
            reply = answers.from_responses(raw, names)
            yield from blocks.end(reply)
            return reply
    raise _broken_off()


def _item(
    blocks: _Blocks, data: Json, said: Mapping[tuple[object, object], str], names: Mapping[str, str]
) -> Events:
    """What of a finished item was not passed on yet."""
    item = data["item"]
    try:
        if item.get("type") == "function_call":
            call = answers.tool_block(item["call_id"], item["name"], item.get("arguments"), names)
            yield from blocks.tool(call)
        elif item.get("type") == "message":
            for at, part in enumerate(item.get("content") or []):
                if (data.get("output_index"), at) not in said:
                    yield from blocks.stop()
                    yield from blocks.text(str(part.get("text") or part.get("refusal") or ""))
            yield from blocks.stop()
    except (KeyError, TypeError, AttributeError):
        raise bad_answer("the provider sent an event that cannot be read") from None


def _values(lines: Iterable[str]) -> Generator[Json, None, None]:
    for event in lines_to_events(lines):
        if event.data.strip() == "[DONE]":
            return
        try:
            data = exact.loads(event.data)
        except Malformed:
            raise bad_answer("the provider sent an event that cannot be read") from None
        if isinstance(data, dict):
            yield data


def _event(name: str, **data: object) -> Event:
    return Event(name, exact.dumps({"type": name, **data}))


def _broken_off() -> ProviderFailed:
    return ProviderFailed("the stream ended before the answer did", kind="connection", retryable=True)
