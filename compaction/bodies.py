"""What the bodies of builds and of hango's own turns hold beside their plain fields, checked."""

from __future__ import annotations

from rest_framework.exceptions import ValidationError

from compaction.engine import exact
from compaction.engine.errors import Invalid
from sessions_app import append, serializers
from sessions_app.parsers import Body


def messages(body: Body) -> list[append.NewMessage]:
    """The messages to append first; none when the field is left out or null."""
    return append.parse(body.texts["messages"]) if body.get("messages") is not None else []


def memory(body: Body) -> str | None:
    """The memory blocks' JSON text, '' for none, None for the last turn's."""
    if "memory" not in body:
        return None
    value = body["memory"]
    if value is None or value in ("", []) or (isinstance(value, str) and not value.strip()):
        return ""
    if isinstance(value, str):
        return f'[{{"type":"text","text":{body.texts["memory"]}}}]'
    try:
        serializers.text_blocks(value)
    except ValidationError as error:
        detail = "; ".join(str(part) for part in error.detail)
        raise Invalid(f"/memory: {detail}", errors=[{"pointer": "/memory", "detail": detail}]) from None
    text = body.texts["memory"]
    said = [text[start:end] for block, start, end in exact.elements(text) if block["text"].strip()]
    return f"[{','.join(said)}]" if said else ""


def max_tokens(body: Body) -> int | None:
    """Tokens of the answer, None for the session's own."""
    value = body.get("max_tokens")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= serializers.MOST_TOKENS:
        raise Invalid(
            "/max_tokens",
            errors=[{"pointer": "/max_tokens", "detail": "has to be a whole number, 1 or more"}],
        )
    return value
