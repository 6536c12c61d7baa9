"""A write that is tried again while the database is away for a moment: a failover, a restart, a deadlock, a lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connection

log = logging.getLogger(__name__)

PAUSES_S = (0.2, 0.8, 2.0)  # about what a restart takes; whoever waits for longer is served by the lease
AWAY = (OperationalError, InterfaceError)
Result = TypeVar("Result")


def again(write: Callable[[], Result]) -> Result:
    """What `write` returns. It is one statement or one transaction that may happen twice, since a connection that breaks at
    the commit leaves open whether it did. Raises the database's error when it is away for longer, and within a transaction,
    which is its owner's to repeat."""
    for pause in PAUSES_S:
        try:
            return write()
        except AWAY as error:
            if connection.in_atomic_block:
                raise
            log.warning(
                "the database did not take a write (%s), again in %.1f s", type(error).__name__, pause
            )
        connection.close_if_unusable_or_obsolete()
        time.sleep(pause)
    return write()
