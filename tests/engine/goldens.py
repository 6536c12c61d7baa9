"""Golden files: texts that are read before they are approved. `HANGO_TEST_GOLDEN=write` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def same(name: str, text: str) -> bool:
    """Whether the text is what stands in tests/golden under this name."""
    path = FOLDER / name
    if os.environ.get("HANGO_TEST_GOLDEN") == "write":
        path.write_bytes(text.encode())
    return path.read_bytes() == text.encode()
