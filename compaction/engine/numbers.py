"""The numbers of tokens that an error names: the window, the input, the output asked for.

Each is looked for by itself, since providers put them in every order; patterns are tried from the surest on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_N = r"(?<![0-9.,_])([0-9]{1,3}(?:[,_'][0-9]{3}){1,4}|[0-9]{1,12}(?:\.[0-9]{1,3})?[km]?)(?![0-9a-z])"
_GAP = r"[^0-9]{0,25}"
_MAX_TOKENS = r".?max_(?:new_|completion_|output_)?tokens"


@dataclass(frozen=True, slots=True)
class Stated:
    """Tokens that a provider named; None for what it did not say."""

    limit: int | None = None
    input: int | None = None
    output: int | None = None


def _all(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern.replace("#", _N), re.IGNORECASE) for pattern in patterns)


_SUM_OVER = re.compile(rf"(?:token|context|length|limit).{{0,60}}?{_N} \+ {_N} > {_N}", re.IGNORECASE)
_OVER_DIFFERENCE = re.compile(rf"{_N} > {_N} - {_N}", re.IGNORECASE)
_OVER = re.compile(rf"{_N}(?: tokens)? > {_N}(?! ?[-+])", re.IGNORECASE)
_PARTS = re.compile(
    rf"{_N} (?:tokens? )?(?:in|of|from) (?:the |your )?"
    r"(input messages|messages|functions|tools|prompt|(?:text|tool|image|audio|file) input)\b",
    re.IGNORECASE,
)
_INPUT = _all(
    r"resulted in #",
    r"# input tokens",
    r"(?:input|prompt)[ _]token[ _]count(?: is| of|:)? \(?#",
    r"(?:request|prompt) (?:contains|has)(?: at least)? # (?:\w{1,8} )?tokens",
    r"(?:inputs?|prompt|request|length)(?: tokens| length)? \([a-z ]{0,20}#",
    r"(?:input|prompt) length(?: is| of|:)? #",
    r"prompt is too long:? #",
    r"# .?inputs.? tokens",
    r"given:? #(?!.{0,3}inputs)",
    r"current length is #",
    r"n_prompt_tokens\W{0,4}#",
    r"supplied #",
    r"keep the first #",
)
_OUTPUT = _all(
    r"# (?:tokens? )?(?:in|for|of|from) (?:the |your )?(?:completion|output|response|generation)\b",
    r"# (?:output|completion) tokens",
    rf"#{_MAX_TOKENS}",
    rf"# {_MAX_TOKENS}",
    rf"{_MAX_TOKENS}.? is too large: #",
)
_TOTAL = _all(r"requested (?:about |at least )?# tokens", r"total of # tokens")
_LIMIT = _all(
    r"n_ctx\W{0,4}#",
    rf"max(?:imum)? context (?:length|window|size|limit)(?! by){_GAP}#",
    r"with # maximum context",
    rf"context (?:length|window|size|limit)(?! by){_GAP}#",
    r"maximum (?:model|prompt|input|sequence|allowed|allowed input) length[^0-9]{0,15}#",
    r"number of tokens allowed[^0-9]{0,5}#",
    r"supports? (?:only )?up to #",
    r"(?:configured|token) limit(?: of|:)? #",
    r"exceeds? (?:the )?limit of #",
    r"limit(?: is|:) #",
    r"must be (?:<=|less than or equal to|at most) #",
    r"must have (?:less|fewer) than #",
    r"input length should be \[[01], ?#",
    r"max size:? # tokens",
    r"max(?:imum)? input (?:length|tokens)(?: is|:)? #",
    r"cannot exceed #",
)
_RATE_LIMIT = _all(r"limit(?: is| of)?:? ?#")
_RATE_REQUESTED = _all(r"requested:? ?(?:about )?#", r"request of #")


def read(words: str) -> Stated:
    """The numbers in the words of an error."""
    if found := _SUM_OVER.search(words):
        return Stated(_value(found[3]), _value(found[1]), _value(found[2]))
    if found := _OVER_DIFFERENCE.search(words):
        return Stated(_value(found[2]), _value(found[3]), _value(found[1]))
    limit = _first(_LIMIT, words)
    given = sum({found[2].lower(): _value(found[1]) for found in _PARTS.finditer(words)}.values()) or None
    if given is None and (found := _OVER.search(words)):
        return Stated(_value(found[2]), _value(found[1]))
    given = given or _first(_INPUT, words)
    output, total = _first(_OUTPUT, words), _first(_TOTAL, words)
    if total is not None and output is None and given is not None and given < total:
        output = total - given
    elif total is not None and output is not None and given is None and output < total:
        given = total - output
    return Stated(limit, given, output)


def rate(words: str) -> tuple[int | None, int | None]:
    """(limit, requested) of a rate limit's words."""
    return _first(_RATE_LIMIT, words), _first(_RATE_REQUESTED, words)


def _first(patterns: Sequence[re.Pattern[str]], words: str) -> int | None:
    return next((_value(found[1]) for pattern in patterns if (found := pattern.search(words))), None)


def _value(text: str) -> int:
    """The number, of digits that may be grouped and a k or M behind them."""
    digits = re.sub(r"[,_']", "", text.lower())
    scale = {"k": 1_000, "m": 1_000_000}.get(digits[-1], 1)
    return round(float(digits.rstrip("km")) * scale)
