"""How providers say what is wrong with a request, as data: which status, code and words mean which kind.

`classify` applies the tables in the order of its docstring. Patterns are searched in text whose white space is single
spaces, whatever the case; every repetition in them is bounded, so that a search takes linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a provider's answer means for the request that it answers."""

    OVERFLOW = "OVERFLOW"  # the input is too long: compact
    OVERFLOW_OUT = "OVERFLOW_OUT"  # the input fits, with the output asked for it does not: lower max_tokens
    BODY = "BODY"  # too many bytes, whatever their tokens
    RATE = "RATE"  # wait
    RATE_SINGLE = "RATE_SINGLE"  # one request above the limit of a minute: waiting never helps
    ENTITLE = "ENTITLE"  # this account may not do that
    PARAM = "PARAM"
    MEDIA = "MEDIA"
    SEQ = "SEQ"  # the order of messages, calls and results
    BINDING = "BINDING"  # thinking that is bound to another conversation
    SERVER = "SERVER"
    NONE = "NONE"  # nothing is wrong
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Signal:
    """One row: the kind that is meant when everything that the row names is found."""

    kind: Kind
    text: re.Pattern[str] | None  # in the words
    code: re.Pattern[str] | None  # in the error's type, or in a code of the JSON inside its message
    provider: re.Pattern[str] | None
    status: frozenset[int]
    unless: re.Pattern[str] | None  # not in the words


def row(
    kind: Kind,
    text: str = "",
    *,
    code: str = "",
    provider: str = "",
    status: tuple[int, ...] = (),
    unless: str = "",
) -> Signal:
    text_, code_, provider_, unless_ = (
        re.compile(pattern, re.IGNORECASE) if pattern else None for pattern in (text, code, provider, unless)
    )
    return Signal(kind, text_, code_, provider_, frozenset(status), unless_)


_CONTEXT = r"context[ _-]?(?:length|window|size|limit)"
_INPUT = r"(?:prompt|inputs?|requests?|messages?|sequence|conversation|tokens?)"
_MAX_TOKENS = r"max_?(?:new_|completion_|output_)?tokens"

# (1) An answer that came: why it ended.
STOPS = (
    row(
        Kind.OVERFLOW,
        r"context_window_exceeded|context_length_exceeded|\bmodel_length\b|\berror_limit\b|contextlengthreached",
    ),
    row(  # the input filled the window, so that no room was left to answer in
        Kind.OVERFLOW,
        r"^(?=.{0,400}(?:length|max_tokens|max_output_tokens))(?=.{0,400}output(?:_tokens)?\s?=\s?0\b)"
        r"(?=.{0,400}input(?:_tokens)?\s?>=?\s?[0-9.]{0,6}\s?\*?\s?window)",
    ),
    row(Kind.OVERFLOW, r"\busage\.input(?:_tokens)?\s?>\s?window\b"),
)

# (2) Limits of a minute or a day, first of all errors: their words look most like an overflow's.
RATES = (
    row(Kind.RATE, status=(429,)),
    row(
        Kind.RATE,
        r"(?<![a-z])rate.?limit|per.?minute|per.?(?:hour|day|second)(?![a-z])|tokens per min|(?<![a-z])[tr]p[md](?![a-z])"
        r"|quota|throttl|please wait|(?:ramp|acceleration) limit|too many requests|resource.?exhausted"
        r"|(?:hourly|daily|weekly|monthly) (?:token )?limit|usage limit reached|error code: 429"
        r"|\"(?:code|status|status_code)\": ?\"?429\b",
    ),
)
LONG_CONTEXT = re.compile(r"long.context", re.IGNORECASE)
TOO_LARGE_AT_ONCE = re.compile(r"request (?:is )?too large", re.IGNORECASE)

# (3) The provider's own trouble, of an error that has no status.
SERVERS = (
    row(
        Kind.SERVER,
        code=r"overloaded|^api_error$|internal_(?:error|failure)|internal_?server|^server_error|unavailable|timeout"
        r"|bad_?gateway|modelnotready",
    ),
    row(
        Kind.SERVER, r"\boverloaded\b|internal (?:server )?error|service unavailable|bad gateway|gateway time"
    ),
)

