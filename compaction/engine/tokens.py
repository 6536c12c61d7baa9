"""How many tokens a request is: weights of blocks in *base units*, and the budget anchored on reported usage.

A base unit is a token of the estimator in use. `profiles.ModelProfile.estimate_factor` and the usage that the
provider reported turn base units into the model's tokens; nothing else does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

from compaction.engine import exact, images
from compaction.engine.types import MEDIA, Block, OutgoingRequest

MOST_TOKENS = 100_000_000  # no window is that large; a report of more is a fault of who reports
MESSAGE_OVERHEAD = 4  # tokens around each message: role and turn marks (what public counters add)
DOCUMENT_TOKENS = 1_600  # least weight of a document: that of its first page as an image
DOCUMENT_BYTES_PER_TOKEN = 100  # between a dense text PDF (about 20) and a scan (about 200)
KNOWN_KINDS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result"}) | MEDIA


class Estimator(Protocol):
    """Counts tokens without asking a provider. `name` is stored beside what was estimated with it."""

    name: str

    def estimate(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def estimate_request(self, request: OutgoingRequest) -> int:
        """Tokens of the whole request, as it is sent (SPEC F1)."""
        ...


# --- blocks, messages, requests -----------------------------------------------------------------


def block_tokens(estimator: Estimator, block: Block) -> int:
    """Base units of a content or system block, rounded up.

    A block is weighed by its compact JSON, so that field names, ids and arguments count: they are the fixed
    overhead of a tool block. The cache mark weighs nothing. Images and documents have weights of their own,
    wherever in the content they stand, never the length of their base64.
    """
    try:
        return _weigh(estimator, block.data, False)
    except RecursionError:  # read at a shallower stack than this one
        return estimator.estimate(block.raw)


def message_tokens(estimator: Estimator, blocks: Iterable[Block]) -> int:
    """Base units of a message: its blocks and `MESSAGE_OVERHEAD`."""
    return MESSAGE_OVERHEAD + sum(block_tokens(estimator, block) for block in blocks)


def fixed_tokens(
    estimator: Estimator, system: Iterable[Block], tools: Iterable[Block], memory: Iterable[Block] = ()
) -> int:
    """Base units of what stands before the messages: system blocks, tool definitions, memory."""
    blocks = sum(block_tokens(estimator, block) for part in (system, memory) for block in part)
    return blocks + sum(_weigh(estimator, tool.data, True) for tool in tools)


def request_tokens(estimator: Estimator, request: OutgoingRequest) -> int:
    """Base units of the whole request: system, memory, tools, every block of every message (SPEC F1)."""
    fixed = fixed_tokens(estimator, request.system, request.tools, request.memory)
    return fixed + sum(message_tokens(estimator, message.blocks) for message in request.messages)


def _weigh(estimator: Estimator, data: dict[str, Any], escaped: bool) -> int:
    """`escaped`: providers count a tool definition, and blocks unknown to us, as JSON in whatever form they
    serialize it; the form with spaces and `\\uXXXX` is the longest."""
    kind, content, source = data.get("type"), data.get("content"), data.get("source")
    escaped = escaped or kind not in KNOWN_KINDS
    shell = {key: value for key, value in data.items() if key != "cache_control"}
    inside = 0
    if kind in MEDIA and isinstance(source, dict):
        shell["source"] = {"type": source.get("type")}
        inside = _media_tokens(estimator, kind == "image", source)
    elif isinstance(content, list) and all(isinstance(item, dict) for item in content):
        shell["content"] = []
        inside = sum(_weigh(estimator, item, escaped) + 1 for item in content)  # 1: the comma between
    elif isinstance(content, dict):
        shell["content"] = {}
        inside = _weigh(estimator, content, escaped)
    text = _compact(shell)
    longest = -(-len(json.dumps(shell)) // 4) if escaped else 0
    return inside + max(estimator.estimate(text), longest)


def _media_tokens(estimator: Estimator, is_image: bool, source: dict[str, Any]) -> int:
    data, content = source.get("data"), source.get("content")
    if is_image:
        return images.tokens_of(data if isinstance(data, str) else "")
    if source.get("type") == "base64":
        size = len(data) * 3 // 4 if isinstance(data, str) else 0
        return max(DOCUMENT_TOKENS, size // DOCUMENT_BYTES_PER_TOKEN)
    if isinstance(content, list):
        blocks = sum(_weigh(estimator, item, False) for item in content if isinstance(item, dict))
        return DOCUMENT_TOKENS + blocks
    return max(DOCUMENT_TOKENS, estimator.estimate(_compact(source)))


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- estimators ---------------------------------------------------------------------------------

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
_MARKS = b"!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~"  # a backslash is paid with what it escapes
_HIGH = bytes(range(128, 256))
_DENSE_LEADS = bytes((0xCE, 0xCF, *range(0xD4, 0xE0)))  # Greek, Armenian, Hebrew, Arabic: rarely merged
_NUMBERS = bytes(
    48 if i in _DIGITS else 32 if i == 32 else 46 for i in range(256)
)  # "0", space, "." for the rest
_BASE64 = bytes(97 if i in _LETTERS + _DIGITS + b"+/-_=" else 32 for i in range(256))
_BASE64_RUN = b"a" * 60


class HeuristicEstimator:
    """Tokens by character class, in hundredths, fitted on cl100k and o200k over prose, code, JSON, logs, `ls -lR`.

    Never below what two public rules of thumb say: UTF-8 bytes / 4, and ASCII characters / 4 + 1 for each wide
    (CJK, Kana, Hangul) character + 0.5 for each other, whatever spaces a JSON writer puts after `,` and `:`.
    Monotone: a longer text is never estimated lower than a part of it.
    """

    name = "heuristic-1"

    def estimate(self, text: str) -> int:
        """Tokens of a text, rounded up."""
        if text.isascii():
            ascii_bytes, others = text.encode(), 0
        else:
            ascii_bytes, others = _split_ascii(text.encode("utf-8", "surrogatepass"))
        spaces_left_out = ascii_bytes.count(b",") - ascii_bytes.count(b", ") + ascii_bytes.count(b'":')
        least = 25 * (len(ascii_bytes) + spaces_left_out)
        return -(-(max(least, _pieces(ascii_bytes) + _base64_extra(ascii_bytes)) + others) // 100)

    def estimate_request(self, request: OutgoingRequest) -> int:
        """Tokens of the whole request (SPEC F1)."""
        return request_tokens(self, request)


def _split_ascii(utf8: bytes) -> tuple[bytes, int]:
    """(the ASCII bytes, hundredths of a token of all other characters)."""
    ascii_bytes = utf8.translate(None, _HIGH)
    leads = utf8.translate(None, bytes(range(0xC0)))  # one byte for each character that is not ASCII
    four = len(leads) - len(leads.translate(None, bytes(range(0xF0, 0x100))))
    two = len(leads) - len(leads.translate(None, bytes(range(0xC0, 0xE0))))
    dense = len(leads) - len(leads.translate(None, _DENSE_LEADS))
    return ascii_bytes, 60 * two + 25 * dense + 100 * (len(leads) - two - four) + 280 * four


def _pieces(ascii_bytes: bytes) -> int:
    """Hundredths of a token by character class: digits and marks break words, and cost more than letters."""
    no_letters = ascii_bytes.translate(None, _LETTERS)
    no_words = no_letters.translate(None, _DIGITS)
    letters, digits = len(ascii_bytes) - len(no_letters), len(no_letters) - len(no_words)
    marks = len(no_words) - len(no_words.translate(None, _MARKS))
    breaks = no_words.count(b"\n") + ascii_bytes.count(b"\\n")
    spaced = ascii_bytes.count(b", ") + ascii_bytes.count(b": ")  # a space after a mark keeps it from merging
    pieces = 26 * letters + 45 * digits + 44 * marks + 15 * spaced + 115 * breaks
    if digits:
        numbers = ascii_bytes.translate(_NUMBERS)
        after_space = numbers.count(b" 0")  # a number takes no space with it, as a word does
        pieces += 190 * after_space + 80 * (numbers.count(b".0") + numbers.startswith(b"0"))
    return pieces


def _base64_extra(ascii_bytes: bytes) -> int:
    """Hundredths of a token that runs of base64 need above their pieces: 0.74 tokens a character in all.

    A run has 60 characters of the alphabet and mixes upper case, lower case and digits; words, paths, hex do not.
    """
    classes = ascii_bytes.translate(_BASE64)
    extra, start = 0, classes.find(_BASE64_RUN)
    while start >= 0:
        end = classes.find(b" ", start)
        run = ascii_bytes[start : end if end >= 0 else len(classes)]
        mixed = (
            len(run) - len(run.translate(None, _DIGITS)) >= 3
            and len(run) - len(run.translate(None, _LETTERS[:26])) >= 8
            and len(run) - len(run.translate(None, _LETTERS[26:])) >= 8
        )
        extra += max(0, 74 * len(run) - _pieces(run)) if mixed else 0
        start = classes.find(_BASE64_RUN, start + len(run))
    return extra


class TiktokenEstimator:
    """OpenAI's o200k_base, read from `TIKTOKEN_CACHE_DIR`; it never downloads.

    Raises `ValueError` when the vocabulary is not there.
    """

    name = "tiktoken-o200k"
    _FILE = (
        "fb374d419588a4632f3f557e76b4b70aebbca790"  # SHA-1 of the vocabulary's address: tiktoken's own rule
    )
    _PIECE = 100_000  # characters; one endless word would take more than linear time

    def __init__(self) -> None:
        folder = os.environ.get("TIKTOKEN_CACHE_DIR", "")
        wrong = f"HANGO_ESTIMATOR=tiktoken needs the vocabulary {self._FILE} in TIKTOKEN_CACHE_DIR={folder!r}"
        if not folder or not (Path(folder) / self._FILE).is_file():
            raise ValueError(wrong)
        import tiktoken  # noqa: PLC0415 -- only who chose this estimator pays for loading it

        try:
            self._encoding = tiktoken.get_encoding("o200k_base")
        except (OSError, ValueError) as error:
            raise ValueError(f"{wrong}, unbroken: {error}") from error

    def estimate(self, text: str) -> int:
        """Tokens of a text; text that looks like a special token is text."""
        text = exact.well_formed(text)
        pieces = (text[at : at + self._PIECE] for at in range(0, len(text), self._PIECE))
        return sum(len(self._encoding.encode(piece, disallowed_special=())) for piece in pieces)

    def estimate_request(self, request: OutgoingRequest) -> int:
        """Tokens of the whole request (SPEC F1)."""
        return request_tokens(self, request)


@cache
def estimator(name: str) -> Estimator:
    """The estimator that `HANGO_ESTIMATOR` names (`heuristic`, `tiktoken`), or that a session's counts were made
    with (an estimator's own `name`). Raises `ValueError`."""
    if name in ("heuristic", HeuristicEstimator.name):
        return HeuristicEstimator()
    if name in ("tiktoken", TiktokenEstimator.name):
        return TiktokenEstimator()
    raise ValueError(f"HANGO_ESTIMATOR is {name!r}; it must be heuristic or tiktoken")


# --- the anchored budget ------------------------------------------------------------------------

BELIEVED = (
    0.5,
    2.5,
)  # reported / estimated; a usage outside is not this request's (a session's sum, a stale one)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last request whose usage is known: `reported` tokens, `estimated` base units of that same request,
    and whether the next request shows the transcript under the same view."""

    reported: int
    estimated: int
    same_view: bool


def context_of(usage: dict[str, Any]) -> int:
    """Input tokens of the request that an Anthropic-shaped usage reports; 0: unknown, or more than any model takes.

    The three input fields are disjoint parts of one sum. With `iterations`, the top level adds up several
    requests, so the last one of type `message` decides (PROTOCOL section 4).
    """
    iterations = usage.get("iterations")
    entries = iterations if isinstance(iterations, list) else []
    messages = [entry for entry in entries if isinstance(entry, dict) and entry.get("type") == "message"]
    entry = messages[-1] if messages else usage
    fields = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    whole = sum(value for field in fields if type(value := entry.get(field)) is int and value > 0)
    return whole if whole <= MOST_TOKENS else 0


def believed(anchor: Anchor | None) -> bool:
    """Whether the reported usage is near enough to the estimate to be that request's (DESIGN section 5)."""
    if anchor is None or anchor.reported <= 0 or anchor.estimated <= 0:
        return False
    return BELIEVED[0] <= anchor.reported / anchor.estimated <= BELIEVED[1]


def factor(anchor: Anchor | None, default: float) -> float:
    """The model's tokens per base unit, as the anchor shows it; `default` without one that is believed."""
    return anchor.reported / anchor.estimated if anchor is not None and believed(anchor) else default


def measure(
    estimated_now: int, anchor: Anchor | None, default_factor: float
) -> tuple[int, Literal["usage", "estimate"]]:
    """(the model's tokens of the next request, where the number is from); at least 1.

    Under the same view: the reported usage plus what came since. What came is of unknown kind, so it counts by the
    larger factor; what went is taken off by the anchor's own. Under another view the old number says nothing about
    the size, only about the factor.
    """
    ratio = factor(anchor, default_factor)
    if anchor is not None and anchor.same_view and believed(anchor):
        change = estimated_now - anchor.estimated
        change_factor = max(ratio, default_factor) if change > 0 else ratio
        return max(1, anchor.reported + _up(change * change_factor)), "usage"
    return max(1, _up(estimated_now * ratio)), "estimate"


def _up(tokens: float) -> int:
    return int(-(-tokens // 1))
