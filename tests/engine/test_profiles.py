"""What is known of a model, and whose word counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import profiles


def lookup(model="some-model", *, configured=None, catalog=None, learned=None, **more):
    return profiles.lookup(
        model, configured=configured or {}, catalog=(catalog or {}).get, learned=learned, **more
    )


# --- order of sources


def test_an_unknown_model_gets_the_fallback_window_whatever_max_tokens():
    profile = lookup()
    assert not profile.known
    assert profile.max_input_tokens is None
    assert profile.usable(0) == profile.usable(64_000) == 200_000
    assert int(profile.trigger_frac * profile.usable(8_192)) == 170_000
    assert profiles.FALLBACK_KEEP_MESSAGES == 6


def test_the_catalog_names_the_window_of_a_model_that_the_families_do_not():
    profile = lookup(catalog={"some-model": {"max_input_tokens": 64_000}})
    assert (profile.known, profile.max_input_tokens) == (True, 64_000)


def test_the_family_wins_over_the_catalog_where_the_catalog_is_wrong():
    profile = lookup("gpt-6-sol", catalog={"gpt-6-sol": {"max_input_tokens": 1_050_000}})
    assert profile.max_input_tokens == 922_000


def test_the_configuration_wins_over_everything():
    profile = lookup(
        "claude-opus-5",
        configured={"claude-opus-5": {"max_input_tokens": 300_000, "trigger_frac": 0.5}},
        catalog={"claude-opus-5": {"max_input_tokens": 1}},
        learned={"max_input_tokens": 250_000},
    )
    assert (profile.max_input_tokens, profile.trigger_frac) == (300_000, 0.5)
    assert profile.max_output_tokens == 128_000, "what the configuration leaves out comes from the family"


def test_a_configured_name_also_covers_the_same_model_under_a_vendors_name():
    profile = lookup("openai/some-model", configured={"some-model": {"max_input_tokens": 9_000}})
    assert (profile.model, profile.max_input_tokens) == ("openai/some-model", 9_000)


def test_a_model_configured_without_a_window_is_still_unknown():
    profile = lookup(configured={"some-model": {"keep_frac": 0.2}})
    assert (profile.known, profile.window, profile.keep_frac) == (False, 200_000, 0.2)


def test_defaults_of_the_deployment_stand_under_the_configuration():
    defaults = {**profiles.DEFAULTS, "trigger_frac": 0.7, "summarizer_model": "cheap"}
    profile = lookup(configured={"some-model": {"trigger_frac": 0.6}}, defaults=defaults)
    assert (profile.trigger_frac, profile.summarizer_model) == (0.6, "cheap")


@pytest.mark.parametrize(
    ("limit", "window"), [(30_000, 30_000), (120_000, 120_000), (29_999, 100_000), (120_001, 100_000)]
)
def test_a_learned_limit_counts_only_near_the_known_window(limit, window):
    catalog = {"some-model": {"max_input_tokens": 100_000}}
    assert lookup(catalog=catalog, learned={"max_input_tokens": limit}).max_input_tokens == window


@pytest.mark.parametrize("limit", [None, 0, -5, True, "8192", 1.5])
def test_a_learned_limit_that_is_no_number_of_tokens_counts_nothing(limit):
    assert lookup(learned={"max_input_tokens": limit}).known is False


def test_an_unknown_model_learns_a_small_window_but_none_far_above_the_fallback():
    assert lookup(learned={"max_input_tokens": 8_192}).max_input_tokens == 8_192
    assert lookup(learned={"max_input_tokens": 1_000_000}).known is False


# --- the usable window


def test_input_and_output_share_the_window_unless_the_provider_counts_input_alone():
    shared = lookup(configured={"some-model": {"max_input_tokens": 100_000}})
    assert shared.usable(20_000) == 80_000
    assert lookup("claude-sonnet-4-5").usable(64_000) == 200_000


@given(st.integers(1, 10**7), st.integers(0, 10**7))
def test_at_least_half_of_the_window_is_usable(window, max_tokens):
    profile = lookup(configured={"some-model": {"max_input_tokens": window}})
    assert window // 2 <= profile.usable(max_tokens) <= window


# --- families


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("anthropic/claude-opus-4.8", "claude-opus-4-8"),
        ("openrouter/anthropic/claude-opus-4.8:thinking", "claude-opus-4-8"),
        ("us.anthropic.claude-opus-4-8-v1:0", "claude-opus-4-8"),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-haiku-4-5-20251001-v1:0",
            "claude-haiku-4-5",
        ),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-5[1m]", "claude-sonnet-5"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("openai/gpt-6.1-sol", "gpt-6.1-sol"),
        ("  GPT-4o ", "gpt-4o"),
        ("ollama/llama3.1:8b", "llama3.1"),
        ("", ""),
    ],
)
def test_a_models_own_name_is_found_under_vendor_region_date_and_variant(name, own):
    assert profiles.bare(name) == own


@pytest.mark.parametrize(
    "model", ["claude-opus-5-5", "claude-sonnet-5-5-20261001", "us.anthropic.claude-haiku-5-5-v1:0", "claude-fable-5-1",
              "claude-fable-5-2", "claude-mythos-5-1", "anthropic/claude-mythos-5.2"]
)  # fmt: skip
def test_the_newest_claude_models_bind_thinking_to_what_stood_before_it(model):
    assert lookup(model).binds_thinking


@pytest.mark.parametrize(
    "model",
    ["claude-opus-5", "claude-sonnet-5", "claude-fable-5", "claude-opus-4-8", "claude-3-7-sonnet", "gpt-6"],
)
def test_other_models_do_not_bind_thinking(model):
    assert not lookup(model).binds_thinking


def test_a_claude_that_is_not_listed_is_treated_like_the_newest_but_its_window_is_unknown():
    profile = lookup("claude-opus-9")
    assert profile.binds_thinking
    assert not profile.counts_output
    assert not profile.known
    assert (
        lookup("claude-opus-9", catalog={"claude-opus-9": {"max_input_tokens": 2_000_000}}).usable(1)
        == 2_000_000
    )


@pytest.mark.parametrize(
    ("model", "factor", "counts_output", "least_cached"),
    [
        ("claude-3-5-sonnet", 1.1, True, 1_024),
        ("claude-opus-4-1", 1.1, True, 1_024),
        ("claude-haiku-4-5", 1.1, False, 4_096),
        ("claude-sonnet-4-6", 1.1, False, 1_024),
        ("claude-opus-4-7", 1.4, False, 2_048),
        ("claude-sonnet-5", 1.4, False, 1_024),
        ("claude-haiku-5-5", 1.4, False, 512),
        ("some-model", 1.0, True, 1_024),
    ],
)
def test_families_say_how_their_provider_counts(model, factor, counts_output, least_cached):
    profile = lookup(model)
    assert (profile.estimate_factor, profile.counts_output, profile.min_cacheable_tokens) == (
        factor,
        counts_output,
        least_cached,
    )


def test_a_longer_name_part_is_another_model():
    assert lookup("gpt-5.4").max_input_tokens == 922_000
    assert lookup("gpt-5-mini").max_input_tokens == 272_000
    assert profiles.family("gpt-5x") == profiles.family("gpt-oss-120b") == profiles.FAMILIES["gpt"]
    assert profiles.family("gptx") == {}


def test_every_family_states_fields_that_a_profile_has_and_that_the_configuration_would_accept():
    assert profiles.parse_configured({name: dict(facts) for name, facts in profiles.FAMILIES.items()})


def test_openai_and_gemini_take_no_cache_marks_and_other_models_do():
    assert [lookup(model).prompt_caching for model in ("gpt-5.5", "gemini-3.8-flash", "claude-opus-5", "some-model")] == [
        False, False, True, True,
    ]  # fmt: skip


# --- the configuration


def test_a_right_configuration_is_returned_as_it_is():
    facts = {"max_input_tokens": 8_192, "counts_output": False, "summarizer_model": "x", "estimate_factor": 1.6,
             "tool_prompt_tokens": 0, "trigger_frac": 0.6, "keep_frac": 0.2}  # fmt: skip
    assert profiles.parse_configured({"m": facts, "n": {}}) == {"m": facts, "n": {}}
    assert profiles.parse_configured({}) == {}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "must be an object: model id to an object of facts"),
        ({"m": 5}, "'m' must be an object of facts"),
        ({"m": {"max_tokens": 5}}, "'m' has the unknown field 'max_tokens'; known: max_input_tokens"),
        ({"m": {"model": "x"}}, "unknown field 'model'"),
        ({"m": {"max_input_tokens": 0}}, "'m', max_input_tokens is 0; it must be a whole number, at least 1"),
        ({"m": {"max_input_tokens": "8k"}}, "max_input_tokens is '8k'"),
        ({"m": {"max_input_tokens": True}}, "max_input_tokens is True"),
        ({"m": {"max_input_tokens": None}}, "max_input_tokens is None"),
        ({"m": {"tool_prompt_tokens": -1}}, "it must be a whole number, at least 0"),
        ({"m": {"trigger_frac": 85}}, "'m', trigger_frac is 85; it must be a number above 0 and below 1"),
        ({"m": {"trigger_frac": True}}, "trigger_frac is True"),
        ({"m": {"estimate_factor": 9}}, "above 0 and below 5"),
        ({"m": {"counts_output": "yes"}}, "'m', counts_output is 'yes'; it must be true or false"),
        ({"m": {"summarizer_model": 5}}, "it must be a model id"),
        ({"m": {"trigger_frac": 0.5, "keep_frac": 0.5}}, "'m', keep_frac must be below trigger_frac, 0.5"),
        ({"m": {"precompute_frac": 0.9}}, "precompute_frac must be below trigger_frac, 0.85"),
    ],
)
def test_a_wrong_configuration_is_refused_with_model_and_field(value, says):
    with pytest.raises(ValueError, match="HANGO_MODEL_PROFILES") as raised:
        profiles.parse_configured(value)
    assert says in str(raised.value)
