"""Where a transcript may be cut, and the choice (SPEC F5, F6; DESIGN 5, Cut).

First the set of allowed positions, an intersection of invariants; then the choice among them. A position is an index
into the messages at hand: the first message that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction.engine.types import Message


@dataclass(frozen=True, slots=True)
class Round:
    """Indices [start, end) of an assistant turn with tool calls and the messages that hold their results."""

    start: int
    end: int
    complete: bool


def rounds(messages: Sequence[Message]) -> list[Round]:
    """The tool rounds, oldest first. Calls and results pair by position: ids repeat in real transcripts.

    A round is open while results are missing and no assistant message has followed.
    """
    found: list[Round] = []
    i = 0
    while i < len(messages):
        if messages[i].role != "assistant":
            i += 1
            continue
        start = i
        wanted: list[str] = []
        while i < len(messages) and messages[i].role == "assistant":
            wanted += [str(b.data.get("id")) for b in messages[i].calls]
            i += 1
        if not wanted:
            continue
        end = i
        while i < len(messages) and messages[i].role == "user":
            for block in messages[i].results:
                if (answered := str(block.data.get("tool_use_id"))) in wanted:
                    wanted.remove(answered)
                    end = i + 1
            i += 1
        found.append(Round(start, end if not wanted or i < len(messages) else i, not wanted))
    return found


def allowed(messages: Sequence[Message]) -> list[int]:
    """Positions where one may cut: every call and its results on one side, never inside an open round, the kept part
    starts at an assistant turn or at a user message without results."""
    inside = {i for r in rounds(messages) for i in range(r.start + 1, r.end)}
    return [i for i in range(1, len(messages)) if i not in inside and _may_lead(messages, i)]


def _may_lead(messages: Sequence[Message], i: int) -> bool:
    if messages[i].role == "assistant":
        return messages[i - 1].role != "assistant"  # neighbours of one role are one turn (PROTOCOL R3)
    return not messages[i].results


def keep_line(messages: Sequence[Message], keep: int, keep_messages: int | None = None) -> int:
    """The first position whose newest part weighs at most `keep` tokens (or holds at most so many messages)."""
    if keep_messages is not None:
        return max(0, len(messages) - keep_messages)
    weight, at = 0, len(messages)
    while at > 0 and weight + messages[at - 1].tokens <= keep:
        at -= 1
        weight += messages[at].tokens
    return at


def choose(
    messages: Sequence[Message], *, keep: int, enough: int, worth: int, keep_messages: int | None = None
) -> int | None:
    """The position to cut at, or None when nothing worth it can be evicted.

    `keep`: tokens to keep verbatim; the cut goes *back* from there to an allowed position (F6). If the evicted part
    then weighs less than `enough` (what clears the trigger), the cut goes forward instead, at the latest before the
    last complete round. A cut that evicts at most `worth` tokens is not made.
    """
    last = latest(messages)
    places = [i for i in allowed(messages) if i <= last]
    if not places:
        return None
    before = [0]
    for message in messages:
        before.append(before[-1] + message.tokens)
    line = keep_line(messages, keep, keep_messages)
    back = max((i for i in places if i <= line), default=None)
    if back is not None and before[back] >= enough and before[back] > worth:
        return back
    forward = next((i for i in places if i > line and before[i] >= enough), None)
    best = forward if forward is not None else places[-1]
    return best if before[best] > worth else None


def latest(messages: Sequence[Message]) -> int:
    """The last position that a cut may take: an open round, the last complete one of the current exchange, and words
    of the user that nothing has answered stay whole."""
    found = rounds(messages)
    if found and not found[-1].complete and found[-1].end == len(messages):
        return found[-1].start
    ask = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].asks), 0)
    while ask > 0 and messages[ask - 1].asks and not messages[ask].results:
        ask -= 1
    return max([ask, *(r.start for r in found[-1:])])


def drop(messages: Sequence[Message], excess: int) -> int | None:
    """The position that drops at least `excess` tokens mechanically (SPEC F10): whole oldest exchanges, then whole
    rounds of the current one, never the last round. None when nothing can be dropped; the furthest position when even
    that is too little. The user's words of the current exchange are the caller's to carry over."""
    last = latest(messages)
    places = [i for i in allowed(messages) if i <= last]
    asks = [i for i in places if messages[i].asks]
    current = asks[-1] if asks else 0
    candidates = asks + [i for i in places if i > current and messages[i].role == "assistant"]
    if not candidates:
        return None
    weight, at = 0, 0
    for place in candidates:
        weight += sum(m.tokens for m in messages[at:place])
        at = place
        if weight >= excess:
            return place
    return candidates[-1]
