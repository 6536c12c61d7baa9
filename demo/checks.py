"""What must hold at the end. Every check looks at what was recorded, never at what hango says about itself alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from demo.record import Recording

LEAST_TURNS = 150
LEAST_RAW_TOKENS = 400_000
MOST_WAIT_MS = 50


@dataclass(frozen=True, slots=True)
class Check:
    """One line at the end: what was looked at, whether it holds, what was found."""

    name: str
    holds: bool
    found: str


def all_of(run: Recording) -> list[Check]:
    """Every check of a whole run, in the order of printing."""
    return [
        _long_enough(run), _compacted(run), _no_build_waited(run), _inside_the_window(run), _valid(run), _nothing_dropped(run),
        _transcript_untouched(run), _history_readable(run), _identifiers_kept(run),
    ]  # fmt: skip


def _long_enough(run: Recording) -> Check:
    return Check(
        "turns",
        len(run.turns) >= LEAST_TURNS and run.raw_tokens >= LEAST_RAW_TOKENS,
        f"{len(run.turns)} with {run.raw_tokens:,} tokens of raw transcript, the largest result {run.largest_result:,} "
        f"(at least {LEAST_TURNS} and {LEAST_RAW_TOKENS:,})",
    )


def _compacted(run: Recording) -> Check:
    counted = run.session.get("compactions")
    truncated = sum(turn.action == "truncated" for turn in run.turns)
    found = f"{len(run.swaps)} summaries swapped in, {truncated} truncations, {_deferred(run)} builds deferred one"
    if counted != len(run.swaps):
        found += f"; but the session's counter says {counted}"
    return Check("compactions", bool(run.swaps) and counted == len(run.swaps), found)


def _deferred(run: Recording) -> int:
    return sum(turn.action == "deferred" for turn in run.turns)


def _no_build_waited(run: Recording) -> Check:
    waited = [turn for turn in run.turns if turn.waited_ms > MOST_WAIT_MS or turn.inside]
    slowest = max((turn.build_ms for turn in run.turns), default=0.0)
    found = f"{len(waited)} waited for a compaction or made one; the slowest of all took {slowest:.0f} ms over HTTP"
    if waited:
        found += "; " + ", ".join(
            f"turn {t.number}: {t.waited_ms:.0f} ms{' inside' if t.inside else ''}" for t in waited[:5]
        )
    return Check("builds that waited", not waited, found)


def _inside_the_window(run: Recording) -> Check:
    sent = max((turn.sent for turn in run.turns), default=0)
    budget = max((turn.budget for turn in run.turns), default=0)
    return Check(
        "largest request",
        max(sent, budget) <= run.window,
        f"{sent:,} tokens by the strict count, {budget:,} by hango's budget, of {run.window:,}",
    )


def _valid(run: Recording) -> Check:
    faults = [turn for turn in run.turns if turn.fault]
    found = f"{len(run.turns) - len(faults)} of {len(run.turns)} by the strict rules"
    return Check(
        "valid requests", not faults, found + "".join(f"; turn {t.number}: {t.fault}" for t in faults[:3])
    )


def _nothing_dropped(run: Recording) -> Check:
    dropped = [str(turn.number) for turn in run.turns if turn.action == "dropped"]
    return Check("messages dropped", not dropped, f"in turn {', '.join(dropped)}" if dropped else "none")


def _transcript_untouched(run: Recording) -> Check:
    different = list(_differences(run.appended, run.stored))
    found = (
        f"{len(run.stored)} messages read back, {len(different)} differ from the {len(run.appended)} appended"
    )
    return Check("transcript", not different, found + (f"; the first is {different[0]}" if different else ""))


def _differences(appended: list[dict[str, Any]], stored: list[dict[str, Any]]) -> Iterator[int]:
    """The positions at which the two differ in any byte, order of keys included."""
    for at, (one, other) in enumerate(zip_longest(appended, stored)):
        if json.dumps(one) != json.dumps(other):
            yield at


def _history_readable(run: Recording) -> Check:
    path = str(run.session.get("history_path"))
    missing = [name for name, text in _early(run) if text not in run.history]
    summary = json.dumps(run.last_request.get("messages", [])[:1], ensure_ascii=False)
    if path not in summary:
        missing.append("its path in the summary")
    found = f"{path}, {len(run.history.splitlines()):,} lines"
    return Check(
        "history",
        run.evicted > 2 and not missing,
        found + (f"; missing: {', '.join(missing)}" if missing else ""),
    )


def _early(run: Recording) -> Iterator[tuple[str, str]]:
    """(what, text) of the first messages, which were evicted long ago."""
    if len(run.appended) > 2:
        yield "the first request", run.appended[0]["content"]
        yield "the first result", run.appended[2]["content"][0]["content"].splitlines()[0]


def _identifiers_kept(run: Recording) -> Check:
    """The planted ones were all said in messages that the last request does not show any more."""
    visible = json.dumps(run.appended[run.evicted :], ensure_ascii=False)
    request = json.dumps(run.last_request, ensure_ascii=False)
    lost = [f"{name} ({where})" for name, where in run.planted.items() if name not in request]
    still = [name for name in run.planted if name in visible]
    found = f"{len(run.planted) - len(lost)} of {len(run.planted)} planted early stand in the last request"
    if run.last_compaction:
        counts = run.last_compaction["identifiers"]
        found += f"; the last compaction found {counts['found']}, kept {counts['kept']}"
    if still:
        found += f"; {len(still)} of them were said again lately"
    return Check(
        "identifiers", bool(run.planted) and not lost, found + (f"; lost: {', '.join(lost)}" if lost else "")
    )