# (4) Codes that always mean the same.
CODES = (
    row(
        Kind.OVERFLOW,
        code=r"context_?(?:length|window|size)_?(?:exceeded|overflow|error)|exceed_context_size|prompt_tokens_exceeded"
        r"|tokens_limit_reached|(?:prompt|input)_too_long|context_?overflow|max_context_length",
    ),
    row(Kind.OVERFLOW, code=r"^1261$", provider=r"z\.?ai|zhipu|glm|bigmodel"),
    row(
        Kind.BODY,
        code=r"request_too_large|(?:body|payload|entity|content)_?too_?large|body_size|contenttoolarge",
    ),
    row(Kind.MEDIA, code=r"image_dimensions|too_many_images|image_too_large|invalid_image|image_parse"),
)

# (5) What is wrong with the request besides its length.
FAULTS = (
    row(
        Kind.BINDING,
        r"bound to a different conversation|invalid .?signature.? in .?thinking|prefix_mismatch_behavior",
    ),
    row(
        Kind.SEQ,
        r"without .?tool_result|unexpected .?tool_use_id|must have a single result|ids must be unique|was found without a"
        r"|corresponding .?(?:server_)?tool_(?:use|result)|followed by tool messages|insufficient tool messages"
        r"|response to a prece+ding|no tool (?:output|call) found|roles must alternate|(?:end|ends) with a user message"
        r"|first message must|without its required|exceeds the number of tooluse|number of function (?:response|call)"
        r"|function call turn|expected last role|latest assistant message cannot be modified|expected .?thinking"
        r"|must start with a thinking|at least one message is required",
    ),
    row(
        Kind.MEDIA,
        r"too many (?:images|documents|pdf)|too much media|pdf pages|document pages|many-image requests|image dimensions?"
        r"|image exceeds|image.{0,40}(?:too large|too big|exceeds? .{0,30}(?:[mk]b|bytes|pixels))|could not process image"
        r"|(?:at most|up to) [0-9]{1,4} images?|images? (?:may|can) be provided|unsupported image|max(?:imum)? .{0,20}images",
    ),
    row(
        Kind.PARAM,
        r"maximum (?:allowed )?number of output tokens|supports at most .{0,15}(?:completion|output) tokens"
        r"|valid range of max|range of max_|maximum tokens you requested|maxoutputtokens value|maximum value for .?max_tokens"
        r"|maximum output length|budget_tokens|max_(?:new_|completion_|output_)?tokens must be at least"
        r"|extra inputs are not permitted|unsupported (?:parameter|value)|unrecognized (?:request )?argument"
        r"|unknown parameter|is not supported (?:on|for|with|by) this model",
    ),
    row(  # the output asked for is more than the model ever writes
        Kind.PARAM,
        _MAX_TOKENS
        + r".{0,30}(?:must be (?:less|greater|smaller|positive|between|<|at)|too (?:large|big|high)"
        r"|exceeds? (?:the )?(?:limit|maximum|max))",
        unless=r"\binputs?\b|prompt|" + _CONTEXT,
    ),
    row(
        Kind.BODY,
        r"string too long.{0,80}(?:maximum length [0-9]{6,12}\b)|'(?:messages|input)': array too long"
        r"|(?:\.content|\.text|\.output|\.arguments|'instructions'|'input')[^ ]{0,20}: string too long",
    ),
    row(Kind.PARAM, r"(?:string|array) too (?:long|short)|(?:string|array) with (?:maximum|minimum) length"),
    row(
        Kind.BODY,
        r"(?:payload|request body|entity|message size|content size|request size|body size|content length)\b.{0,60}"
        r"(?:exceed|too large|larger than)|body too large|maximum content size|member must have length"
        r"|request (?:exceeds|is larger than) the maximum (?:allowed )?(?:number of bytes|size)"
        r"|max(?:imum)? (?:request|body|payload) size|exceed.{0,40}(?:\bbytes\b|[0-9] ?[mkg]i?b\b)"
        r"|request too large.{0,10}max.{0,4} [0-9.]{1,6} ?mb",
        unless=r"\btokens\b|" + _CONTEXT,
    ),
    row(
        Kind.ENTITLE,
        r"long.context.{0,40}(?:beta|requests?|required|not (?:yet )?available)|requires more credits|credit balance",
    ),
)

