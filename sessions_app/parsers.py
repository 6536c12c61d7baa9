"""The request body, with the exact text of its parts kept beside the values."""

from __future__ import annotations

from typing import IO, Any

from rest_framework.parsers import BaseParser

from compaction.engine import exact
from compaction.engine.errors import Malformed


class Body(dict[str, Any]):
    """A JSON object's members; `texts` holds each member's exact JSON text, `source` the whole."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.texts: dict[str, str] = {}
        for key, value, start, end in exact.members(text):
            self[key] = value
            self.texts[key] = text[start:end]


def body_of(text: str) -> Body:
    """The body's members. Raises `Malformed` when it is not one JSON object."""
    stripped = text.strip(" \t\r\n")
    if not stripped:
        return Body("{}")
    if not isinstance(_loads(stripped), dict):
        raise Malformed("the body has to be a JSON object")
    return Body(stripped)


def _loads(text: str, reserve: int = 100) -> Any:
    """Decodes at a deeper stack than anything that reads the text later, so that what is accepted here is never nested too
    deeply for a build or a worker."""
    return _loads(text, reserve - 1) if reserve else exact.loads(text)


class ExactJSONParser(BaseParser):
    """Reads strict UTF-8 JSON. Unlike DRF's own parser it knows the exact text of each member."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Body:
        # Not `stream`: only Django's own `body` holds the size limit.
        raw: bytes = parser_context["request"].body
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Malformed(f"the body is not UTF-8: byte {error.start}") from None
        return body_of(text)
