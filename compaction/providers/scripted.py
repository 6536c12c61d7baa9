"""A provider that plays a script, for tests: replies and errors in order, and a log of every call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

from compaction.engine import exact
from compaction.engine.errors import ProviderFailed
from compaction.providers.base import Call, Capabilities, Event, Reply

DEFAULT = "Synthetic summary of the earlier turns."
USAGE = {"input_tokens": 100, "output_tokens": 10}


class ScriptedProvider:
    """`play` queues what the next calls get; an empty queue answers `DEFAULT`. `during` runs while a call is open."""

    name = "scripted"
    capabilities = Capabilities(prompt_caching=True, counts_tokens=True)

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.counts: list[Call] = []
        self._queue: deque[Reply | ProviderFailed] = deque()
        self.during: Callable[[Call], None] | None = None
        self.counted: int | None = None

    def play(self, *replies: str | Reply | ProviderFailed) -> None:
        self._queue.extend(Reply(r, "end_turn", dict(USAGE)) if isinstance(r, str) else r for r in replies)

    def reset(self) -> None:
        self.calls.clear()
        self.counts.clear()
        self._queue.clear()
        self.during = None
        self.counted = None

    def send(self, call: Call) -> Reply:
        self.calls.append(call)
        if self.during is not None:
            during, self.during = self.during, None
            during(call)
        reply = self._queue.popleft() if self._queue else Reply(DEFAULT, "end_turn", dict(USAGE))
        if isinstance(reply, ProviderFailed):
            raise reply
        return reply

    def stream(self, call: Call) -> Generator[Event, None, Reply]:
        reply = self.send(call)
        start = {
            "type": "message_start",
            "message": {"role": "assistant", "content": [], "usage": reply.usage},
        }
        yield Event("message_start", exact.dumps(start))
        for index, block in enumerate(exact.loads(reply.blocks)):
            yield Event(
                "content_block_start",
                exact.dumps({"type": "content_block_start", "index": index, "content_block": block}),
            )
            yield Event("content_block_stop", exact.dumps({"type": "content_block_stop", "index": index}))
        delta = {"type": "message_delta", "delta": {"stop_reason": reply.stop_reason}, "usage": {}}
        yield Event("message_delta", exact.dumps(delta))
        yield Event("message_stop", exact.dumps({"type": "message_stop"}))
        return reply

    def count(self, call: Call) -> int:
        self.counts.append(call)
        if self.counted is None:
            raise ProviderFailed("the scripted provider counts nothing", kind="no-count")
        return self.counted


provider = ScriptedProvider()
