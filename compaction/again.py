"""A write that is tried again while the database is away for a moment: a failover, a restart, a deadlock, a lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection

log = logging.getLogger(__name__)

PAUSES_S = (0.2, 0.8, 2.0)  # about what a restart takes; whoever waits for longer is served by the lease
READ_ONLY = "25006"  # SQLSTATE of a write to a server that another one has taken over from
TOO_IDLE = "25P03", "25P04"  # of a transaction that the server ended for its age
Result = TypeVar("Result")


def away(error: Exception) -> bool:
    """Whether the same write may succeed later: no connection, a lock, a deadlock, a full disk, a server that was replaced."""
    return isinstance(error, OperationalError | InterfaceError) or _state(error) in (READ_ONLY, *TOO_IDLE)


def again(write: Callable[[], Result]) -> Result:
    """What `write` returns. It is one statement or one transaction that may happen twice, since a connection that breaks at
    the commit leaves open whether it did. Raises the database's error when it is away for longer, and within a transaction,
    which is its owner's to repeat."""
    for pause in PAUSES_S:
        try:
            return write()
        except DatabaseError as error:
            if connection.in_atomic_block or not away(error):
                raise
            log.warning(
                "the database did not take a write (%s), again in %.1f s", type(error).__name__, pause
            )
            if _state(error) == READ_ONLY:
                connection.close()  # it is well, but leads to the wrong server
        connection.close_if_unusable_or_obsolete()
        time.sleep(pause)
    return write()


def _state(error: Exception) -> object:
    return getattr(error.__cause__, "sqlstate", None) if isinstance(error, DatabaseError) else None
