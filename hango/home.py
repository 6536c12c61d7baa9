"""`HANGO_HOME`: the folder that holds everything of the embedded default."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def prepare(folder: Path) -> None:
    """Make the folder and its history, for this user only (it holds transcripts and a key)."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "history").mkdir(mode=0o700, exist_ok=True)


def secret_key(folder: Path) -> str:
    """Django's signing key, made at the first call, in `secret_key` (mode 0600).

    Several processes may start at once: all of them get the key of whoever was first.
    """
    path = folder / "secret_key"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").strip()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".secret_key.{os.getpid()}.{secrets.token_hex(4)}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(50))
    try:
        # A link appears whole or not at all, and refuses to replace another's.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text(encoding="ascii").strip()
