"""Which provider this installation uses, by its settings."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from django.conf import settings

from compaction.providers.base import Provider


def provider() -> Provider | None:
    """The model provider that writes summaries; None when there is none and briefings are extractive."""
    if settings.HANGO_PROVIDER == "scripted":
        from compaction.providers import scripted  # noqa: PLC0415 - tests only

        return scripted.provider
    if settings.HANGO_PROVIDER == "extractive":
        return None
    return _anthropic(settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL)


@lru_cache(maxsize=4)
def _anthropic(api_key: str, base_url: str) -> Provider:
    from compaction.providers.anthropic import AnthropicProvider  # noqa: PLC0415 - the SDK takes a second to import

    return AnthropicProvider(api_key, base_url)


def key_digest() -> str:
    """Names the provider and key in use without telling the key."""
    return hashlib.sha256(
        f"{settings.HANGO_PROVIDER} {settings.ANTHROPIC_BASE_URL} {settings.ANTHROPIC_API_KEY}".encode()
    ).hexdigest()
