"""Identifiers in text: what a summary must not lose, and the ledger of what it lost (SPEC F9).

A text is cut into words by one character class and each word is looked at once, words over a length not at all,
so the time is linear in the text. Secrets are taken out first, by known formats and never by entropy, so none is
ever returned. Plain numbers, dates and tool-call ids are not identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from compaction.engine import quoting, redaction
from compaction.engine.types import Message

redact_secrets = redaction.redact_secrets
_LONGEST_WORD = 200
_TYPED = 2_000  # characters at either end of a user's text that count as typed; what lies between was pasted

_URL = re.compile(
    r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s\"'`<>|\\^{}\u3000-\u303f\uff00-\uffef]{1,2000}"
)
_WORD = re.compile(r"[\w./\\:@#+~-]+")
_NARROW = re.compile(r"[A-Za-z0-9_./\\:@#+~-]+")
_ESCAPED_END = re.compile(r"\\+(?:[nrt]|(?=[\"'])|$)")  # `\n` inside JSON that was printed into a text
_DRIVE = re.compile(r"(?:[A-Zc-e]:[\\/]|\\\\\w)[\w.\\/@#+~-]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T_]\d.*)?")

_ARN = re.compile(r"arn:[a-z-]+:[\w:/.@+-]+")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?|localhost:\d{2,5}|[a-z][a-z0-9-]*:\d{4,5}"
                      r"|[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}:\d{2,5}")  # fmt: skip
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_VERSION = re.compile(r"v\d+(?:\.\d+)+[\w.+-]*|\d+\.\d+\.\d+[\w.+-]*")
_HEX = re.compile(r"(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}|(?=[0-9A-F]*\d)(?=[0-9A-F]*[A-F])[0-9A-F]{7,64}"
                  r"|0x[0-9a-fA-F]{4,64}")  # fmt: skip
_ISSUE = re.compile(r"(?:[\w.-]+/[\w.-]+)?#\d{2,7}")
_TICKET = re.compile(
    r"(?:[A-Z][A-Z0-9]*(?:[-_][A-Z0-9]+)*-\d{1,8}|[A-Za-z][A-Za-z0-9]{1,15}(?:-[A-Za-z0-9]+)*-\d{2,8})"
)
_CODE = re.compile(r"(?=[A-Z0-9]*[A-Z])(?=[A-Z]*\d[A-Z]*\d)[A-Z0-9]{5,12}")
_NAMED = re.compile(r"(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_-]{4,48}")  # and three digits: run_20260114_7, 4471-TEST
_AMOUNT = re.compile(r"\d+[A-Za-z]{1,4}")
_FILE = re.compile(r"[\w.@+~-]*[\w)]\.([A-Za-z][A-Za-z0-9]{0,11})")
_PATH = re.compile(r"(?:~|\.{1,2})?/?(?:[\w.@+~#-]+/)*[\w.@+~#-]*")
_LINE = re.compile(r"(?::\d+){1,2}$")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EXTENSIONS = _words(
    "bak bat bin bmp bz2 c cc cfg clj cmd conf cpp cs csproj css csv dart db diff doc docx dockerfile dylib ejs env erl ex "
    "exe exs fish gif go gql gradle graphql gz h hcl hpp hs html htm ico ini ipynb java jar jpeg jpg js json jsonl json5 "
    "jsx kt kts less lib lock log lua m map md mdx mjs ml mm mov mp3 mp4 mustache nix odt orig parquet patch pb pdf pem "
    "php pickle pkl pl png po ppt pptx properties proto ps1 psd pub py pyc pyi pyx r rake rar rb rego rs rst rtf sass scala "
    "scss sh sln so sql sqlite sqlite3 srt step styl svelte svg swift tar tex tf tfvars tgz tif tiff toml ts tsv tsx ttf "
    "txt vb vue wasm wav webm webp whl woff woff2 xls xlsx xml xsd xz yaml yml zip zsh zst"
)
_PATH_KEYS = _words("path paths file files file_path filepath filename file_name notebook_path target_file source_path "
                       "old_path new_path source destination directory dir")  # fmt: skip
_PLAIN_FILES = frozenset({".env", ".gitignore", ".dockerignore", ".editorconfig", "Dockerfile", "Makefile"})
_COMMON = _words("node.js vue.js next.js utf-16 utf-32 sha256 sha384 sha512 sha-256 sha-512 iso8601 iso-8601 x86_64 "
                    "utf16 utf32 top-10 aes-128 aes-256 base64 win32")  # fmt: skip


def find(text: str) -> list[str]:
    """The identifiers of a text, each once, in order of first appearance; never a secret, never an encoded run."""
    text = redact_secrets(quoting.harmless(text))
    hits: list[tuple[int, str]] = []
    covered: list[tuple[int, int]] = []
    for match in _URL.finditer(text):
        covered.append(match.span())
        hits.extend((match.start(), url) for url in _of_url(match[0]))
    covered.append((len(text), len(text)))
    at = 0
    for match in _WORD.finditer(text):
        word = match[0]
        if (word.isalpha() and word not in _PLAIN_FILES) or word.isdigit() or len(word) > _LONGEST_WORD:
            continue
        while covered[at][1] < match.end():
            at += 1
        if match.end() <= covered[at][0]:
            hits.extend((match.start(), found) for found in _of_word(word))
    hits.sort(key=lambda hit: hit[0])
    return list(dict.fromkeys(found for _, found in hits))


def _of_url(url: str) -> Iterator[str]:
    url, removed, _ = url.partition("[secret")
    url, query, rest = url.partition("?")
    if removed and not query:
        return  # what is left ends in the middle of the address
    url = url if removed else url + query + rest
    while url[-1] in ".,;:!?*'" or (
        url[-1] in ")]" and url.count("(" if url[-1] == ")" else "[") < url.count(url[-1])
    ):
        url = url[:-1]
    if len(url.partition("://")[2]) > 2:
        yield url


def _of_word(word: str) -> Iterator[str]:
    word = word.rstrip(".:@~+-\\").lstrip(":")
    if _DRIVE.fullmatch(place := _LINE.sub("", word)):
        yield place
        return
    for part in _ESCAPED_END.split(word):
        # Scripts without spaces: in `打开src/a.py文件` the identifier is the narrow part, in `报告.docx` the whole.
        narrow = [] if part.isascii() else [_of_part(x) for x in _NARROW.findall(part) if x[0].isalnum()]
        yield from filter(None, narrow if any(narrow) else _of_parts(part))


def _of_parts(part: str) -> Iterator[str]:
    if found := _of_part(part):
        yield found
    elif ":" in part:
        yield from filter(None, map(_of_part, part.split(":")))


def _of_part(part: str) -> str:
    """The identifier that a word without spaces is, or nothing."""
    part = part.strip(":").rstrip(".:@~+-\\")
    if not any(map(str.isalnum, part)) or part.startswith(("toolu_", "srvtoolu_")) or part.lower() in _COMMON:
        return ""
    if any(kind.fullmatch(part) for kind in (_ARN, _UUID, _EMAIL, _VERSION, _HEX, _ISSUE)):
        return part
    if _encoded(part) or _DATE.fullmatch(part):
        return ""
    place = _LINE.sub("", part)
    if place in _PLAIN_FILES or _is_file(place) or _is_path(place):
        return place
    if _ADDRESS.fullmatch(part) or _is_named(part):
        return part
    return ""


def _encoded(part: str) -> bool:
    """A run of base64 or the like: long, without a separator, and of mixed case with digits."""
    return (
        len(part) >= 40
        and not any(sign in part for sign in "._-")
        and part.lower() != part
        and part.upper() != part
        and any(map(str.isdigit, part))
    )


def _is_file(part: str) -> bool:
    match = _FILE.fullmatch(part)
    return (
        match is not None
        and match[1].lower() in _EXTENSIONS
        and len(part) > len(match[1]) + (2 if len(match[1]) < 2 else 1)
    )


def _is_path(part: str) -> bool:
    """Slashes alone do not make a path (and/or, 24/7, km/h): it starts at a root, or is deep, or its names look it."""
    part = part[:1] + part[1:].replace("\\", "/")
    if "/" not in part or "//" in part or not _PATH.fullmatch(part):
        return False
    names = [name for name in part.split("/") if name.strip(".~")]
    if not names or all(name.isdigit() for name in names) or any(len(name) > 80 for name in names):
        return False
    if part[0] in "/~." or len(names) > 2:
        return len("".join(names)) > 2
    last = names[-1]
    return part.endswith("/") or any(sign in last for sign in "._-#") or any(map(str.isdigit, last))


def _is_named(part: str) -> bool:
    if _TICKET.fullmatch(part) or _CODE.fullmatch(part):
        return True
    return bool(_NAMED.fullmatch(part)) and sum(map(str.isdigit, part)) > 2 and not _AMOUNT.fullmatch(part)


# --- the ledger


@dataclass(frozen=True, slots=True)
class Ledger:
    """Identifiers of evicted messages, the most needed first: all, those that stand in the summary, and those that
    the summary lost and the ledger carries."""

    found: tuple[str, ...]
    kept: tuple[str, ...]
    listed: tuple[str, ...]


@dataclass(slots=True)
class _Use:
    typed: bool = False  # by the user
    messages: int = 0
    role: int = 0  # 2 a user's text, 1 the assistant's text and arguments, 0 results and pasted text
    last: int = -1  # seq


def ledger(
    messages: Iterable[Message], summary: str, *, limit_tokens: int, estimate: Callable[[str], int]
) -> Ledger:
    """Which identifiers of the messages the summary kept, and as many of the lost ones as fit `limit_tokens`.

    What the user typed comes first, then what was used in more messages, then by role, then the newest.
    """
    uses: dict[str, _Use] = {}
    for message in messages:
        weights: dict[str, int] = {}
        for identifier, weight in _weighted(message):
            weights[identifier] = max(weight, weights.get(identifier, 0))
        for identifier, weight in weights.items():
            use = uses.setdefault(identifier, _Use())
            use.typed = use.typed or weight == 2
            use.messages += 1
            use.role = max(use.role, weight)
            use.last = message.seq
    found = sorted(
        uses, key=lambda one: (-uses[one].typed, -uses[one].messages, -uses[one].role, -uses[one].last, one)
    )
    kept = {identifier for identifier in found if stands_in(identifier, summary)}
    listed = _fitting([one for one in found if one not in kept], limit_tokens, estimate)
    return Ledger(tuple(found), tuple(one for one in found if one in kept), tuple(listed))


def lines(identifiers: Iterable[str]) -> str:
    """The ledger as text, one identifier a line; this is what `ledger` measures."""
    return "".join(f"- {identifier}\n" for identifier in identifiers)


def stands_in(identifier: str, text: str) -> bool:
    """Whether the identifier stands in the text as it is, not only as a part of a longer word."""
    exactly = rf"(?<![A-Za-z0-9_]){re.escape(identifier)}(?![A-Za-z0-9_])"
    return identifier in text and re.search(exactly, text) is not None


def _fitting(identifiers: list[str], limit: int, estimate: Callable[[str], int]) -> list[str]:
    listed: list[str] = []
    used = 0
    for identifier in identifiers:
        tokens = estimate(lines([identifier]))
        if used + tokens <= limit:
            listed.append(identifier)
            used += tokens
        elif limit - used < 2:
            break
    while listed and estimate(lines(listed)) > limit:
        listed.pop()
    return listed


def _weighted(message: Message) -> Iterator[tuple[str, int]]:
    """(identifier, role as in `_Use`) of what may hold identifiers; thinking holds none that matter."""
    for block in message.blocks:
        if block.kind == "text":
            typed = (
                set(find(block.text[:_TYPED]) + find(block.text[-_TYPED:]))
                if len(block.text) > 2 * _TYPED
                else None
            )
            for identifier in find(block.text):
                if message.role == "user":
                    yield identifier, 2 if typed is None or identifier in typed else 0
                else:
                    yield identifier, 1
        elif block.kind == "tool_use":
            for text in strings(block.data.get("input")):
                yield from ((identifier, 1) for identifier in find(text))
            yield from ((path, 1) for path in paths(block.data.get("input")))
        elif block.kind == "tool_result":
            for part in quoting.result_parts(block.data.get("content")):
                yield from ((identifier, 0) for identifier in find(str(part.get("text", ""))))


def strings(value: Any) -> Iterator[str]:
    """The strings of a JSON value, in order, but for those whose key says that they are secret."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            stack.extend(item for key, item in reversed(one.items()) if not redaction.names_a_secret(key))
        elif isinstance(one, list):
            stack.extend(reversed(one))


def paths(arguments: Any) -> Iterator[str]:
    """The file paths that a tool call names in arguments made for them, spaces and all; none that holds a secret."""
    for key, value in arguments.items() if isinstance(arguments, dict) else ():
        if key in _PATH_KEYS:
            for path in value if isinstance(value, list) else [value]:
                if (
                    isinstance(path, str)
                    and 0 < len(path) <= _LONGEST_WORD
                    and path == quoting.one_line(path, len(path)) == redact_secrets(path)
                ):
                    yield path
