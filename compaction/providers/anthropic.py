"""Anthropic by its official SDK. Its own retries, spans and long time limits are off: the queue retries, hango traces."""

from __future__ import annotations

import math

import anthropic

from compaction.engine.errors import ProviderFailed
from compaction.providers.base import Call, Reply

MAY_PASS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class AnthropicProvider:
    """The Messages API at the operator's address (never one from a request)."""

    name = "anthropic"

    def __init__(self, api_key: str, base_url: str = "") -> None:
        # open_telemetry: SDK 2.x emits spans and sends `traceparent` to the provider unless told not to.
        self._client = anthropic.Anthropic(
            api_key=api_key, base_url=base_url or None, max_retries=0, open_telemetry=False
        )

    def complete(self, call: Call) -> Reply:
        try:
            message = self._client.messages.create(
                model=call.model,
                system=call.system,
                messages=list(call.messages),  # type: ignore[arg-type]
                max_tokens=min(call.max_tokens, 21_333),  # more needs streaming (PROTOCOL R9)
                timeout=call.timeout_s,
                extra_headers={"X-Hango-Purpose": call.purpose},
            )
        except anthropic.APIStatusError as error:
            raise _failed(error) from None
        except anthropic.APIConnectionError as error:
            raise ProviderFailed(
                f"no answer from the provider: {type(error).__name__}", kind="connection", retryable=True
            ) from None
        except anthropic.AnthropicError as error:
            raise ProviderFailed(f"the SDK failed: {type(error).__name__}", kind="sdk") from None
        return Reply(
            text="".join(b.text for b in message.content if b.type == "text"),
            stop_reason=message.stop_reason,
            usage=message.usage.to_dict(),
            called_tool=any(b.type == "tool_use" for b in message.content),
        )


def _failed(error: anthropic.APIStatusError) -> ProviderFailed:
    """Status and the provider's error type; never its text, which may quote the prompt."""
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    kind = str(inner.get("type", "")) if isinstance(inner, dict) else ""
    return ProviderFailed(
        f"the provider answered {error.status_code} {kind}".strip(),
        kind=kind[:60] or f"http-{error.status_code}",
        http_status=error.status_code,
        retry_after_s=retry_after(
            error.response.headers.get("retry-after-ms"), error.response.headers.get("retry-after")
        ),
        retryable=error.status_code in MAY_PASS,
    )


def retry_after(milliseconds: str | None, seconds: str | None) -> float | None:
    """Seconds that the provider asks to wait; None for nothing that can be read."""
    for text, scale in ((milliseconds, 0.001), (seconds, 1.0)):
        try:
            value = float(text or "") * scale
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            return value
    return None
