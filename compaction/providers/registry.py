"""Which provider this installation uses, by its settings."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Literal

from django.conf import settings

from compaction.providers.base import Provider


def provider() -> Provider | None:
    """The model provider that writes summaries; None when there is none and briefings are extractive."""
    if settings.HANGO_PROVIDER == "scripted":
        from compaction.providers import scripted  # noqa: PLC0415 - tests only

        return scripted.provider
    if settings.HANGO_PROVIDER == "extractive":
        return None
    if settings.HANGO_PROVIDER == "openai":
        return _openai(settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL, settings.HANGO_OPENAI_API)
    return _anthropic(settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL)


@lru_cache(maxsize=4)
def _anthropic(api_key: str, base_url: str) -> Provider:
    from compaction.providers.anthropic import AnthropicProvider  # noqa: PLC0415 - the SDK takes a second to import

    return AnthropicProvider(api_key, base_url)


@lru_cache(maxsize=4)
def _openai(api_key: str, base_url: str, api: Literal["chat", "responses"]) -> Provider:
    from compaction.providers.openai import OpenAIProvider  # noqa: PLC0415 - the SDK takes a second to import

    return OpenAIProvider(api_key, base_url, api)


def address() -> str:
    """Where the provider in use is; empty for Anthropic's own."""
    if settings.HANGO_PROVIDER == "openai":
        return str(settings.OPENAI_BASE_URL)
    return str(settings.ANTHROPIC_BASE_URL)


def key_digest() -> str:
    """Names the provider and key in use without telling the key."""
    key = settings.OPENAI_API_KEY if settings.HANGO_PROVIDER == "openai" else settings.ANTHROPIC_API_KEY
    return hashlib.sha256(f"{settings.HANGO_PROVIDER} {address()} {key}".encode()).hexdigest()
