"""Telling a worker that there is work. The records are the truth, so that a broker that is away costs time and nothing else."""

from __future__ import annotations

import logging

from celery import Task

log = logging.getLogger(__name__)


def ring(task: Task[..., None], argument: str | int) -> None:
    """Sends one message and tries once. It raises nothing: the sweep, or the next turn, does what was not taken."""
    try:
        task.apply_async((argument,), retry=False)
    except Exception as error:
        log.warning("the broker did not take a message of %s: %s", task.name, type(error).__name__)
