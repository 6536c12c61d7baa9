"""`python -m hango.reference [FILE]`: the table of settings, printed or written between FILE's two marks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hango import env

BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"


def table() -> str:
    """Markdown, one row for each variable, in the order in which the settings read them."""
    from hango import settings  # noqa: F401, PLC0415 - reading the settings fills the registry

    rows = ["| variable | default | accepts | meaning |", "|---|---|---|---|"]
    for setting in env.REGISTRY.values():
        default = f"`{setting.default}`" if setting.default else ""
        cells = (f"`{setting.name}`", default, setting.accepts, setting.meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    if not arguments:
        print(table())  # noqa: T201 - that is what was asked for
        return 0
    path = Path(arguments[0])
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        print(f"{path} lacks {BEGIN} … {END}", file=sys.stderr)  # noqa: T201
        return 1
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    # Reading the settings must leave no secret key behind.
    os.environ.setdefault("HANGO_SECRET_KEY", "unused")
    sys.exit(main(sys.argv[1:]))
