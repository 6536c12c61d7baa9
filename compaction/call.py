"""FLOW 4: hango calls the provider itself. Build → provider → on overflow the next rung → at most three attempts.

What may pass (429, 529, 5xx, no answer) is tried again inside an attempt, as the provider asks and until the deadline;
what may not is told at once. No transaction and no lock is held while the model writes.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from compaction import facts, ladder, outgoing, spending, turns
from compaction.engine import exact, tokens
from compaction.engine import overflow as rungs
from compaction.engine.errors import ContextError, ProviderFailed
from compaction.models import Turn
from compaction.providers import registry, sse
from compaction.providers.base import Call, Event, Provider, Reply
from sessions_app import append
from sessions_app.models import Session

log = logging.getLogger(__name__)

MOST_TRIES = 4  # of one attempt, while its failures may pass
FIRST_PAUSE_S = 0.5


@dataclass(slots=True)
class Called:
    """What became of a turn: its row, the answer (None: failed) and every attempt's rung and outcome."""

    turn: Turn
    reply: Reply | None = None
    built: outgoing.Built | None = None
    warnings: tuple[str, ...] = ()
    attempts: list[dict[str, Any]] = field(default_factory=list)


def run(session: Session, *, memory: str | None = None, max_tokens: int | None = None) -> Called:
    """One turn, to its answer or its failure. Raises `ProviderFailed` for an error that is no overflow; the turn is closed
    as failed then, and what was appended stays."""
    return sse.drain(stream(session, memory=memory, max_tokens=max_tokens, streamed=False))


def stream(
    session: Session, *, memory: str | None = None, max_tokens: int | None = None, streamed: bool = True
) -> Generator[Event, None, Called]:
    """The same as a generator of the provider's events. An attempt that is refused before its first content is never
    seen; a reader that leaves ends nothing: the answer is read to its end and stored."""
    provider = registry.provider()
    if provider is None:
        raise ProviderFailed(
            "no model provider is configured: set ANTHROPIC_API_KEY or OPENAI_API_KEY", kind="no-provider"
        )
    spending.check(session.project)
    built = outgoing.build(session, memory=memory, max_tokens=max_tokens)
    turn = built.turn
    deadline = time.monotonic() + settings.HANGO_CALL_TIMEOUT_S
    while True:
        attempt = _attempt(provider, built.body, deadline, streamed)
        try:
            reply = yield from attempt
        except ProviderFailed as error:
            kind = rungs.classify(
                provider=provider.name, status=error.http_status, type=error.kind, message=error.message
            )
            if kind not in rungs.CURABLE and kind is not rungs.Kind.BINDING:
                turns.fail(session, turn, outcome=error.kind or error.code)
                raise
            limit = rungs.limits_of(error.message).limit
            if limit:
                facts.learn_limit(session.model, limit, built.state.limits.window)
            climbed = ladder.climb(
                session, turn.number, ladder.Refusal(kind, error.http_status, error.kind, error.message)
            )
            if climbed.built is None and kind is rungs.Kind.BINDING:
                raise
        else:
            if not _overflowed(reply, built):
                return _answered(session, turn, built, reply)
            climbed = ladder.climb(session, turn.number, ladder.Refusal.by_stop())
        if climbed.built is None:
            turn.refresh_from_db()
            return Called(turn, attempts=turn.attempts)
        built = climbed.built


def _overflowed(reply: Reply, built: outgoing.Built) -> bool:
    """Whether the answer stopped because the window was full; some servers say so, some cut the input in silence and
    answer nothing (`overflow_errors`, E40)."""
    window = built.state.limits.window
    silent = rungs.classify(
        provider="",
        status=200,
        type=f"stop_reason={reply.stop_reason}",
        message="",
    )
    full = tokens.context_of(reply.usage) >= 0.99 * window and not reply.usage.get("output_tokens")
    return silent is rungs.Kind.OVERFLOW or (full and reply.stop_reason in ("max_tokens", "length"))


def _answered(session: Session, turn: Turn, built: outgoing.Built, reply: Reply) -> Called:
    spending.note(session.project, reply.usage)
    message = append.NewMessage("assistant", reply.blocks)
    body = exact.dumps({"content": reply.blocks, "stop_reason": reply.stop_reason, "usage": reply.usage})
    closed = turns.complete(
        session,
        turn.number,
        message,
        reply.stop_reason or "",
        reply.usage,
        body,
        own_call=True,
        raw=reply.raw,
    )
    return Called(closed.turn, reply, built, closed.warnings, closed.turn.attempts)


def _attempt(provider: Provider, body: str, deadline: float, streamed: bool) -> Generator[Event, None, Reply]:
    """One request, tried again while its failures may pass and nothing of an answer was passed on."""
    for tries in range(1, MOST_TRIES + 1):
        left = deadline - time.monotonic()
        try:
            call = Call(body, max(1.0, left), "chat")
            return (yield from _held(provider.stream(call))) if streamed else provider.send(call)
        except ProviderFailed as error:
            pause = max(error.retry_after_s or 0.0, random.uniform(0.5, 1.0) * FIRST_PAUSE_S * 2**tries)  # noqa: S311
            if not error.may_pass or error.passed_on or tries == MOST_TRIES or pause > left:
                raise
            log.warning("the provider failed (%s), again in %.1f s", error.kind, pause)
            time.sleep(pause)
    raise AssertionError("unreachable: the last try returns or raises")


def _held(events: Generator[Event, None, Reply]) -> Generator[Event, None, Reply]:
    """The events, held back until the first content: a refusal before it leaves nothing to take back."""
    held: list[Event] = []
    passing = False
    try:
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                yield from held
                reply: Reply = end.value
                return reply
            held.append(event)
            passing = passing or event.name == "content_block_start"
            if passing:
                while held:
                    yield held.pop(0)
    except ProviderFailed as error:
        error.passed_on = passing
        raise


def text(events: Iterator[Event]) -> Generator[bytes]:
    """Events as the bytes of an event stream. When the reader leaves, the flow goes on to its end, so that the answer is
    stored; a failure after the first content becomes an `error` event, as the provider would send it."""
    try:
        for event in events:
            yield bytes_of(event)
    except GeneratorExit:
        for _ in events:
            pass
    except ContextError as error:
        data = {"type": "error", "error": {"type": error.code, "message": error.detail}}
        yield bytes_of(Event("error", exact.dumps(data)))


class Chunks(Iterator[bytes]):
    """Chunks whose `close` is heard also by a generator that has not begun: a reader may leave before the first one."""

    def __init__(self, chunks: Generator[bytes]) -> None:
        self._chunks = chunks

    def __next__(self) -> bytes:
        return next(self._chunks)

    def close(self) -> None:
        next(self._chunks, None)
        self._chunks.close()


def bytes_of(event: Event) -> bytes:
    """One event as it stands in an event stream."""
    return f"event: {event.name}\ndata: {event.data}\n\n".encode()
