"""Classification of provider errors: every row of the table, wordings that it does not hold, look-alikes, and garbage."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.engine import overflow
from compaction.engine.overflow import Kind, Stated, classify, limits_of
from tests.engine.wordings import OUT_WORDS, OVERFLOW_WORDS

ROWS = json.loads((Path(__file__).parents[1] / "overflow_errors.json").read_text(encoding="utf-8"))
OVERFLOWING = {Kind.OVERFLOW, Kind.OVERFLOW_OUT}


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_row_of_the_table(row):
    said = {"provider": row["provider"], "type": row["type"], "message": row["message"]}
    assert classify(status=row["status"], **said) == row["class"]
    assert classify(status=int(row["status"]), **said) == row["class"]


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r["status"] == "400" and r["type"] != "2013"], ids=lambda row: row["id"]
)
def test_every_refusal_means_the_same_inside_a_gateways_wrap(row):
    inner = {"error": {"message": row["message"], "type": row["type"], "code": 400}}
    for message in (
        f"Provider returned error: {json.dumps(inner)}",
        json.dumps({"message": json.dumps(inner)}),
        f"litellm.BadRequestError: SomeException - {row['message']}. Received Model Group=x",
        f"Error code: 400 - {inner}",
        row["message"].upper(),
        row["message"].replace(" ", "\n "),
    ):
        if row["id"] in ("E17", "E36") or "litellm" not in message:
            assert classify(provider="gateway", status=400, type="error", message=message) == row["class"]


@pytest.mark.parametrize("status", [400, "413", 422, None])
@pytest.mark.parametrize("words", OVERFLOW_WORDS)
def test_other_wordings_of_an_input_that_is_too_long(words, status):
    assert classify(provider="", status=status, type="invalid_request_error", message=words) is Kind.OVERFLOW


@pytest.mark.parametrize("kind", ["invalid_request_error", "context_length_exceeded", None])
@pytest.mark.parametrize("words", OUT_WORDS)
def test_an_input_that_fits_without_its_output_even_under_the_code_of_an_overflow(words, kind):
    assert classify(provider="", status=400, type=kind, message=words) is Kind.OVERFLOW_OUT


@pytest.mark.parametrize(
    ("kind", "status", "type_", "words"),
    [
        # rates, whatever they look like
        (Kind.RATE, 400, "error", "Rate limit reached: prompt is too long for the tokens per minute"),
        (Kind.RATE, 429, "context_length_exceeded", "prompt is too long: 3 tokens > 2 maximum"),
        (Kind.RATE, 500, "error", "ThrottlingException: maximum context length"),
        (Kind.RATE, 429, "rate_limit_exceeded", "TPM: Limit 30000, Used 29000, Requested 2000. Please try again in 4s."),
        (Kind.RATE, 429, "insufficient_quota", "You exceeded your current quota, please check your plan."),
        (Kind.RATE, 400, "error", 'Provider returned error: {"error":{"code":429,"message":"prompt is too long"}}'),
        (Kind.RATE, 503, "x", "Too many tokens, please wait before trying again."),
        (Kind.RATE_SINGLE, 413, "tokens", "Request too large for model on tokens per minute (TPM)"),
        (Kind.RATE_SINGLE, 429, "tokens", "tokens per min: Limit 30,000, Requested 45,000"),
        (Kind.ENTITLE, 429, "rate_limit_error", "Extra usage is required for long context requests."),
        (Kind.ENTITLE, 400, "invalid_request_error", "The long context beta is not yet available for this subscription."),
        (Kind.ENTITLE, 402, "402", "This request requires more credits, or fewer max_tokens. You can only afford 3000."),
        (Kind.ENTITLE, 403, "permission_error", "not allowed"),
        # the provider's own trouble
        (Kind.SERVER, 503, "", "maximum context length is 5"),
        (Kind.SERVER, None, "overloaded_error", "Overloaded"),
        (Kind.SERVER, None, "api_error", "internal error computing maximum context length"),
        (Kind.SERVER, None, None, "502 Bad Gateway"),
        (Kind.SERVER, 200, "server_error", "The server had an error"),
        # the output asked for is more than the model writes
        (Kind.PARAM, 400, "", "The maximum tokens you requested exceeds the model limit of 4096. Try again with less."),
        (Kind.PARAM, 400, "", "`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is"
         " less than the `context_window` for this model"),
        (Kind.PARAM, 400, "", "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        (Kind.PARAM, 400, "", "Range of max_tokens should be [1, 8192]"),
        (Kind.PARAM, 400, "", "it has a maxOutputTokens value of 100000 but the supported range is from 1 to 65537"),
        (Kind.PARAM, 400, "", "max tokens must be less than or equal to 4096, the maximum output length for this model"),
        (Kind.PARAM, 400, "", "max_tokens exceeds the limit of 8192"),
        (Kind.PARAM, 400, "", "max_tokens must be at least 1, got -12"),
        (Kind.PARAM, 400, "", "Invalid 'tools[0].function.name': string too long. Expected maximum length 64"),
        (Kind.PARAM, 400, "", "temperature is not supported with this model"),
        (Kind.PARAM, 400, "invalid_value", "no"),
        # bytes
        (Kind.BODY, 400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."),
        (Kind.BODY, 400, "", "total message size 2100954 exceeds limit 2097152"),
        (Kind.BODY, 400, "", "Maximum content size limit (26214400) exceeded (26230131 bytes read)"),
        (Kind.BODY, 413, None, "<html>413 Request Entity Too Large</html>"),
        (Kind.BODY, 413, None, ""),
        (Kind.BODY, 400, "", "Value at 'body' failed: Member must have length less than or equal to 25000000"),
        (Kind.BODY, 400, "", "Invalid 'input': string too long. Expected a string with maximum length 1048576"),
        (Kind.BODY, 400, "", "Invalid 'messages': array too long. Expected an array with maximum length 2048"),
        (Kind.BODY, 400, "", "http: request body too large"),
        # media, order, binding
        (Kind.MEDIA, 400, "", "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6 bytes > 5 bytes"),
        (Kind.MEDIA, 400, "image_dimensions_too_large", "x"),
        (Kind.MEDIA, 400, "", "At most 1 image(s) may be provided in one prompt."),
        (Kind.SEQ, 400, "", "No tool output found for function call call_1."),
        (Kind.SEQ, 400, "", "The number of toolResult blocks exceeds the number of toolUse blocks of previous turn."),
        (Kind.SEQ, 400, "", "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."),
        (Kind.SEQ, 400, "", "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
        (Kind.SEQ, 400, "", "This model does not support prefill. The conversation must end with a user message."),
        (Kind.BINDING, 400, "", "messages.1.content.0: Invalid `signature` in `thinking` block"),
        # what says nothing about length
        (Kind.UNKNOWN, 400, "invalid_request_error", "The context is large, but acceptable."),
        (Kind.UNKNOWN, 404, "not_found_error", "model: claude-9"),
        (Kind.UNKNOWN, 401, "authentication_error", "invalid x-api-key"),
        (Kind.UNKNOWN, 400, "", "tool name exceeds 64 characters"),
        (Kind.UNKNOWN, 400, "", ""),
        (Kind.UNKNOWN, None, None, ""),
        (Kind.UNKNOWN, 400, "1261", "x"),
        # answers that came
        (Kind.NONE, 200, None, ""),
        (Kind.NONE, 200, "stop_reason=end_turn", "prompt is too long: 3 tokens > 2 maximum"),
        (Kind.NONE, 200, None, "the maximum context length is 7 tokens"),
        (Kind.NONE, 200, "finish_reason=length", ""),
        (Kind.NONE, 200, "finish_reason=length usage.output=12 usage.input>=0.99*window", ""),
        (Kind.NONE, 200, "stop_reason=refusal", ""),
        (Kind.OVERFLOW, 200, "stop_reason=model_context_window_exceeded", "rate limit"),
        (Kind.OVERFLOW, 200, "model_context_window_exceeded", ""),
        (Kind.OVERFLOW, 200, "finish_reason=model_length", ""),
        (Kind.OVERFLOW, 200, "stop_reason=max_tokens usage.output_tokens=0 usage.input_tokens>=0.99*window", ""),
        # an error in a stream that began with 200
        (Kind.OVERFLOW, 200, "invalid_request_error", "prompt is too long: 3 tokens > 2 maximum"),
        (Kind.OVERFLOW, 200, "modelStreamErrorException", "Input is too long for requested model."),
        (Kind.OVERFLOW, 200, "2013", "invalid params, context window exceeds limit"),
        (Kind.OVERFLOW, 200, None, '{"error": {"message": "prompt is too long"}}'),
        (Kind.RATE, "200", "rate_limit_error", "prompt is too long"),
    ],
)  # fmt: skip
def test_look_alikes(kind, status, type_, words):
    assert classify(provider="", status=status, type=type_, message=words) is kind


def test_what_only_one_provider_means():
    bare = {"type": None, "message": "400 status code (no body)"}
    assert classify(provider="Cerebras", status=400, **bare) is Kind.OVERFLOW
    assert classify(provider="cerebras", status="413", type=None, message="") is Kind.OVERFLOW
    assert classify(provider="other", status=400, **bare) is Kind.UNKNOWN
    assert classify(provider="z.ai", status=400, type="1261", message="x") is Kind.OVERFLOW


def test_the_ladder_offers_it_under_the_promised_name():
    assert overflow.classify is classify
    assert {kind.value for kind in Kind} == {row["class"] for row in ROWS} | {"UNKNOWN"}


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        ("prompt is too long: 213462 tokens > 200000 maximum", Stated(200_000, 213_462)),
        ("exceed context limit: 199,759 + 8_192 > 200000", Stated(200_000, 199_759, 8_192)),
        (OUT_WORDS[2], Stated(16_384, 13_500, 3_000)),
        (OUT_WORDS[4], Stated(40_960, 30_000, 16_384)),
        (OUT_WORDS[5], Stated(2048, 8, 2045)),
        (OUT_WORDS[7], Stated(128_000, 120_000, 10_000)),
        (OUT_WORDS[8], Stated(1000, 800, 400)),
        (OUT_WORDS[9], Stated(1000, 800, 400)),
        ("maximum context length is 1000 tokens. However, you requested 400 tokens (400 in the completion).",
         Stated(1000, None, 400)),
        ("exceeded max context length by 200 tokens", Stated()),
        ("Range of input length should be [1, 258048]", Stated(258_048)),
        ("the model with a context window of 1M tokens; the prompt has 1.5M tokens", Stated(1_000_000, 1_500_000)),
        ('{"message":"exceeds the available context size","n_prompt_tokens":1407,"n_ctx":256}', Stated(256, 1407)),
        ("rate limit of 30,000 input tokens per minute; maximum context length is 5", Stated()),
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens", Stated()),
        ("too many images and documents: 104 + 1 > 100", Stated()),
        ("", Stated()),
    ],
)  # fmt: skip
def test_the_numbers_that_a_provider_names(words, stated):
    assert limits_of(words) == stated


ANYTHING = st.one_of(
    st.none(), st.text(), st.binary(), st.integers(), st.floats(), st.booleans(), st.lists(st.text())
)
ALL_WORDS = st.sampled_from([row["message"] for row in ROWS] + OVERFLOW_WORDS + OUT_WORDS)
STATUSES = st.sampled_from([400, 413, 422, None, 403, "400", 500])


@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING)
def test_it_takes_anything(provider, status, type_, message):
    assert classify(provider=provider, status=status, type=type_, message=message) in Kind
    assert limits_of(message) is not None


@given(st.text(), STATUSES, st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_words_of_no_provider_are_never_an_overflow(provider, status, words):
    if provider.lower() != "cerebras":
        assert classify(provider="x", status=status, type=None, message=words) not in OVERFLOWING


RATE_WORDS = [
    "Rate limit reached",
    "tokens per min",
    "per-minute",
    "(TPM)",
    "quota exceeded",
    "throttled",
    "Please wait",
]


@given(
    ALL_WORDS,
    st.sampled_from(RATE_WORDS),
    STATUSES,
    st.booleans(),
    st.sampled_from(["", "context_length_exceeded"]),
)
def test_with_a_rate_limits_words_nothing_is_an_overflow(words, rate, status, before, type_):
    message = f"{rate} {words}" if before else f"{words} {rate}."
    found = classify(provider="any", status=status, type=type_, message=message)
    assert found in {Kind.RATE, Kind.RATE_SINGLE, Kind.ENTITLE}


@pytest.mark.parametrize(
    "filler",
    [
        "a",
        " ",
        "1",
        "1,",
        "\\",
        "prompt ",
        "1 in the ",
        "exceeds ",
        "maximum context length ",
        '{"code":',
        "1 > ",
        "\\n",
    ],
)
def test_a_message_of_a_megabyte_takes_no_time(filler):
    message = (filler * 1_000_000)[:1_000_000]
    started = time.process_time()
    classify(provider="any", status=400, type=message, message=message)
    limits_of(message)
    assert time.process_time() - started < 1.5
