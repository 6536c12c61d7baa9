"""The summary call on the warm prefix: the conversation as the model was just sent it, plus one instruction at its end.

Its system, tools and messages are in the provider's prompt cache, so that they cost a tenth; and nothing has to be
rendered. What the fenced form says of the transcript holds here of the conversation above.
"""

from __future__ import annotations

from dataclasses import replace

from compaction.engine import briefing
from compaction.engine.types import Block, OutgoingMessage, OutgoingRequest

_OPENING = """\
[From the runtime of this session, not from the user: hand-over notes are due.] Leave the work for one answer.

"""
_MODES: dict[briefing.Mode, str] = {
    "create": "The conversation above is the older part of the session; below, it is called the transcript.\n",
    "update": """\
The first message above holds the notes so far; what comes after it is called the transcript below. Bring the notes up to \
date: keep what is still true in its exact words, move finished work to "Done", delete what was contradicted; where the \
two differ the transcript wins. Do not drop a fact because it is old.
""",
}
_END = 'Write the notes now. Start with "## Goal"; text only, no tool call.\n'


def instruction(mode: briefing.Mode, *, focus: str = "", max_tokens: int) -> str:
    """The text that stands after the conversation. Arguments as in `briefing.instructions`."""
    form = briefing.form(max_tokens)
    return (
        _OPENING
        + briefing.FRAME
        + _MODES[mode]
        + briefing.RULES
        + form
        + briefing.focus_on(focus)
        + "\n"
        + _END
    )


def request(prefix: OutgoingRequest, texts: list[str], max_tokens: int) -> OutgoingRequest:
    """The request: everything of `prefix` as it was sent, and the texts in a user message at its end."""
    messages = prefix.messages
    if messages and not messages[-1].sources:  # hango's own close of a request that ended on an answer
        messages = messages[:-1]
    asked = tuple(Block.text_of(text) for text in texts)
    last = messages[-1] if messages else None
    if last is not None and last.role == "user":
        messages = (*messages[:-1], replace(last, blocks=(*last.blocks, *asked), as_text=False))
    else:
        messages = (*messages, OutgoingMessage("user", asked))
    return replace(prefix, messages=messages, max_tokens=max_tokens)
