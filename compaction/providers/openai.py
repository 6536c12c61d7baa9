"""OpenAI and servers that speak its language, by the official SDK. Requests and answers are converted at the edge.

The SDK's own retries are off: hango retries. Breakpoints of prompt caches do not exist here; prefixes are cached by
themselves.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import httpx2
import openai

from compaction.engine import exact
from compaction.engine.errors import Malformed, ProviderFailed
from compaction.providers import deadline
from compaction.providers import openai_answers as answers
from compaction.providers import openai_format as form
from compaction.providers import openai_stream as streams
from compaction.providers.base import Call, Capabilities, Event, Reply
from compaction.providers.failures import bad_answer, failed, no_answer

Api = Literal["chat", "responses"]
BASE_URL = "https://api.openai.com/v1"
COUNTED = ("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls")


class OpenAIProvider:
    """One of the two APIs at the operator's address (never one from a request)."""

    name = "openai"

    def __init__(self, api_key: str, base_url: str = "", api: Api = "chat") -> None:
        self._api = api
        base_url = base_url or BASE_URL
        host = urlsplit(base_url).hostname or ""
        self._official = host == "api.openai.com" or host.endswith(".api.openai.com")
        self._client = openai.OpenAI(api_key=api_key, base_url=base_url, max_retries=0)
        deadline.bind(self._client)
        self.capabilities = Capabilities(prompt_caching=False, counts_tokens=api == "responses")

    def send(self, call: Call) -> Reply:
        text = str(self._sent(self._path, call, self._asked(call)).text)
        names = form.names_in(call.data)
        return (
            answers.from_responses(text, names)
            if self._api == "responses"
            else answers.from_chat(text, names)
        )

    def stream(self, call: Call) -> Generator[Event, None, Reply]:
        asked = {**self._asked(call), "stream": True}
        if self._api == "chat":
            asked["stream_options"] = {"include_usage": True}
        until = time.monotonic() + call.timeout_s
        stream = self._sent(self._path, call, asked, stream=True)
        read = streams.responses if self._api == "responses" else streams.chat
        try:
            lines = deadline.each(until, stream.response.iter_lines())
            return (yield from read(lines, call.model, form.names_in(call.data)))
        except httpx2.HTTPError as error:
            raise no_answer(error) from None
        finally:
            stream.response.close()

    def count(self, call: Call) -> int:
        if self._api != "responses":
            raise ProviderFailed("chat completions count nothing", kind="no-count")
        asked = {k: v for k, v in self._asked(call).items() if k in COUNTED}
        text = str(self._sent("/responses/input_tokens", call, asked).text)
        try:
            tokens = exact.loads(text)["input_tokens"]
        except (Malformed, LookupError, TypeError):
            tokens = None
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            raise bad_answer("the provider's count is no number")
        return tokens

    @property
    def _path(self) -> str:
        return "/responses" if self._api == "responses" else "/chat/completions"

    def _asked(self, call: Call) -> dict[str, Any]:
        if self._api == "responses":
            return form.responses(call.body)
        return form.chat(call.body, official=self._official)

    def _sent(self, path: str, call: Call, asked: dict[str, Any], *, stream: bool = False) -> Any:
        """The raw answer, or with `stream` the SDK's stream."""
        try:
            with deadline.until(time.monotonic() + call.timeout_s):
                return self._client.post(
                    path,
                    cast_to=cast(Any, object if stream else httpx2.Response),
                    content=exact.dumps(asked).encode(),
                    options={
                        "headers": {"X-Hango-Purpose": call.purpose, "Content-Type": "application/json"},
                        "timeout": call.timeout_s,
                        "follow_redirects": False,  # the key and the transcript go where the operator said
                    },
                    stream=stream,
                    stream_cls=openai.Stream[Any] if stream else None,
                )
        except openai.APIStatusError as error:
            raise failed(error.status_code, error.response.text, error.response.headers) from None
        except (openai.APIConnectionError, httpx2.HTTPError) as error:  # the latter over the text of an error
            raise no_answer(error) from None
        except openai.OpenAIError as error:
            raise ProviderFailed(f"the SDK failed: {type(error).__name__}", kind="sdk") from None
