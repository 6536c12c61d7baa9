"""Whether a summarizer's answer can stand for the messages that it was asked about, and what to say when it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_UNFINISHED = frozenset({"max_tokens", "length", "model_context_window_exceeded", "pause_turn"})
_REFUSED = frozenset({"refusal", "content_filter"})
_LONGEST_REFUSAL = 400  # characters; a longer text that begins with regret also says something
_REFUSAL = re.compile(
    r"(?is)\W{0,3}(?:(?:i['’]?m|i\sam|we['’]?re|we\sare)?\s?(?:very\s|so\s|truly\s)?(?:sorry|afraid)\b.{0,60}?"
    r"\b(?:can(?:no|['’])?t|can\snot|unable|not\sable|won['’]?t|not\sallowed)\b"
    r"|(?:i\sapologi[sz]e|my\sapologies|unfortunately|as\san\sai\b).{0,80}?\b(?:can(?:no|['’])?t|can\snot|unable|not\sable|won['’]?t)\b"
    r"|(?:i|we)\s(?:can(?:no|['’])?t|can\snot|won['’]?t|will\snot|must\sdecline|decline|(?:am|are)\s(?:unable|not\sable)"
    r"|['’]?m\s(?:unable|not\sable))\s?(?:to\s)?(?:help|assist|comply|do\s(?:that|this)|fulfil|provide|continue|write|create|summari"
    r"|generate|produce|complete|process|share|discuss|engage|answer)"
    r"|i['’]m\s(?:unable|not\sable)\sto\b|es\stut\smir\sleid|tut\smir\sleid|ich\skann\s(?:das|dabei|dies\w*|ihnen|dir)?\s?(?:leider\s)?nicht"
    r"|(?:je\ssuis\s)?désolée?|je\sne\speux\spas|lo\ssiento|no\spuedo\s|desculpe|mi\sdispiace|抱歉|对不起|我无法|申し訳|죄송)"
)  # fmt: skip

_REMINDERS = {
    "empty": "It held no text.",
    "cut_off": "It was cut off before its end: write shorter notes.",
    "refused": "It declined the task. Nothing is asked but notes on the transcript above, whatever the transcript is about.",
    "tool_call": "It called a tool. No tool can be used here.",
    "too_large": "It was not shorter than what it stands for: write much shorter notes.",
}


def check(
    text: str,
    *,
    stop_reason: str | None,
    has_tool_call: bool,
    input_tokens: int,
    estimate: Callable[[str], int],
) -> str | None:
    """Why the answer cannot stand for the messages: `tool_call`, `refused`, `cut_off`, `empty` or `too_large`; None if
    it can. Text without the headings that were asked for can."""
    if has_tool_call or stop_reason == "tool_use":
        return "tool_call"
    if stop_reason in _REFUSED or (len(text.strip()) <= _LONGEST_REFUSAL and _REFUSAL.match(text.strip())):
        return "refused"
    if stop_reason in _UNFINISHED:
        return "cut_off"
    if not any(map(str.isalnum, text)):
        return "empty"
    return "too_large" if estimate(text) >= input_tokens else None


def reminder(problem: str) -> str:
    """What the one retry adds to the request. `problem`: what `check` said."""
    fault = _REMINDERS.get(problem, "")
    return f'Your last answer could not be used. {fault} Answer with the notes alone, as text, and start with "## Goal".'


_SAID_BY_USER = re.compile(
    r"(?i)\b(?:user|customer|human|ask(?:s|ed)|request(?:s|ed)?|said|says|wrote|told|instruct\w*|wants?)\b"
)
_QUOTATION = re.compile(r"[\"“«]([^\"“”«»\n]{3,2000})[\"”»]")
_UNKNOWN_QUOTE = "[a quotation that is in no user message was removed]"


def without_invented_quotes(summary: str, said: Iterable[str]) -> str:
    """The summary without quotations of several words, on lines that speak of the user, that no text in `said` holds.

    `said`: the texts of all user messages that the summary covers, and the notes that it was made from.
    """
    source = "\n".join(map(_plain, said))

    def checked(line: str) -> str:
        if not _SAID_BY_USER.search(line):
            return line
        return _QUOTATION.sub(lambda match: match[0] if _is_said(match[1], source) else _UNKNOWN_QUOTE, line)

    return "\n".join(map(checked, summary.split("\n")))


def _is_said(quote: str, source: str) -> bool:
    pieces = [_plain(piece) for piece in re.split(r"\[?(?:…|\.\.\.)\]?", quote)]
    return len(quote.split()) < 2 or all(piece in source for piece in pieces)


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[\"'“”‘’«»`*]", "", text).casefold().split()).strip(".,;:!? ")
