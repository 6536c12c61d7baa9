"""An agent without a model: it lists, greps, reads and takes notes, and the same tree gives the same session.

What it does next depends on what its tools answered: it reads around the places that its own grep found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from demo import tools

SYSTEM = """\
You explore source trees and explain how they work. You have four tools; paths begin with the name of a package \
(django/db/models/query.py) or with notes/.

- Look before you read: list the folder, grep for the definitions, then read around the places found.
- Call tools in parallel when one call does not need the other's answer.
- Never answer from memory what the code can tell. Cite path and line.
- Keep notes in the file that the user names, and list every notes file with its revision in notes/index.md.
- When a part of the conversation has been summarised, the summary names the file that holds it whole; read it with \
read_file when a detail is missing.
- Nothing outside notes/ may be changed. Identifiers from the user are copied character by character.
"""

AROUND = 36  # lines read around a place
PLACES = 6  # places read in one parallel round
INDEX = "notes/index.md"
ROUNDS = 19  # model calls on one request


@dataclass(frozen=True, slots=True)
class Topic:
    """One request of the user. `planted`: identifiers in it that must still be known when it is long evicted."""

    ask: str
    where: str
    notes: str
    patterns: tuple[str, ...]
    planted: tuple[str, ...] = ()


TOPICS = (
    Topic(
        "HGO-4711: how does Django turn a queryset into SQL? Read django/db/models/sql, keep notes in notes/HGO-4711.md. "
        "The slow query is trace 7f3a9c1e2b on db-eu-3.internal:5433; ask ana.ruiz@example.org.",
        "django/db/models/sql", "notes/HGO-4711.md", (r"def (as_sql|resolve_|get_)", r"\bclass \w+", r"    def \w+"),
        ("HGO-4711", "notes/HGO-4711.md", "7f3a9c1e2b", "db-eu-3.internal:5433", "ana.ruiz@example.org"),
    ),
    Topic(
        "Now HGO-4890: look how REST framework validates input (rest_framework), notes in notes/HGO-4890.md. The refused call "
        "was /api/orders/83112/confirm, request 0d4e7f52-6b1c-4a8e-9f27-3c5d8b6a1e90.",
        "rest_framework", "notes/HGO-4890.md", (r"def (run_valid|to_internal|validate)", r"raise \w*Error", r"\bclass \w+"),
        ("HGO-4890", "notes/HGO-4890.md", "/api/orders/83112/confirm", "0d4e7f52-6b1c-4a8e-9f27-3c5d8b6a1e90"),
    ),
    Topic(
        "Then HGO-5022: how does a Celery worker acknowledge a task? celery/worker, notes in notes/HGO-5022.md. Seen in "
        "run_20260114_7; never touch the queue orders-prio-02.",
        "celery/worker", "notes/HGO-5022.md", (r"def (on_|acknowledge|reject|execute)", r"\backs?_\w+", r"\bclass \w+|    def \w+"),
        ("HGO-5022", "notes/HGO-5022.md", "run_20260114_7", "orders-prio-02"),
    ),
    Topic(
        "Now look how Django finds out that a migration is missing: django/db/migrations, notes in notes/migrations.md.",
        "django/db/migrations", "notes/migrations.md", (r"def (generate_|detect_|_detect)", r"\bclass \w+", r"    def \w+"),
    ),
    Topic(
        "Next, how kombu's transports give back a message that was not acknowledged: kombu/transport, notes/kombu.md.",
        "kombu/transport", "notes/kombu.md", (r"def (restore|_restore|basic_|qos)", r"\bclass \w+", r"    def \w+"),
    ),
    Topic(
        "Now look how a Django form cleans its data: django/forms, notes in notes/forms.md.",
        "django/forms", "notes/forms.md", (r"def (clean|_clean|full_clean|to_python)", r"\bclass \w+", r"    def \w+"),
    ),
    Topic(
        "How does a Django template become nodes, and nodes text? django/template, notes in notes/template.md.",
        "django/template", "notes/template.md", (r"def (render|compile_|parse)", r"\bclass \w+", r"    def \w+"),
    ),
    Topic(
        "Now look how Celery sends a task, from delay() to the broker: celery/app, notes in notes/celery-app.md.",
        "celery/app", "notes/celery-app.md", (r"def (send_|apply|delay|as_task)", r"\bclass \w+", r"    def \w+"),
    ),
    Topic(
        "Last, how the admin builds its change list: django/contrib/admin, notes in notes/admin.md. Then we are done.",
        "django/contrib/admin", "notes/admin.md", (r"def (get_queryset|get_results|changelist)", r"\bclass \w+", r"    def \w+"),
    ),
)  # fmt: skip

Call = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class Explorer:
    """The agent and its runtime in one: `ask`, then `answer` and `results` in turns until an answer has no calls."""

    tools: tools.Tools
    topics: Sequence[Topic] = TOPICS
    rounds: int = ROUNDS
    planted: dict[str, str] = field(default_factory=dict)  # identifier → where it came from
    largest_result: int = 0  # characters
    _topic: int = -1
    _round: int = 0
    _calls: int = 0
    _grepped: int = 0
    _places: dict[tuple[str, int], None] = field(default_factory=dict)
    _files: list[str] = field(default_factory=list)
    _found: list[str] = field(default_factory=list)
    _index: list[str] = field(default_factory=list)

    @property
    def turns(self) -> int:
        """Model calls of the whole session."""
        return len(self.topics) * self.rounds

    @property
    def _now(self) -> Topic:
        return self.topics[self._topic]

    def ask(self) -> dict[str, Any]:
        """The user's next request."""
        self._topic += 1
        self._round = self._grepped = 0
        self._places, self._files, self._found = {}, [], []
        if self._topic % 3 == 2:
            self._calls = 0  # some runtimes count anew: the ids of earlier calls come again
        self.planted |= dict.fromkeys(self._now.planted, f"request {self._topic + 1}")
        return {"role": "user", "content": self._now.ask}

    def answer(self) -> tuple[dict[str, Any], str]:
        """(the assistant's next message, its stop reason)."""
        said, calls = self._decide()
        self._round += 1
        blocks: list[dict[str, Any]] = [{"type": "text", "text": said}]
        for name, arguments in calls:
            self._calls += 1
            blocks.append(
                {"type": "tool_use", "id": f"call_{self._calls:04d}", "name": name, "input": arguments}
            )
        return {"role": "assistant", "content": blocks}, "tool_use" if calls else "end_turn"

    def results(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The user message with what the tools said to the calls of `answer`."""
        blocks = []
        for call in answer["content"]:
            if call["type"] != "tool_use":
                continue
            text, failed = self.tools.call(call["name"], call["input"])
            self._look_at(call["name"], call["input"], text)
            self.largest_result = max(self.largest_result, len(text))
            block = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
            blocks.append(block | ({"is_error": True} if failed else {}))
        return {"role": "user", "content": blocks}

    # --- what next

    def _decide(self) -> tuple[str, list[Call]]:
        left = self.rounds - self._round
        if self._round == 0:
            calls: list[Call] = [("list_dir", {"path": self._now.where}), ("read_file", {"path": INDEX})]
            return f"I look at {self._now.where} and at my notes first.", calls
        if left == 1:
            return self._conclusion(), []
        if left == 2:
            return "Now the notes and their index.", self._write_notes()
        return self._read_more()

    def _read_more(self) -> tuple[str, list[Call]]:
        if self._round % 6 == 1:
            return self._search()
        if self._round == 5 and self._files:
            path = self._most_read()
            said = f"{path} is central here, so I read it from its beginning."
            return said, [("read_file", {"path": path, "limit": 900})]
        if self._round % 6 == 4 and self._files:
            return "A longer piece, to see how these parts meet.", [self._read_on(150)]
        return self._read_places()

    def _search(self) -> tuple[str, list[Call]]:
        pattern = self._now.patterns[self._grepped % len(self._now.patterns)]
        self._grepped += 1
        return f"I search {self._now.where} for `{pattern}`.", [
            ("grep", {"pattern": pattern, "path": self._now.where})
        ]

    def _read_places(self) -> tuple[str, list[Call]]:
        chosen = [place for place, _ in zip(list(self._places), range(PLACES), strict=False)]
        for place in chosen:
            del self._places[place]
        if not chosen:
            return self._search()
        first, line = chosen[0]
        said = f"Reading around {len(chosen)} of the places found, from {first}:{line} on; {len(self._places)} are left."
        return said, [
            ("read_file", {"path": path, "offset": max(1, line - 3), "limit": AROUND})
            for path, line in chosen
        ]

    def _read_on(self, limit: int) -> Call:
        path = self._files[(self._round + self._topic) % len(self._files)]
        return "read_file", {"path": path, "offset": 1 + limit * (self._round // 6), "limit": limit}

    def _most_read(self) -> str:
        return max(dict.fromkeys(self._files), key=self._files.count)

    def _write_notes(self) -> list[Call]:
        topic = self._now
        lines = [
            f"# {topic.ask}",
            "",
            f"{len(self._found)} definitions seen, in the order of reading:",
            "",
            *self._found[:80],
        ]
        content = "\n".join(lines) + "\n"
        self._index.append(f"- {topic.notes} {tools.revision(content)}")
        index = "# Notes\n\n" + "\n".join(self._index) + "\n"
        return [
            ("write_file", {"path": topic.notes, "content": content}),
            ("write_file", {"path": INDEX, "content": index}),
        ]

    def _conclusion(self) -> str:
        seen = (
            ", ".join(line.removeprefix("- ") for line in self._found[:6]) or "nothing that the request names"
        )
        return (
            f"It begins with {seen}; the rest is built on these. The {len(self._found)} definitions that I read are in "
            f"{self._index[-1].removeprefix('- ')}."
        )

    # --- what the tools said

    def _look_at(self, name: str, arguments: dict[str, Any], text: str) -> None:
        if name == "grep":
            for path, line in _hits(text):
                self._files.append(path)
                self._places.setdefault((path, line))
        elif name == "read_file" and arguments["path"] != INDEX:
            defined = re.findall(r"(?m)^ *(\d+)\t *(?:def|class) (\w+)", text)
            self._found += [f"- {arguments['path']}:{line} {what}" for line, what in defined]
        elif name == "write_file" and arguments["path"] != INDEX and self._topic < 3:
            self.planted[text.rsplit(" ", 1)[-1]] = f"result of write_file, request {self._topic + 1}"


def _hits(text: str) -> Iterator[tuple[str, int]]:
    for path, line in re.findall(r"(?m)^([\w./-]+):(\d+): ", text):
        yield path, int(line)
