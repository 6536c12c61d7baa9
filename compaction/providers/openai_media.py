"""Content blocks of the Messages API as parts of OpenAI messages: text, images, files, and what can only be told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compaction.engine import exact
from compaction.engine.types import THINKING, Block

Json = dict[str, Any]


def text_of(blocks: Iterable[Block]) -> str:
    """The blocks as one text; empty texts leave nothing."""
    return "\n\n".join(text for block in blocks if (text := told(block)))


def told(block: Block) -> str:
    """One block as text."""
    data, kind = block.data, block.kind
    if kind == "text":
        text = block.text
    elif kind in THINKING:
        text = ""
    elif kind == "document":
        text = (
            _document_text(data)
            or f"[document {data.get('title') or ''}".rstrip() + " is not available here]"
        )
    elif kind == "image":
        text = "[image is not available here]"
    elif kind in ("server_tool_use", "mcp_tool_use"):
        text = f"[called {data.get('name')}: {exact.dumps(data.get('input'))}]"
    elif kind == "search_result":
        parts = "\n".join(str(part.get("text", "")) for part in data.get("content") or [])
        text = f"{data.get('title', '')}\n{data.get('source', '')}\n{parts}".strip()
    else:
        content = data["content"] if kind.endswith("_tool_result") and "content" in data else data
        text = f"[{kind}: {exact.dumps(_readable(content))}]"
    return text


def attached(block: Block) -> bool:
    """An image or a file, which a tool message cannot hold; a document of text can be told there."""
    return block.kind in ("image", "document") and _source(block).get("type") in ("base64", "url")


def for_chat(blocks: Iterable[Block]) -> str | list[Json]:
    """The content of a user message: a string when it is text alone, which every server takes."""
    parts = [part for block in blocks if (part := _chat_part(block))]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def for_responses(blocks: Iterable[Block]) -> list[Json]:
    return [part for block in blocks if (part := _responses_part(block))]


def _chat_part(block: Block) -> Json | None:
    if url := _image_url(block):
        return {"type": "image_url", "image_url": {"url": url}}
    if file := _file(block):
        return {"type": "file", "file": file}
    text = told(block)
    return {"type": "text", "text": text} if text else None


def _responses_part(block: Block) -> Json | None:
    if url := _image_url(block):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if file := _file(block):
        return {"type": "input_file", **file}
    if block.kind == "document" and (url := _source(block).get("url")):
        return {"type": "input_file", "file_url": url}
    text = told(block)
    return {"type": "input_text", "text": text} if text else None


def _image_url(block: Block) -> str | None:
    source = _source(block)
    if block.kind != "image":
        return None
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return source.get("url")


def _file(block: Block) -> Json | None:
    """A document that is bytes."""
    source = _source(block)
    if block.kind != "document" or source.get("type") != "base64":
        return None
    name = str(block.data.get("title") or "document.pdf")
    return {"filename": name, "file_data": f"data:{source.get('media_type')};base64,{source.get('data')}"}


def _document_text(data: Json) -> str:
    source = data.get("source") or {}
    content = source.get("data") if source.get("type") == "text" else source.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content)
    url = f"[document at {source['url']}]" if source.get("url") else ""
    title = data.get("title")
    return f"{title}\n{content}" if title and content else content or url


def _source(block: Block) -> Json:
    source = block.data.get("source")
    return source if isinstance(source, dict) else {}


def _readable(value: Any) -> Any:
    """The value without what only its provider can read."""
    if isinstance(value, dict):
        return {
            k: _readable(v)
            for k, v in value.items()
            if not k.startswith("encrypted_") and k != "cache_control"
        }
    return [_readable(v) for v in value] if isinstance(value, list) else value
