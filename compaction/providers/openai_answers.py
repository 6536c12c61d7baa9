"""Chat completions and responses as answers of the Messages API (PROTOCOL 7C)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compaction.engine import exact
from compaction.engine.errors import Malformed, ProviderFailed
from compaction.providers.base import Reply
from compaction.providers.failures import bad_answer, kind_of
from compaction.providers.openai_format import id_of

Json = dict[str, Any]

STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "model_length": "model_context_window_exceeded",
}
PASSING = frozenset(
    {"server_error", "rate_limit_exceeded", "overloaded", "api_error", "timeout", "vector_store_timeout"}
)


def from_chat(raw: str, names: Mapping[str, str]) -> Reply:
    """The answer of a chat completion; `names`: the tools' own names. Raises `ProviderFailed` for anything else."""
    try:
        data = exact.loads(raw)
        fail_if_error(data)
        choice = data["choices"][0]
        message = choice["message"]
        said = _text(message.get("content")) + str(message.get("refusal") or "")
        blocks = [text_block(said)] if said else []
        for index, call in enumerate(message.get("tool_calls") or []):
            made = call["function"]
            call_id = call.get("id") or f"{data.get('id')}-{index}"
            blocks.append(tool_block(call_id, made["name"], made.get("arguments"), names))
        stop = stop_of(choice.get("finish_reason"), blocks)
        stop = "refusal" if message.get("refusal") else stop
        return Reply.of(f"[{','.join(blocks)}]", stop, usage_of(data.get("usage")), raw)
    except (Malformed, LookupError, TypeError, AttributeError):
        raise bad_answer() from None


def from_responses(raw: str, names: Mapping[str, str]) -> Reply:
    """The answer of a response. Reasoning is not part of it, and stays in `raw` only (P3)."""
    try:
        data = exact.loads(raw)
        fail_if_error(data)
        blocks: list[str] = []
        refused = False
        for item in data["output"]:
            if item["type"] == "message":
                for part in item["content"]:
                    refused = refused or part["type"] == "refusal"
                    if text := part.get("text") or part.get("refusal"):
                        blocks.append(text_block(text))
            elif item["type"] == "function_call":
                blocks.append(tool_block(item["call_id"], item["name"], item.get("arguments"), names))
        reason = (
            (data.get("incomplete_details") or {}).get("reason")
            if data.get("status") == "incomplete"
            else "stop"
        )
        stop = "refusal" if refused else stop_of(reason, blocks)
        return Reply.of(f"[{','.join(blocks)}]", stop, usage_of(data.get("usage")), raw)
    except (Malformed, LookupError, TypeError, AttributeError):
        raise bad_answer() from None


def fail_if_error(data: Json) -> None:
    """Raises what an error is that came as an answer, or in the middle of one."""
    error = data.get("error")
    if not error and data.get("type") == "error":
        error = {k: v for k, v in data.items() if k != "type"}
    if not error and data.get("status") not in ("failed", "cancelled"):
        return
    kind = kind_of(error) or "stream-error"
    message = str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
    raise ProviderFailed(
        f"the provider broke off its answer: {kind}", kind=kind, retryable=kind in PASSING, message=message
    )


def text_block(text: str) -> str:
    return exact.dumps({"type": "text", "text": text})


def tool_block(call_id: str, name: str, arguments: object, names: Mapping[str, str]) -> str:
    """A tool call's JSON text, the arguments as the model wrote them; what is no object is wrapped (R17)."""
    head = exact.dumps({"type": "tool_use", "id": id_of(str(call_id)), "name": names.get(name, name)})
    return f'{head[:-1]},"input":{input_text(arguments)}}}'


def input_text(arguments: object) -> str:
    text = arguments if isinstance(arguments, str) else exact.dumps(arguments or {})
    if not text.strip():
        return "{}"
    try:
        for _ in exact.members(text):
            pass
        if isinstance(exact.loads(text), dict):
            return text.strip()
    except Malformed:
        pass
    return exact.dumps({"_raw": text})


def stop_of(reason: object, blocks: list[str]) -> str:
    """The stop reason; a call decides it, since some servers say `stop` beside one."""
    called = any(block.startswith('{"type":"tool_use"') for block in blocks)
    stop = STOPS.get(str(reason), "end_turn")
    return "tool_use" if called and stop == "end_turn" else stop


def usage_of(usage: object) -> Json:
    """Usage of either API; OpenAI counts cached tokens among the input's, here the three are disjoint."""
    if not isinstance(usage, dict):
        return {}
    total = _tokens(usage, "prompt_tokens", "input_tokens")
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    read = _tokens(details, "cached_tokens") or _tokens(usage, "prompt_cache_hit_tokens")
    written = _tokens(details, "cache_write_tokens")
    read = min(read, total)
    written = min(written, total - read)
    return {
        "input_tokens": total - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": _tokens(usage, "completion_tokens", "output_tokens"),
    }


def _tokens(usage: Json, *keys: str) -> int:
    found = (usage.get(key) for key in keys)
    return next((v for v in found if isinstance(v, int) and not isinstance(v, bool) and v >= 0), 0)


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content)
    return str(content or "")
