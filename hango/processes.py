"""Child processes that never outlive their starter, each leading a process group of its own."""

from __future__ import annotations

import collections
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hango import keeper


class Processes:
    """Start, kill and stop by name. `say(name, line)` gets every line of their output.

    To be used from one thread. Ctrl-C at a terminal reaches the starter alone, which decides the order.
    """

    def __init__(self, say: Callable[[str, str], None] | None = None) -> None:
        self._say = say
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._tails: dict[str, collections.deque[str]] = {}
        self._pumps: dict[str, threading.Thread] = {}
        self._keeper = keeper.Keeper()

    def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str], cwd: Path
    ) -> subprocess.Popen[bytes]:
        """Start `command` as `name`. Raises OSError when it cannot be started."""
        if name in self._running:
            raise ValueError(f"{name} is running already")
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._keeper.watch(process.pid)
        self._running[name] = process
        self._tails[name] = collections.deque(maxlen=40)
        self._pumps[name] = threading.Thread(target=self._pump, args=(name, process), daemon=True)
        self._pumps[name].start()
        return process

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """The running process. KeyError when there is none of that name."""
        return self._running[name]

    def tail(self, name: str) -> str:
        """The last lines that it wrote."""
        return "\n".join(self._tails.get(name, ()))

    def ended(self) -> str | None:
        """The name of one that has ended without having been stopped or killed."""
        return next((name for name, process in self._running.items() if process.poll() is not None), None)

    def kill(self, name: str) -> None:
        """SIGKILL to the whole group, as a crash of the machine would."""
        self._end(name, signal.SIGKILL, 0)

    def stop(self, name: str, grace_s: float) -> None:
        """SIGTERM; what is still there after `grace_s` seconds, children included, gets SIGKILL."""
        self._end(name, signal.SIGTERM, grace_s)

    def stop_all(self, order: Sequence[str], grace_s: float) -> None:
        """Stop all within `grace_s` seconds together: those named in that order, then the rest."""
        until = time.monotonic() + grace_s
        for name in [*order, *self._running]:
            if name in self._running:
                self.stop(name, max(0.5, until - time.monotonic()))

    def close(self) -> None:
        """Kill what is still running."""
        for name in list(self._running):
            self.kill(name)
        self._keeper.close()

    def _end(self, name: str, number: signal.Signals, grace_s: float) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        if process.poll() is None:
            # To the leader alone when asking: it tells its children itself, in its own order.
            process.send_signal(number)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            keeper.signal_group(process.pid, signal.SIGKILL)
            process.wait()
            self._keeper.forget(process.pid)
        self._pumps.pop(name).join(2)

    def _pump(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            return
        with process.stdout as lines:
            for raw in lines:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                self._tails[name].append(line)
                if self._say:
                    self._say(name, line)
