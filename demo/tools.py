"""The explorer's tools: they read real source trees and write notes, and never leave those folders."""

from __future__ import annotations

import hashlib
import importlib.machinery
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

MOST_ENTRIES = 200  # of one listing
MOST_HITS = 60  # of one grep
MOST_CHARS = 30_000  # of one file read: about 8k tokens
LONGEST_LINE = 160  # characters of a line that grep shows

_STRING, _WHOLE = {"type": "string"}, {"type": "integer", "minimum": 1}

DEFINITIONS: list[dict[str, Any]] = [
    {
        "name": name,
        "description": description,
        "input_schema": {"type": "object", "properties": properties, "required": required},
    }
    for name, description, properties, required in (
        (
            "list_dir",
            "Lists a folder: its entries in alphabetical order, folders with a slash, files with their size.",
            {"path": _STRING},
            ["path"],
        ),
        (
            "grep",
            "Searches Python files below a folder for a regular expression. One line a hit: path:line: text.",
            {"pattern": _STRING, "path": _STRING},
            ["pattern", "path"],
        ),
        (
            "read_file",
            "Reads a file with line numbers: `limit` lines from line `offset` on. Long answers are cut off.",
            {"path": _STRING, "offset": _WHOLE, "limit": _WHOLE},
            ["path"],
        ),
        (
            "write_file",
            "Writes a file below notes/, whole. Answers with its size and revision.",
            {"path": _STRING, "content": _STRING},
            ["path", "content"],
        ),
    )
]


class Refused(Exception):
    """What a tool answers as an error."""


def installed(*packages: str) -> dict[str, Path]:
    """The source folders of installed packages, by name. Raises LookupError for one that is not there."""
    found = {}
    for name in packages:
        spec = importlib.machinery.PathFinder.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise LookupError(f"{name} is not installed as a package")
        found[name] = Path(spec.submodule_search_locations[0])
    return found


class Tools:
    """Reads below `trees` (name → folder), reads and writes below `notes/`. Same trees, same answers."""

    def __init__(self, trees: Mapping[str, Path], notes: Path) -> None:
        self._roots = {name: folder.resolve() for name, folder in trees.items()} | {"notes": notes.resolve()}

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """(the tool's text, whether it is an error)."""
        run: dict[str, Callable[..., str]] = {
            "list_dir": self.list_dir,
            "grep": self.grep,
            "read_file": self.read_file,
            "write_file": self.write_file,
        }
        try:
            return run[name](**arguments), False
        except Refused as refused:
            return str(refused), True

    def list_dir(self, path: str) -> str:
        folder = self._at(path)
        if not folder.is_dir():
            raise Refused(f"{path}: not a folder")
        entries = sorted(entry for entry in folder.iterdir() if entry.name != "__pycache__")
        lines = [
            f"{e.name}/" if e.is_dir() else f"{e.name}  {e.stat().st_size}" for e in entries[:MOST_ENTRIES]
        ]
        return "\n".join(
            [*lines, *([f"… {len(entries) - MOST_ENTRIES} more"] if len(entries) > MOST_ENTRIES else [])]
        )

    def grep(self, pattern: str, path: str) -> str:
        wanted = re.compile(pattern)
        hits: list[str] = []
        for file in self._sources(self._at(path)):
            for number, line in enumerate(_lines(file), 1):
                if wanted.search(line):
                    hits.append(f"{self._name(file)}:{number}: {line.strip()[:LONGEST_LINE]}")
                    if len(hits) == MOST_HITS:
                        return "\n".join([*hits, "… stopped here; narrow the pattern for more"])
        return "\n".join(hits) or "no hits"

    def read_file(self, path: str, offset: int = 1, limit: int = 2_000) -> str:
        file = self._at(path)
        if not file.is_file():
            raise Refused(f"{path}: no such file")
        lines = _lines(file)
        shown = "\n".join(
            f"{n:>6}\t{line}" for n, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset)
        )
        if not shown:
            raise Refused(f"{path}: has only {len(lines)} lines")
        return shown if len(shown) <= MOST_CHARS else shown[:MOST_CHARS] + "\n… cut off; go on with offset"

    def write_file(self, path: str, content: str) -> str:
        file = self._at(path)
        if not file.is_relative_to(self._roots["notes"]):
            raise Refused(f"{path}: only notes/ can be written")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        return f"wrote {len(content.encode())} bytes to {path}; revision {revision(content)}"

    def _at(self, path: str) -> Path:
        root, _, rest = path.partition("/")
        if root not in self._roots:
            raise Refused(f"{path}: not below {', '.join(self._roots)}")
        found = (self._roots[root] / rest).resolve()
        if not found.is_relative_to(self._roots[root]):
            raise Refused(f"{path}: leads out of {root}/")
        return found

    def _name(self, file: Path) -> str:
        root = next(name for name, folder in self._roots.items() if file.is_relative_to(folder))
        return f"{root}/{file.relative_to(self._roots[root]).as_posix()}"

    def _sources(self, below: Path) -> Iterator[Path]:
        if below.is_file():
            yield below
        elif below.is_dir():
            yield from (f for f in sorted(below.rglob("*.py")) if f.resolve().is_relative_to(below))


def revision(content: str) -> str:
    """A short name of a file's content."""
    return f"rev-{int(hashlib.sha256(content.encode()).hexdigest(), 16) % 10**8:08d}"


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines()
