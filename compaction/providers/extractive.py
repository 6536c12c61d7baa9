"""A briefing without a model: what the user asked, which files and calls there were, which errors, what was said last.

It is deterministic, takes no time, and serves requests that have to fit while no model's summary is there. Its own
earlier text is read back and continued, so that folding works; any other earlier notes are carried along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from compaction.engine import exact, identifiers, quoting
from compaction.engine.types import Message

TITLE = "Notes made without a model: extracts, in the order of the session, no interpretation."
NOTES, REQUESTS, FILES, CALLS, ERRORS, SAID = (
    "Earlier notes", "What the user asked", "Files", "Calls", "Errors", "What the assistant said last",
)  # fmt: skip

# How fast a section's older lines lose against the other sections'.
_WEIGHT = {NOTES: 8.0, REQUESTS: 6.0, FILES: 4.0, CALLS: 3.0, ERRORS: 2.0, SAID: 1.0}
_PREVIEW = 240  # characters of a request, an error or a statement
_ARGUMENT = 60  # characters of an argument in a call's signature
_NEWEST = 400  # lines of a section that are looked at at all


@dataclass
class _Notes:
    """Lines by section, oldest first; a line that comes again moves to the end. Files map to their tools, calls to
    their counts."""

    lines: dict[str, dict[str, None]] = field(default_factory=lambda: {name: {} for name in _WEIGHT})
    files: dict[str, dict[str, None]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    newest: str = ""  # the newest request, whole

    def add(self, section: str, line: str) -> None:
        if line:
            self.lines[section].pop(line, None)
            self.lines[section][line] = None

    def touch(self, path: str, tools: Sequence[str]) -> None:
        known = self.files.pop(path, {})
        self.files[path] = known | dict.fromkeys(tool for tool in tools if tool)

    def count(self, signature: str, times: int) -> None:
        self.calls[signature] = self.calls.pop(signature, 0) + times

    def entries(self, section: str) -> list[str]:
        if section == FILES:
            return [f"{path}: {', '.join(tools)}" if tools else path for path, tools in self.files.items()]
        if section == CALLS:
            return [f"{times} × {signature}" for signature, times in self.calls.items()]
        return list(self.lines[section])


def summarise(
    messages: Sequence[Message], previous: str | None, *, max_tokens: int, estimate: Callable[[str], int]
) -> str:
    """Notes on the messages of at most `max_tokens`; the newest request is kept whole if it takes no more than half."""
    notes = _Notes()
    if previous:
        _read(notes, previous)
    for message in messages:
        _note(notes, message)
    return _fitted(notes, max_tokens, estimate)


# --- messages → notes


def _note(notes: _Notes, message: Message) -> None:
    for block in message.blocks:
        if block.text.strip():
            if message.role == "user":
                notes.newest = _safe(block.text)
            notes.add(REQUESTS if message.role == "user" else SAID, _preview(block.text))
            _mention(notes, block.text)
        elif block.kind == "tool_use":
            name, arguments = _preview(str(block.data.get("name"))), block.data.get("input")
            notes.count(_signature(name, arguments), 1)
            for path in identifiers.paths(arguments):
                notes.touch(path, [name])
        elif block.kind == "tool_result" and block.data.get("is_error"):
            texts = (str(part.get("text", "")) for part in quoting.result_parts(block.data.get("content")))
            notes.add(ERRORS, _preview(" ".join(texts)))


def _mention(notes: _Notes, text: str) -> None:
    for identifier in identifiers.find(text[: 4 * _PREVIEW]):
        if "/" in identifier and "://" not in identifier:
            notes.touch(identifier, [])


def _signature(name: str, arguments: object) -> str:
    shown = arguments if isinstance(arguments, dict) else {"": arguments}
    pairs = (f"{key}={exact.dumps(_short(value))}" for key, value in shown.items())
    return identifiers.redact_secrets(quoting.one_line(f"{name} {' '.join(pairs)}", _PREVIEW))


def _short(value: object) -> object:
    if isinstance(value, int | float | bool) or value is None:
        return value
    return quoting.one_line(value if isinstance(value, str) else exact.dumps(value), _ARGUMENT)


def _safe(text: str) -> str:
    return identifiers.redact_secrets(quoting.harmless(text)).strip()


def _preview(text: str) -> str:
    """The text's beginning on one line; secrets are taken out before it is cut, so that none is cut in two."""
    return quoting.one_line(identifiers.redact_secrets(text[: 16 * _PREVIEW]), _PREVIEW)