# (7) Words for an input that is too long.
OVERFLOWS = (
    row(
        Kind.OVERFLOW,
        r"\b(?:prompt|input|conversation|context|(?:user )?messages?)(?: text| length| tokens)?(?: is| are| was)?"
        r" too (?:long|large)\b|too long (?:for|to fit)|too large for (?:the |this )?model with",
        unless=r"(?:for the|input is too large to) (?:name|process)",
    ),
    row(
        Kind.OVERFLOW,
        r"max(?:imum)? (?:context|prompt|model) (?:length|limit|size|window)(?: (?:is|of|for|by|exceeded)\b| ?[:(=])",
    ),
    row(
        Kind.OVERFLOW,
        r"exceed(?:s|ed|ing)?\b.{0,60}(?:" + _CONTEXT + r"|\b(?:model|available|the) context\b)",
    ),
    row(
        Kind.OVERFLOW,
        r"\b"
        + _INPUT
        + r"\b.{0,60}\bexceed(?:s|ed|ing)?\b.{0,40}(?:token limit|tokens (?:allowed|limit)|number of tokens"
        r"|max(?:imum)?(?: \w{1,12}){0,2} length|configured limit|max_(?:model_len|seq_len|input_tokens))",
    ),
    row(Kind.OVERFLOW, r"token count\b.{0,60}(?:exceed|supports? (?:only )?up to)"),
    row(
        Kind.OVERFLOW,
        r"(?:longer|greater|larger|more) than\b.{0,50}(?:"
        + _CONTEXT
        + r"|model length|max(?:imum)? (?:input|sequence|tokens))",
    ),
    row(
        Kind.OVERFLOW,
        _CONTEXT
        + r"(?: has| was| is| been| limit){0,3} (?:exceed|overflow|full|reached|too small)|"
        + _CONTEXT
        + "_?exceeded"
        r"|context (?:the )?overflow|contextwindowexceeded|reached context length|n_keep.{0,30}n_ctx",
    ),
    row(
        Kind.OVERFLOW,
        r"range of input length|inputs?\W{0,3} must have (?:less|fewer) than|max size:? [0-9,_]{1,15} tokens",
    ),
    row(
        Kind.OVERFLOW,
        r"(?:reduce|shorten|decrease)(?: the| your)? (?:length of (?:the |your )?)?(?:input )?(?:messages|prompts?|inputs?)\b"
        r"|(?:use|try|provide)(?: using)? (?:a |an )?(?:shorter|fewer|smaller) (?:or fewer )?(?:prompt|inputs?|messages)",
        unless=_MAX_TOKENS + r" (?:must|is)",
    ),
    row(
        Kind.OVERFLOW,
        r"too many (?:input |prompt )?tokens|input tokens exceeded|token limit (?:has been |was |is )?exceeded"
        r"|(?:exceed(?:s|ed)?|over) (?:the )?(?:model |input |maximum |max )?token limit|tokens in request more than",
        unless=r"output tokens",
    ),
    row(
        Kind.OVERFLOW,
        "超长|超(?:过|出|限).{0,12}(?:长度|上下文|token)|(?:长度|上下文|输入|token).{0,12}(?:超|过长)",
    ),
)

# (8) What is left: a status without words, and codes that say little.
REST = (
    row(
        Kind.OVERFLOW,
        r"^(?:error code: |http )?(?:400|413)?(?: status code)? ?(?:\(?no body\)?)?$",
        provider="cerebras",
        status=(400, 413),
    ),
    row(Kind.BODY, status=(413,)),
    row(Kind.ENTITLE, code=r"billing|permission|insufficient_(?:credits|balance)|payment_required"),
    row(
        Kind.PARAM,
        code=r"(?:unsupported|unknown|missing_required|invalid)_(?:parameter|value|type)|_(?:above|below)_m",
    ),
)
