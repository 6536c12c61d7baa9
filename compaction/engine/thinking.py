"""Thinking that a model binds to what was sent before it (PROTOCOL R43).

On such a model a thinking block is valid only while system, tools and every earlier message are what they were when it
was produced; kept blocks are one unbroken run, and what was dropped stays dropped (section 2). Thinking itself and cache
marks are no part of the comparison.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from compaction.engine.tokens import Estimator, message_tokens
from compaction.engine.types import THINKING, Block, Message, OutgoingRequest


def sent_digest(request: OutgoingRequest) -> str:
    """Digest of everything that an answer to this request is bound to."""
    running = _fixed(request)
    for message in request.messages:
        _add(running, message.role, message.blocks)
    return running.hexdigest()


def cut_before(request: OutgoingRequest, produced_on: Mapping[int, str]) -> int:
    """The seq before which thinking has to go: after the last message whose thinking was bound to something else.

    `produced_on`: by seq, the digest of what had been sent when the message was produced ('' or missing: unknown).
    """
    running, cut = _fixed(request), 0
    for message in request.messages:
        if any(b.kind in THINKING for b in message.blocks):
            known = produced_on.get(message.sources[0], "") if len(message.sources) == 1 else ""
            if known != running.hexdigest():
                cut = message.sources[-1] + 1
        _add(running, message.role, message.blocks)
    return cut


def without_thinking(message: Message, estimator: Estimator) -> Message:
    """The message without its thinking; the same object when it has none."""
    kept = tuple(b for b in message.blocks if b.kind not in THINKING)
    if len(kept) == len(message.blocks):
        return message
    return replace(message, blocks=kept, tokens=message_tokens(estimator, kept))


def _fixed(request: OutgoingRequest) -> hashlib._Hash:
    running = hashlib.sha256()
    _add(running, "tools", request.tools)
    _add(running, "system", (*request.system, *request.memory))
    return running


def _add(running: hashlib._Hash, place: str, blocks: Sequence[Block]) -> None:
    for block in blocks:
        if block.kind not in THINKING:
            running.update(f"{place}\n{block.raw}\n".encode("utf-8", "surrogatepass"))
