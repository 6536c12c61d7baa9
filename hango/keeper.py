"""Ends process groups when the process that started them is gone, even by SIGKILL.

It reads `+pid` and `-pid` lines from its standard input. The end of that input means that the starter
has ended: what is still noted then gets SIGTERM, and after a grace time SIGKILL. It works wherever there
are pipes, unlike Linux's parent-death signal. Runs as a script by its path, with the standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

GRACE_S = 3.0


class Keeper:
    """The starter's end: say which process groups (by their leader's id) must not outlive it."""

    def __init__(self) -> None:
        # A session of its own, so that neither Ctrl-C nor a kill of the starter's group reaches it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, group: int) -> None:
        self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._say(f"-{group}\n")

    def close(self) -> None:
        """End it; groups still noted are ended with it."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        if self._process.stdin:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


def signal_group(group: int, number: int) -> bool:
    """Whether there still was such a group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    groups = {group for group in groups if signal_group(group, signal.SIGTERM)}
    until = time.monotonic() + GRACE_S
    while groups and time.monotonic() < until:
        time.sleep(0.05)
        groups = {group for group in groups if signal_group(group, 0)}
    for group in groups:
        signal_group(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
