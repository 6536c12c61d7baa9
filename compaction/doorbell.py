"""Telling a worker that there is work. The records are the truth, so that a broker that is away costs time and nothing else."""

from __future__ import annotations

import logging
import time

from celery import Task

log = logging.getLogger(__name__)


QUIET_S = 5.0  # after a message that was not taken: a broker that hangs would else cost each turn a second
_quiet_until = 0.0  # by the monotonic clock of this process


def ring(task: Task[..., None], argument: str | int) -> None:
    """Sends one message and tries once. It raises nothing: the sweep, or the next turn, does what was not taken. While the
    broker is away it is tried, and spoken of in the log, once in `QUIET_S`."""
    global _quiet_until
    if time.monotonic() < _quiet_until:
        return
    try:
        task.apply_async((argument,), retry=False)
    except Exception as error:
        _quiet_until = time.monotonic() + QUIET_S
        log.warning("the broker did not take a message of %s: %s", task.name, type(error).__name__)
