"""A whole session as JSON Lines: what was said, what the model was shown, and what was made of it.

One object a line, told apart by `type`: first the session, then frames, messages, turns and compactions, last an `end` with
their numbers, so that a stream that broke off is known as one. Read page by page: the memory does not grow with the
session. What is added after the export began is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compaction import gather, shapes
from compaction.models import Frame, Turn
from sessions_app.http import Raw, text_of
from sessions_app.models import Message, Session
from sessions_app.views import shown

FORMAT = 1
PAGE = 500  # rows read at a time


def lines(session: Session) -> Iterator[str]:
    """The export's lines, each with its newline."""
    last_seq = session.messages.order_by("-seq").values_list("seq", flat=True).first()
    last_turn = session.turns.order_by("-number").values_list("number", flat=True).first()
    compactions = list(session.compactions_made.order_by("created_at").values_list("pk", flat=True))
    through, turns_through = -1 if last_seq is None else last_seq, last_turn or 0
    yield _line("session", {"format": FORMAT} | shown(session))
    frames = session.turns.filter(number__lte=turns_through).values("frame").distinct()
    for frame in Frame.objects.filter(pk__in=frames).order_by("pk").iterator(PAGE):
        yield _line("frame", {"id": frame.pk, "body": Raw(frame.body)})
    for first in range(0, through + 1, PAGE):
        rows = session.messages.filter(seq__gte=first, seq__lt=min(first + PAGE, through + 1)).order_by("seq")
        yield from (_line("message", _message(row)) for row in rows)
    for first in range(1, turns_through + 1, PAGE):
        numbers = {"number__gte": first, "number__lt": min(first + PAGE, turns_through + 1)}
        yield from (_line("turn", _turn(row)) for row in session.turns.filter(**numbers).order_by("number"))
    for pk in compactions:
        row = session.compactions_made.filter(pk=pk).first()
        if row is not None:
            yield _line("compaction", shapes.compaction(row))
    yield _line("end", {"messages": through + 1, "turns": turns_through, "compactions": len(compactions)})


def _line(kind: str, members: dict[str, Any]) -> str:
    return text_of({"type": kind} | members) + "\n"


def _message(row: Message) -> dict[str, Any]:
    return {
        "seq": row.seq, "role": row.role, "content": Raw(row.content), "client_id": row.client_id, "pinned": row.pinned,
        "tokens": row.tokens, "digest": row.digest, "created_at": row.created_at.isoformat(),
    }  # fmt: skip


def _turn(row: Turn) -> dict[str, Any]:
    view = gather.view_of(row)
    return {
        "number": row.number, "status": row.status, "rung": row.rung, "frame": row.frame_id, "compaction": view.compaction,
        "kept_from": view.kept_from, "first_seq": view.first_seq, "last_seq": view.last_seq,
        "args_cut_before": view.args_cut_before, "block_limit": view.block_limit, "thinking_cut_before": view.thinking_cut_before,
        "max_tokens": row.max_tokens, "digest": row.digest, "input_tokens": row.input_tokens, "usage": row.usage,
        "stop_reason": row.stop_reason or None, "attempts": row.attempts, "created_at": row.created_at.isoformat(),
    }  # fmt: skip
