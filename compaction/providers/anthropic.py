"""Anthropic by its official SDK. Its own retries, spans and long time limits are off: hango retries and traces.

Bodies go out as the exact text that was built (prompt caches and signed thinking compare bytes), and the answer's
content is kept as the text that came.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import anthropic
import httpx2

from compaction.engine import exact
from compaction.engine.errors import Malformed, ProviderFailed
from compaction.providers import deadline, sse
from compaction.providers.base import Call, Capabilities, Event, Reply
from compaction.providers.failures import bad_answer, failed, no_answer

LONGEST_PLAIN = (
    21_333  # max_tokens; a longer answer is streamed, since idle connections are cut (PROTOCOL R9)
)


class AnthropicProvider:
    """The Messages API at the operator's address (never one from a request)."""

    name = "anthropic"
    capabilities = Capabilities(prompt_caching=True, counts_tokens=True)

    def __init__(self, api_key: str, base_url: str = "") -> None:
        # open_telemetry: SDK 2.x emits spans and sends `traceparent` to the provider unless told not to.
        self._client = anthropic.Anthropic(
            api_key=api_key, base_url=base_url or None, max_retries=0, open_telemetry=False
        )
        deadline.bind(self._client)

    def send(self, call: Call) -> Reply:
        if call.max_tokens > LONGEST_PLAIN:
            return sse.drain(self.stream(call))
        return _reply(self._post("/v1/messages", call, call.body))

    def stream(self, call: Call) -> Generator[Event, None, Reply]:
        body = exact.with_member(call.body, "stream", True)
        until = time.monotonic() + call.timeout_s
        stream = self._sent("/v1/messages", call, body, stream=True)
        try:
            return (yield from sse.events(deadline.each(until, stream.response.iter_lines())))
        except httpx2.HTTPError as error:
            raise no_answer(error) from None
        finally:
            stream.response.close()

    def count(self, call: Call) -> int:
        body = exact.loads(call.body)
        kept = {
            k: v
            for k, v in body.items()
            if k in ("model", "messages", "system", "tools", "tool_choice", "thinking")
        }
        answer = exact.loads(self._post("/v1/messages/count_tokens", call, exact.dumps(kept)))
        tokens = answer.get("input_tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            raise ProviderFailed("the provider's count is no number", kind="bad-answer")
        return tokens

    def _post(self, path: str, call: Call, body: str) -> str:
        return str(self._sent(path, call, body).text)

    def _sent(self, path: str, call: Call, body: str, *, stream: bool = False) -> Any:
        """The raw answer, or with `stream` the SDK's stream, of a body that is text already."""
        try:
            with deadline.until(time.monotonic() + call.timeout_s):
                return self._client.post(
                    path,
                    cast_to=object if stream else httpx2.Response,
                    content=body.encode(),
                    options={
                        "headers": {"X-Hango-Purpose": call.purpose, "Content-Type": "application/json"},
                        "timeout": call.timeout_s,
                        "follow_redirects": False,  # the key and the transcript go where the operator said
                    },
                    stream=stream,
                    stream_cls=anthropic.Stream[Any] if stream else None,
                )
        except anthropic.APIStatusError as error:
            raise failed(error.status_code, error.response.text, error.response.headers) from None
        except (
            anthropic.APIConnectionError,
            httpx2.HTTPError,
        ) as error:  # the latter over the text of an error
            raise no_answer(error) from None
        except anthropic.AnthropicError as error:
            raise ProviderFailed(f"the SDK failed: {type(error).__name__}", kind="sdk") from None


def _reply(text: str) -> Reply:
    try:
        spans = {key: (value, text[start:end]) for key, value, start, end in exact.members(text)}
        stop_reason, usage = spans["stop_reason"][0], spans["usage"][0]
        return Reply.of(spans["content"][1], stop_reason, usage if isinstance(usage, dict) else {})
    except (Malformed, KeyError, TypeError, AttributeError):
        raise bad_answer() from None
