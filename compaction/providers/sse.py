"""Server-sent events of the Messages API: read one by one, and put together into the whole answer."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

from compaction.engine import exact
from compaction.engine.errors import Malformed, ProviderFailed
from compaction.providers.base import Event, Reply

Whole = TypeVar("Whole")


def lines_to_events(lines: Iterable[str]) -> Iterator[Event]:
    """The events of an event stream's lines."""
    name, data = "", list[str]()
    for line in lines:
        line = line.rstrip("\r\n")
        if not line:
            if data:
                yield Event(name or "message", "\n".join(data))
            name, data = "", []
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    if data:
        yield Event(name or "message", "\n".join(data))


def events(lines: Iterable[str]) -> Generator[Event, None, Reply]:
    """Passes the events on and returns the whole answer. Raises `ProviderFailed` for an `error` event, and for a stream
    that ends before its message does: half an answer is none."""
    whole = Accumulated()
    for event in lines_to_events(lines):
        whole.add(event)
        yield event
    return whole.reply()


def drain(stream: Generator[Event, None, Whole]) -> Whole:
    """What a stream returns at its end, when nobody wants its events."""
    while True:
        try:
            next(stream)
        except StopIteration as end:
            whole: Whole = end.value
            return whole


class Accumulated:
    """An answer put together from its events."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {}
        self.stop_reason: str | None = None
        self.ended = False

    def add(self, event: Event) -> None:
        try:
            data = exact.loads(event.data)
            getattr(self, f"_{event.name}", self._other)(data)
        except (Malformed, KeyError, TypeError, IndexError, AttributeError):
            raise ProviderFailed(
                "the provider sent an event that cannot be read", kind="bad-answer", retryable=True
            ) from None

    def reply(self) -> Reply:
        if not self.ended:
            raise ProviderFailed("the stream ended before the answer did", kind="connection", retryable=True)
        return Reply.of(exact.dumps(self.blocks), self.stop_reason, self.usage)

    def _message_start(self, data: dict[str, Any]) -> None:
        self.usage |= data["message"].get("usage") or {}

    def _content_block_start(self, data: dict[str, Any]) -> None:
        self.blocks.append(dict(data["content_block"]))

    def _content_block_delta(self, data: dict[str, Any]) -> None:
        block, delta = self.blocks[data["index"]], data["delta"]
        kind = delta["type"]
        if kind == "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        elif kind == "input_json_delta":
            block["_json"] = block.get("_json", "") + delta["partial_json"]
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        elif kind == "compaction_delta":
            block["content"] = delta["content"]

    def _content_block_stop(self, data: dict[str, Any]) -> None:
        block = self.blocks[data["index"]]
        if "_json" in block:
            text = block.pop("_json")
            block["input"] = exact.loads(text) if text.strip() else {}

    def _message_delta(self, data: dict[str, Any]) -> None:
        self.stop_reason = data["delta"].get("stop_reason")
        self.usage |= {k: v for k, v in (data.get("usage") or {}).items() if v is not None}

    def _message_stop(self, data: dict[str, Any]) -> None:
        self.ended = True

    def _error(self, data: dict[str, Any]) -> None:
        error = data.get("error") or {}
        kind = str(error.get("type", ""))
        raise ProviderFailed(
            f"the provider broke off its answer: {kind}",
            kind=kind[:60] or "stream-error",
            retryable=kind in ("overloaded_error", "api_error", "rate_limit_error", "timeout_error"),
            message=str(error.get("message", "")),
        )

    def _other(self, data: dict[str, Any]) -> None:
        """A ping, or an event of a kind that is not known yet."""
