"""What settings and the price catalog say about models."""

from __future__ import annotations

import logging
from decimal import Decimal

import pytest

from compaction import conf


def test_the_catalog_gives_windows_without_a_network():
    assert conf.catalog("claude-sonnet-4-5") == {"max_input_tokens": 200_000}
    assert conf.catalog("mistral/mistral-large-4") == {"max_input_tokens": 1_048_576}


def test_the_catalog_says_nothing_of_models_without_a_window_or_unknown_ones():
    assert conf.catalog("gpt-5.6-cyber") is None
    assert conf.catalog("synthetic-20k") is None


def test_a_profile_follows_the_settings(settings):
    settings.HANGO_MODEL_PROFILES = {"synthetic-20k": {"max_input_tokens": 20_000}}
    settings.HANGO_SUMMARIZER_MODEL = "cheap"
    profile = conf.profile("synthetic-20k")
    assert (profile.window, profile.known, profile.summarizer_model) == (20_000, True, "cheap")


def test_deployment_wide_fractions_follow_the_settings(settings):
    settings.HANGO_CONTEXT_TRIGGER_FRAC = 0.7
    settings.HANGO_CONTEXT_KEEP_FRAC = 0.2
    profile = conf.profile("claude-opus-5")
    assert (profile.trigger_frac, profile.keep_frac) == (0.7, 0.2)


def test_a_wrong_profile_in_the_settings_is_named(settings):
    settings.HANGO_MODEL_PROFILES = {"m": {"max_input_tokens": "much"}}
    with pytest.raises(ValueError, match="'m', max_input_tokens is 'much'"):
        conf.profile("m")


def test_an_unknown_model_is_logged_once_and_a_known_one_never(settings, caplog, monkeypatch):
    settings.HANGO_MODEL_PROFILES = {}
    monkeypatch.setattr(conf, "_logged", set())
    monkeypatch.setattr(conf.log, "propagate", True)
    with caplog.at_level(logging.WARNING, logger=conf.log.name):
        for model in ("nobody-knows-1", "nobody-knows-1", "claude-opus-5", "nobody-knows-2"):
            conf.profile(model)
    assert [record.args[0] for record in caplog.records] == ["nobody-knows-1", "nobody-knows-2"]


def test_a_learned_limit_narrows_the_profile(settings):
    settings.HANGO_MODEL_PROFILES = {}
    assert conf.profile("claude-opus-5", {"max_input_tokens": 900_000}).window == 900_000


def test_the_estimator_is_the_settings_one_and_is_made_once(settings):
    settings.HANGO_ESTIMATOR = "heuristic"
    assert conf.estimator() is conf.estimator()
    assert conf.estimator().name == "heuristic-1"


def test_the_wait_is_the_settings_one(settings):
    settings.HANGO_MAX_WAIT_S = 3
    assert conf.max_wait_s() == 3.0


def test_a_usage_is_priced_with_cache_reads_and_writes():
    usage = {
        "input_tokens": 800,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 100,
        "output_tokens": 50,
    }
    assert conf.price("claude-sonnet-4-5", usage) == Decimal("0.003555")
    assert conf.price("us.anthropic.claude-sonnet-4-5-20250929-v1:0", usage) == Decimal("0.003555")


def test_cache_writes_that_live_an_hour_cost_more():
    usage = {"input_tokens": 0, "cache_creation_input_tokens": 1_000_000, "output_tokens": 0}
    hour = {
        **usage,
        "cache_creation": {"ephemeral_1h_input_tokens": 1_000_000, "ephemeral_5m_input_tokens": 0},
    }
    five_minutes, an_hour = conf.price("claude-opus-4-5", usage), conf.price("claude-opus-4-5", hour)
    assert five_minutes is not None
    assert an_hour is not None
    assert an_hour > five_minutes


def test_every_iteration_is_paid_for():
    one = {"type": "message", "input_tokens": 1_000, "output_tokens": 10}
    usage = {"input_tokens": 0, "output_tokens": 0, "iterations": [one, {**one, "type": "compaction"}]}
    assert conf.price("claude-sonnet-4-5", usage) == 2 * (conf.price("claude-sonnet-4-5", one) or 0) > 0


def test_garbled_counts_cost_nothing_and_an_unknown_model_has_no_price():
    assert conf.price("claude-sonnet-4-5", {"input_tokens": None, "output_tokens": "9"}) == 0
    assert conf.price("synthetic-20k", {"input_tokens": 5}) is None
