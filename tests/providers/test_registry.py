"""Which provider is used follows from the settings, and what names it tells no key."""

import pytest

from compaction.providers import failures, registry
from compaction.providers.anthropic import AnthropicProvider
from compaction.providers.openai import OpenAIProvider


@pytest.mark.parametrize(
    ("name", "kind"),
    [("anthropic", AnthropicProvider), ("openai", OpenAIProvider), ("extractive", type(None))],
)
def test_the_setting_decides(settings, name, kind):
    settings.HANGO_PROVIDER, settings.ANTHROPIC_API_KEY, settings.OPENAI_API_KEY = name, "k", "k"
    assert type(registry.provider()) is kind
    assert registry.provider() is registry.provider()


def test_openai_is_called_as_the_operator_says(settings):
    settings.HANGO_PROVIDER, settings.OPENAI_API_KEY = "openai", "k"
    settings.HANGO_OPENAI_API, settings.OPENAI_BASE_URL = "responses", "http://127.0.0.1:9/v1"
    assert registry.provider().capabilities.counts_tokens
    assert registry.address() == "http://127.0.0.1:9/v1"


def test_the_digest_names_provider_address_and_key(settings):
    def digest(name, **more):
        settings.HANGO_PROVIDER = name
        for key, value in more.items():
            setattr(settings, key, value)
        return registry.key_digest()

    seen = [
        digest("anthropic", ANTHROPIC_API_KEY="a", OPENAI_API_KEY="o"),
        digest("openai"),
        digest("openai", OPENAI_API_KEY="p"),
        digest("openai", OPENAI_BASE_URL="http://x"),
        digest("anthropic", ANTHROPIC_API_KEY="b"),
    ]
    assert len({*seen}) == 5
    assert digest("anthropic", ANTHROPIC_API_KEY="b", OPENAI_API_KEY="z") == seen[-1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error":{"type":"a","message":"m"}}', ("a", "m")),
        ('{"error":{"type":"a","code":"b"}}', ("b", '{"error":{"type":"a","code":"b"}}')),
        ('{"error":{"type":"a","code":400,"message":"m"}}', ("a", "m")),
        ('{"error":{"code":2013,"message":"m"}}', ("2013", "m")),
        ('{"error":{"type":"a","details":{"error_code":"c"},"message":"m"}}', ("c", "m")),
        ('{"object":"error","message":"m","type":"BadRequestError","code":400}', ("BadRequestError", "m")),
        ('{"error":"m"}', ("", "m")),
        ('{"error":{"type":"two words","message":"m"}}', ("", "m")),
        ('{"detail":"m"}', ("", '{"detail":"m"}')),
        ("[1]", ("", "[1]")),
        ("<html>", ("", "<html>")),
        ("", ("", "")),
    ],
)
def test_an_errors_name_and_words(body, said):
    assert failures.said(body) == said


@pytest.mark.parametrize(
    ("milliseconds", "seconds", "wait"),
    [
        ("250", "9", 0.25),
        (None, "9", 9),
        ("x", "9", 9),
        (None, "soon", None),
        (None, "-1", None),
        (None, "inf", None),
    ],
)
def test_how_long_to_wait(milliseconds, seconds, wait):
    assert failures.retry_after(milliseconds, seconds) == wait
