"""A provider that plays a script, for tests: replies and errors in order, and a log of every call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from compaction.engine.errors import ProviderFailed
from compaction.providers.base import Call, Reply

DEFAULT = "Synthetic summary of the earlier turns."


class ScriptedProvider:
    """`play` queues what the next calls get; an empty queue answers `DEFAULT`. `during` runs while a call is open."""

    name = "scripted"

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._queue: deque[Reply | ProviderFailed] = deque()
        self.during: Callable[[Call], None] | None = None

    def play(self, *replies: str | Reply | ProviderFailed) -> None:
        self._queue.extend(
            Reply(r, "end_turn", {"input_tokens": 100, "output_tokens": 10}) if isinstance(r, str) else r
            for r in replies
        )

    def reset(self) -> None:
        self.calls.clear()
        self._queue.clear()
        self.during = None

    def complete(self, call: Call) -> Reply:
        self.calls.append(call)
        if self.during is not None:
            during, self.during = self.during, None
            during(call)
        reply = (
            self._queue.popleft()
            if self._queue
            else Reply(DEFAULT, "end_turn", {"input_tokens": 100, "output_tokens": 10})
        )
        if isinstance(reply, ProviderFailed):
            raise reply
        return reply


provider = ScriptedProvider()