# --- notes → text → notes


def _fitted(notes: _Notes, max_tokens: int, estimate: Callable[[str], int]) -> str:
    room = max_tokens - estimate(TITLE) - sum(estimate(f"\n## {section}\n") for section in _WEIGHT)
    chosen: dict[str, dict[int, str]] = {section: {} for section in _WEIGHT}
    taken: list[tuple[str, int]] = []
    large = {NOTES: room // 3, REQUESTS: room // 2}
    for _, section, at, line in _ranked(notes):
        bullet = _bullet(_shortened(line, large.get(section, room), estimate))
        tokens = estimate(bullet)
        if tokens <= room:
            chosen[section][at] = bullet
            taken.append((section, at))
            room -= tokens
    text = _text(chosen)
    while estimate(text) > max_tokens and taken:
        section, at = taken.pop()
        del chosen[section][at]
        text = _text(chosen)
    return text


def _shortened(text: str, tokens: int, estimate: Callable[[str], int]) -> str:
    shown, limit = text, len(text)
    while limit > _PREVIEW and estimate(shown) > tokens:
        limit = max(_PREVIEW, limit * 2 // 3)
        shown = quoting.clip(text, limit)
    return shown


def _ranked(notes: _Notes) -> list[tuple[float, str, int, str]]:
    """(rank, section, position, line), the most needed first: newest lines, weighted by section; the newest request
    comes before all, the first one counts as new, since it is what the session is for."""
    ranked: list[tuple[float, str, int, str]] = []
    for section, weight in _WEIGHT.items():
        lines = notes.entries(section)
        first = max(1, len(lines) - _NEWEST)
        ranked.extend(((len(lines) - at) / weight, section, at, lines[at]) for at in range(first, len(lines)))
        if lines:
            ranked.append(((1 if section == REQUESTS else len(lines)) / weight, section, 0, lines[0]))
    if notes.newest:
        newest = len(notes.lines[REQUESTS]) - 1
        ranked = [entry for entry in ranked if entry[1:3] != (REQUESTS, newest)]
        ranked.append((0.0, REQUESTS, newest, notes.newest))
    return sorted(ranked, key=lambda entry: entry[0])


def _text(chosen: dict[str, dict[int, str]]) -> str:
    parts = [TITLE]
    for section, bullets in chosen.items():
        if bullets:
            parts.append(f"\n## {section}")
            parts.extend(bullets[at] for at in sorted(bullets))
    return "\n".join(parts)


def _bullet(line: str) -> str:
    """A line that starts with `- `; what follows in it is indented, so that it can pass for nothing else."""
    return "- " + "\n  ".join(line.splitlines())


def _bullets(text: str) -> Iterator[tuple[str, str]]:
    """(section, line) of a text of ours."""
    section, line = "", ""
    for row in [*text.splitlines(), "## "]:
        if row.startswith("  "):
            line += "\n" + row[2:]
            continue
        if line and section in _WEIGHT:
            yield section, line
        line = row[2:] if row.startswith("- ") else ""
        section = row[3:] if row.startswith("## ") else section


def _read(notes: _Notes, previous: str) -> None:
    """Takes up earlier notes: our own line by line, others as they are."""
    if not previous.startswith(TITLE):
        notes.add(NOTES, _safe(previous))
        return
    for section, line in _bullets(previous):
        times, _, signature = line.partition(" × ")
        path, _, tools = line.rpartition(": ")
        if section == CALLS and times.isdecimal():
            notes.count(signature, int(times))
        elif section == FILES:
            notes.touch(path or line, tools.split(", ") if path else [])
        elif section == REQUESTS:
            notes.newest = line
            notes.add(section, line if "\n" not in line else _preview(line))
        else:
            notes.add(section, line)
