"""Secrets in text, recognised by the formats that are publicly known and by the name of what is assigned, never by
entropy: what merely looks random is more often a hash or an id, and must survive.

Each expression is possessive or bounded, so the time is linear in the text.
"""

from __future__ import annotations

import re

REMOVED = "[secret removed]"

_NAMES = (
    r"(?:passwords?|passwd|passphrase|pwd|secret|secret[_-]?(?:access[_-]?)?key|private[_-]?key|api[_-]?key"
    r"|(?:access|auth|refresh|api|bearer|secret)[_-]?token|(?-i:_TOKEN))"
)
_GAP = r"(?:\s|\\[nr])*+"  # also where a text holds printed JSON
_QUOTE = r"\\{0,3}[\"']"

# (signs in lower case of which one must be in the text, so that most texts are never searched; what to look for, the
# part that stays before the secret as its first group)
_FORMATS = [
    (("-----begin",),  # headers and lines of base64, as far as they go; the short last line only before its END
     rf"()-----BEGIN [A-Z0-9 ]{{0,40}}KEY(?: BLOCK)?-----(?:{_GAP}(?:[A-Za-z-]{{1,20}}: ?[^\n\\]{{0,100}}(?:\n|\\n)|[A-Za-z0-9+/=]{{16,}}+))*+"
     rf"(?:{_GAP}[A-Za-z0-9+/=]{{0,15}}{_GAP}-----END [A-Z0-9 ]{{0,40}}KEY(?: BLOCK)?-----)?"),
    (("sk-",), r"()(?<![\w-])sk-(?:[\w-]{20,}+|(?=[\w-]*\d)[\w-]{8,}+)"),
    (("k_live_", "k_test_", "whsec_"), r"()(?<![A-Za-z0-9])(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{8,}+"),
    (("gh", "github_pat_", "glpat-", "hf_", "npm_", "pypi-"),
     r"()(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|hf_|npm_|pypi-AgEI)[\w-]{8,}+"),
    (("xox", "xapp-"), r"()(?<![A-Za-z0-9])(?:xox[a-z]|xapp)-[\w-]{6,}+"),
    (("akia", "asia"), r"()(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,}+"),
    (("aiza",), r"()(?<![A-Za-z0-9])AIza[\w-]{30,}+"),
    (("sg.",), r"()(?<![A-Za-z0-9])SG\.[\w-]{16,}+\.[\w-]{16,}+"),
    (("eyj",), r"()(?<!\w)eyJ[\w-]{6,}+\.[\w-]{4,}+(?:\.[\w-]*+)?"),
    (("bearer",), r"(?i)(\bbearer\s{1,3})(?:[\w.~+/=-]{20,}+|(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}+)"),
    (("basic",), r"(?i)(\bauthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?basic\s{1,3})[A-Za-z0-9+/=]{8,}+"),
    (("://",), r"(://[^\s/:@]{0,80}:)[^\s/@\[]{1,200}(?=@)"),
    # name=value, name: "value", and name: value with a digit in it; not code such as f(x) or a.b[0]
    (("pass", "pwd", "secret", "key", "token"),
     rf"(?i)({_NAMES}(?:{_QUOTE})?\s{{0,3}}"
     rf"(?:=\s{{0,3}}(?:{_QUOTE})?|:\s{{0,3}}{_QUOTE}|:\s{{0,3}}(?=[^\s\"',;&]*\d)))"
     r"(?!(?:none|null|true|false|undefined|string)\b)[^\s\"',;&(){}\[\]<>$\\]{4,}+(?![(\[{])"),
]  # fmt: skip
_SECRETS = [(signs, re.compile(pattern)) for signs, pattern in _FORMATS]
_SECRET_KEY = re.compile(rf"(?i){_NAMES}$")


def redact_secrets(text: str) -> str:
    """The text with each secret of a known format replaced by `[secret removed]`; the secret's name stays."""
    lowered = text.lower()
    for signs, pattern in _SECRETS:
        if any(map(lowered.__contains__, signs)):
            text = pattern.sub(_value_removed, text)
    return text


def _value_removed(match: re.Match[str]) -> str:
    return match[1] + REMOVED


def names_a_secret(key: str) -> bool:
    """Whether a member of this name holds a secret, whatever it looks like."""
    return _SECRET_KEY.search(key) is not None
