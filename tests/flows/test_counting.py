"""The provider's own count decides where it can matter, and nothing waits for it (SPEC F2; DESIGN 5, Budget)."""

import itertools

import pytest

from compaction import counting
from compaction.engine.errors import ProviderFailed
from compaction.providers.base import Capabilities
from tests.flows.runtime import words

WINDOW = 12_000  # with an answer of 1,000: the trigger is at 9,350


@pytest.fixture(autouse=True)
def counts(monkeypatch, provider):
    """The scripted provider counts, and no model was given up on before."""
    counting._not_asked.clear()
    monkeypatch.setattr(provider, "capabilities", Capabilities(prompt_caching=True, counts_tokens=True))
    yield
    counting._not_asked.clear()


@pytest.fixture
def asking(start):
    """asking(tokens, **limits): a session whose next request is estimated at about so many tokens."""

    def begin(tokens, **limits):
        runtime = start(WINDOW, limits={"precompute_frac": None, "max_wait_s": 20, **limits})
        runtime.exchanges(tokens // 400)
        runtime.say("And now?")
        return runtime

    return begin


def test_near_the_trigger_the_provider_is_asked_about_the_request_as_it_would_be_sent(asking, provider):
    runtime = asking(7_200)
    provider.counted = 8_000
    built = runtime.build()
    (call,) = provider.counts
    assert (call.body, call.purpose, call.timeout_s) == (built.body, "count", 2.0)
    assert (built.shown.size, built.shown.source) == (8_000, "provider")
    assert built.turn.counted_tokens == 8_000
    assert runtime.compactions() == []


def test_far_from_the_trigger_it_is_not_asked(asking, provider):
    provider.counted = 100_000
    built = asking(5_200).build()  # × 1.6 is below the trigger
    assert (provider.counts, built.shown.source) == ([], "estimate")
    assert built.turn.counted_tokens is None


def test_a_count_over_the_trigger_compacts_what_the_estimate_alone_would_have_sent(asking, provider):
    runtime = asking(7_200)
    provider.counted = 9_800
    provider.play("SUMMARY: it was counted.")
    built = runtime.build()
    assert built.compaction is not None
    assert "SUMMARY: it was counted." in built.body
    assert built.compaction.tokens_before == 9_800


def test_a_count_under_the_trigger_sends_what_the_estimate_alone_would_have_compacted(asking, provider):
    runtime = asking(10_000)
    provider.counted = 8_500
    built = runtime.build()
    assert (built.compaction, runtime.compactions(), built.shown.size) == (None, [], 8_500)


def test_without_the_capability_nothing_is_asked(asking, provider, monkeypatch):
    monkeypatch.setattr(provider, "capabilities", Capabilities(prompt_caching=True, counts_tokens=False))
    provider.counted = 8_000
    assert asking(7_200).build().shown.source == "estimate"
    assert provider.counts == []


def test_without_a_provider_the_estimate_decides(asking, provider, settings):
    settings.HANGO_PROVIDER = "extractive"
    assert asking(7_200).build().shown.source == "estimate"
    assert provider.counts == []


@pytest.mark.parametrize("kind", ["connection", "api_error", "bad-answer"])
def test_after_an_error_or_a_timeout_the_estimate_stands(asking, provider, monkeypatch, kind):
    asked = []

    def count(call):
        asked.append(call)
        raise ProviderFailed("no answer from the provider", kind=kind, retryable=True)

    monkeypatch.setattr(provider, "count", count)
    built = asking(7_200).build()
    assert (len(asked), built.shown.source, built.turn.counted_tokens) == (1, "estimate", None)


def test_a_model_that_is_not_counted_is_left_alone_for_a_while(asking, provider, watch):
    runtime = asking(7_200)
    for _ in range(3):
        runtime.build()
        runtime.complete("Yes.")
        runtime.say("More.")
    assert len(provider.counts) == 1  # the first failed
    watch.now += counting.PAUSE_S + 1
    provider.counted = 8_000
    assert runtime.build().shown.source == "provider"


def test_it_is_asked_at_most_once_a_build_whatever_is_tried(asking, provider):
    """Over the trigger by the count: old results are cut, a summary is made and swapped in; all of one count."""
    runtime = asking(7_200, tool_arg_max_tokens=100)
    for n in range(3):
        runtime.round(600, f"RESULT-{n}")
    provider.counts.clear()
    counting._not_asked.clear()
    provider.counted = 11_500
    built = runtime.build()
    assert built.turn.adopted or built.turn.args_cut_before
    assert len(provider.counts) == 1


def test_a_count_speaks_for_the_request_it_counted_and_raises_others(asking, provider):
    runtime = asking(7_200)
    provider.counted = 11_000
    built = runtime.build()
    (call,) = provider.counts
    assert call.body != built.body
    assert built.shown.source == "estimate"
    assert built.turn.counted_tokens is None
    ratio = 11_000 / 7_300  # as the whole transcript was counted, so may be what is left of it
    assert built.shown.size == pytest.approx(built.shown.tokens * ratio, rel=0.05)


def test_a_low_count_does_not_lower_what_was_not_counted(asking, provider):
    """What is light may be just what the other view leaves out."""
    runtime = asking(10_800)
    provider.counted = 9_500  # still over the trigger
    built = runtime.build()
    assert built.turn.adopted
    assert built.shown.size >= built.shown.tokens


def test_building_again_in_the_same_turn_asks_no_second_time(asking, provider):
    runtime = asking(7_200)
    provider.counted = 8_000
    one, two = runtime.build(), runtime.build()
    assert one.body == two.body
    assert (len(provider.counts), two.shown.size) == (1, 8_000)


def test_the_next_build_is_anchored_on_the_count(asking, provider):
    """A runtime that reports no usage: the count is what is known, plus what came since."""
    runtime = asking(7_200)
    provider.counted = 8_000
    built = runtime.build()
    runtime.complete("Yes.")
    runtime.say(words(100))
    following = runtime.build()
    assert len(provider.counts) == 1  # what came since cannot cross the trigger
    assert following.shown.source == "usage"
    since = following.shown.tokens - built.shown.tokens
    assert 8_000 + since <= following.shown.size <= 8_000 + 1.2 * since


def test_with_an_anchor_it_is_asked_only_when_what_came_since_could_cross(asking, provider):
    runtime = asking(7_200)
    provider.counted = 8_000
    runtime.build()
    runtime.complete("Yes.", usage={"input_tokens": 8_000, "output_tokens": 5})
    runtime.say(words(700))  # 8,700 by the estimate; 9,120 at the worst
    assert runtime.build().shown.source == "usage"
    assert len(provider.counts) == 1
    runtime.complete("Yes.")
    runtime.say(words(250))
    provider.counted = 9_100
    assert (runtime.build().shown.source, len(provider.counts)) == ("provider", 2)


def test_reported_usage_goes_before_the_count_of_the_same_turn(asking, provider):
    runtime = asking(7_200)
    provider.counted = 8_000
    runtime.build()
    runtime.complete("Yes.", usage={"input_tokens": 8_200, "output_tokens": 5})
    runtime.say("And?")
    assert runtime.build().shown.size == pytest.approx(8_220, abs=20)


def test_an_unbelievable_count_of_an_earlier_turn_is_no_anchor(asking, provider):
    runtime = asking(7_200, max_wait_s=0)
    provider.counted = 100  # 0.014 of the estimate
    runtime.build()
    runtime.complete("Yes.")
    runtime.say("And?")
    provider.counted = 8_000
    assert (runtime.build().shown.source, len(provider.counts)) == ("provider", 2)


def test_usage_from_before_the_current_view_says_nothing_of_its_size(asking, provider):
    """The whole transcript was reported; after the swap the budget is that of what is shown."""
    runtime = asking(7_200)
    provider.counted = 8_000
    runtime.build()
    runtime.complete("Yes.", usage={"input_tokens": 9_300, "output_tokens": 5})
    runtime.say(words(300))
    provider.counted = 9_800
    provider.play("SUMMARY")
    built = runtime.build()
    assert built.turn.adopted
    assert built.shown.size < 5_000
    assert built.shown.source == "estimate"
    runtime.complete("Yes.", usage={"input_tokens": 1_400, "output_tokens": 5})
    runtime.say("And?")
    following = runtime.build()
    assert (following.shown.source, following.shown.size) == ("usage", pytest.approx(1_420, abs=30))


def test_over_many_turns_far_from_the_trigger_the_provider_is_left_alone(start, provider):
    provider.counted = 3_000
    runtime = start(60_000)
    for n in range(20):
        runtime.exchange(f"Question {n}. " + words(50), "Answer.")
    assert provider.counts == []
    sizes = [runtime.sent[n].shown.size for n in sorted(runtime.sent)]
    assert all(b > a for a, b in itertools.pairwise(sizes))


def test_a_turn_whose_usage_nobody_told_is_counted_in_the_worker_and_anchors_the_next_budget(start, provider):
    runtime = start()
    runtime.say("Hello.")
    built = runtime.build()
    runtime.complete("Hello to you.")
    provider.counted = built.shown.tokens + 40
    counting.count_closed(built.turn.pk)
    counting.count_closed(built.turn.pk)  # delivered twice
    assert [call.purpose for call in provider.counts] == ["count"]
    runtime.say("And now?")
    after = runtime.build()
    assert after.shown.source == "usage"
    assert after.shown.size > provider.counted
