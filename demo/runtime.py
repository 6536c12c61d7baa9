"""The agent's runtime: per turn one build over HTTP, the "model's" answer, and its usage."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from compaction.engine import tokens, types
from demo import client, explorer, record, tools
from tests.upstream import strict_anthropic

WINDOW = 64_000
MODEL = "claude-sonnet-4-5"
SESSION = "demo"
API = "/api/v1/sessions/"
_ESTIMATOR = tokens.estimator("heuristic")


class Runtime:
    """Drives one session of `agent` against hango. `pace_s`: how long the "model" takes to answer."""

    def __init__(self, api: client.Client, agent: explorer.Explorer, pace_s: float) -> None:
        self._api, self._agent, self._pace_s = api, agent, pace_s
        self._cache = strict_anthropic.Cache()
        self._cut = self._dropped = 0
        self.recording = record.Recording(WINDOW, planted=agent.planted)

    def run(self, show: Callable[[record.Turn, record.Recording], None]) -> None:
        """The session from its creation to its last answer; `show` sees each turn. Raises client.Failed."""
        self._api.post(
            API,
            {
                "id": SESSION,
                "model": MODEL,
                "max_tokens": 4_096,
                "system": explorer.SYSTEM,
                "tools": tools.DEFINITIONS,
                "limits": {"max_input_tokens": WINDOW},
            },
        )
        new = self._agent.ask()
        while True:
            number, request = self._build(new, show)
            time.sleep(self._pace_s)
            message, stop_reason = self._agent.answer()
            self._complete(number, request, message, stop_reason)
            if stop_reason == "tool_use":
                new = self._agent.results(message)
            elif len(self.recording.turns) < self._agent.turns:
                new = self._agent.ask()
            else:
                break
        self._read_back()

    def _build(
        self, new: dict[str, Any], show: Callable[[record.Turn, record.Recording], None]
    ) -> tuple[int, dict[str, Any]]:
        began = datetime.now(UTC)
        answer = self._api.post(f"{API}{SESSION}/requests/", {"messages": [new]})
        built = answer.data
        request, used, budget = built["request"], built["compaction"], built["budget"]
        self._note_message(new)
        turn = record.Turn(
            number=built["turn"],
            sent=strict_anthropic.count(request),
            budget=budget["input_tokens"],
            trigger=budget["trigger"],
            precompute=budget["precompute_at"],
            action=self._action(built),
            build_ms=answer.ms,
            waited_ms=answer.waited_ms,
            inside=bool(used and used["applied_now"] and datetime.fromisoformat(used["created_at"]) >= began),
            fault=fault(request)
            or covered(built["coverage"], len(self.recording.appended))
            or tampered(answer),
        )
        self.recording.turns.append(turn)
        self.recording.last_request, self.recording.last_compaction = request, used
        self.recording.evicted = built["coverage"]["verbatim"][0]
        show(turn, self.recording)
        return turn.number, request

    def _action(self, built: dict[str, Any]) -> record.Action:
        cut, dropped = built["truncated_tool_args"], (built["coverage"]["dropped"] or [0, 0])[1]
        more_cut, more_dropped = cut > self._cut, dropped > self._dropped
        self._cut, self._dropped = cut, dropped
        if built["compaction"] and built["compaction"]["applied_now"]:
            return "swapped"
        if more_dropped:
            return "dropped"
        if more_cut:
            return "truncated"
        return "deferred" if built["deferred"] else "nothing"

    def _complete(
        self, number: int, request: dict[str, Any], message: dict[str, Any], stop_reason: str
    ) -> None:
        usage = self._cache.use(request)
        self.recording.cache_read += usage["cache_read_input_tokens"]
        usage["output_tokens"] = strict_anthropic.weigh(message["content"])
        closed = self._api.post(
            f"{API}{SESSION}/turns/{number}/complete/",
            {"message": message, "stop_reason": stop_reason, "usage": usage},
        ).data
        # Repeated ids are shown renamed, and told; anything else would be the runtime's mistake.
        told = [warning for warning in closed["warnings"] if not warning.startswith("id-renamed")]
        if closed["status"] != "completed" or told:
            raise client.Failed(f"turn {number} was not closed as it should be: {closed}")
        self._note_message(message)

    def _note_message(self, message: dict[str, Any]) -> None:
        weights = weigh(message)
        self.recording.appended.append(message)
        self.recording.raw_tokens += sum(weights) + tokens.MESSAGE_OVERHEAD
        if message["role"] == "user":
            self.recording.largest_result = max(self.recording.largest_result, *weights)

    def _read_back(self) -> None:
        self.recording.session = self._api.get(f"{API}{SESSION}/").data
        page = f"{API}{SESSION}/messages/?limit=200"
        while page:
            found = self._api.get(page).data
            self.recording.stored += [{"role": m["role"], "content": m["content"]} for m in found["results"]]
            following = urlsplit(found["next"] or "")
            page = f"{following.path}?{following.query}" if following.path else ""
        self.recording.history = self._api.get(f"{API}{SESSION}/history/").text


def weigh(message: dict[str, Any]) -> list[int]:
    """hango's own weights of a message's blocks, in tokens."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [tokens.block_tokens(_ESTIMATOR, types.Block.of(block)) for block in blocks]


def fault(request: dict[str, Any]) -> str | None:
    """Why the strict rules refuse a request; None when they take it."""
    try:
        strict_anthropic.check_request(request)
    except strict_anthropic.Refused as refused:
        return str(refused)
    return None


def covered(coverage: dict[str, Any], messages: int) -> str | None:
    """What is wrong with a coverage: a gap, an overlap, or not everything up to the newest message."""
    following = 0
    for name in ("summarised", "dropped", "verbatim"):
        if span := coverage[name]:
            if span[0] != following:
                return f"coverage: {name} begins at {span[0]}, not at {following}"
            following = span[1] + 1
    return (
        None if following == messages else f"coverage: ends before {following}, there are {messages} messages"
    )


def tampered(answer: client.Answer) -> str | None:
    """Whether the digest that came with a request is not that of its bytes."""
    return None if answer.digest_of("request") == answer.data["digest"] else "the digest is not the request's"
