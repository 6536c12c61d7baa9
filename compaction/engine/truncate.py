"""Old tool arguments and results → preview + size note (SPEC F4), and previews of giant blocks (the last rung).

Always on a copy, and always the same for the same message and limit: what was cut stays cut, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compaction.engine import exact
from compaction.engine.tokens import Estimator, message_tokens
from compaction.engine.types import Block, Message

PREVIEW_TOKENS = 60  # what is left of an old argument or result, note not counted
MIN_BLOCK_LIMIT = 100  # tokens; a preview of a giant block is never smaller
NOTE_TOKENS = 100  # a size note's own weight, on the high side: most of it is the path
MOST_PER_CHARACTER = 4  # tokens: no tokenizer needs more than one for each of its bytes


def old_message(message: Message, limit: int, estimator: Estimator, where: str) -> tuple[Message, int]:
    """(the message with tool arguments and results of more than `limit` tokens cut to a preview, how many were cut).

    `where` names the file that holds the whole text, for the note.
    """
    return _rewritten(
        message, {"tool_use", "tool_result"}, limit, min(limit, PREVIEW_TOKENS), estimator, where
    )


def giant_message(message: Message, limit: int, estimator: Estimator, where: str) -> tuple[Message, int]:
    """(the message with every text, argument and result of more than `limit` tokens cut to about `limit`, how many)."""
    return _rewritten(message, {"tool_use", "tool_result", "text"}, limit, limit, estimator, where)


def block_limit(messages: Sequence[Message], excess: int, estimator: Estimator) -> int:
    """The largest limit for `giant_message` that wins at least `excess` tokens over all messages, by the estimate; never
    under `MIN_BLOCK_LIMIT`, even when that is not enough."""
    sizes = sorted((estimator.estimate(text) for m in messages for text in _texts(m)), reverse=True)
    low, high = MIN_BLOCK_LIMIT, max([MIN_BLOCK_LIMIT, *sizes])
    while low < high:
        middle = (low + high + 1) // 2
        won = sum(size - middle - NOTE_TOKENS for size in sizes if size > middle + NOTE_TOKENS)
        low, high = (middle, high) if won >= excess else (low, middle - 1)
    return low


def preview(text: str, tokens: int, estimator: Estimator, where: str) -> str:
    """Head and tail of the text within about `tokens`, with a note of what was cut and where the whole text stands."""
    weight = estimator.estimate(text)
    chars = max(8, len(text) * tokens // max(1, weight))
    shown = _ends(text, chars)
    while chars > 8 and estimator.estimate("".join(shown)) > tokens:
        chars = chars * 3 // 4
        shown = _ends(text, chars)
    head, tail = shown
    return f"{head}\n[… {len(text) - len(head) - len(tail)} of {len(text)} characters cut (about {weight} tokens); the whole text is in {where} …]\n{tail}"


def _ends(text: str, chars: int) -> tuple[str, str]:
    head = chars * 2 // 3
    return text[:head], text[len(text) - (chars - head) :]


def _rewritten(
    message: Message, kinds: set[str], limit: int, shown: int, estimator: Estimator, where: str
) -> tuple[Message, int]:
    if message.tokens <= limit:
        return message, 0
    count = 0

    def shorter(text: str) -> str:
        nonlocal count
        if len(text) * MOST_PER_CHARACTER <= limit or (weight := estimator.estimate(text)) <= limit:
            return text
        cut = preview(exact.well_formed(text), shown, estimator, where)
        if estimator.estimate(cut) >= weight:
            return text
        count += 1
        return cut

    blocks = []
    for block in message.blocks:
        before = count
        data = _shortened(block, shorter) if block.kind in kinds else block.data
        blocks.append(block if count == before else replace(Block.of(data), marked=block.marked))
    if not count:
        return message, 0
    weight = message_tokens(estimator, tuple(blocks))
    return replace(message, blocks=tuple(blocks), tokens=weight, as_text=message.as_text), count


def _shortened(block: Block, shorter: Any) -> dict[str, Any]:
    """The block's data with its long strings shortened; structure, ids, names and flags stay."""
    data = dict(block.data)
    if block.kind == "text":
        data["text"] = shorter(block.text)
    elif block.kind == "tool_use":
        data["input"] = exact.mapped(data.get("input"), shorter)
    else:
        content = data.get("content")
        if isinstance(content, str):
            data["content"] = shorter(content)
        elif isinstance(content, list):
            data["content"] = [
                {**b, "text": shorter(b["text"])} if isinstance(b.get("text"), str) else b for b in content
            ]
    return data


def _texts(message: Message) -> list[str]:
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    for block in message.blocks:
        if block.kind in {"text", "tool_use", "tool_result"}:
            _shortened(block, note)
    return found
