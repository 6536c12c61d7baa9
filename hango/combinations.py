"""Settings that are good each by itself and lose work together: they stop the start, with the variable's name."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured


def check(
    *,
    lease_s: float,
    soft_limit_s: float,
    within_lease: Mapping[str, float],
    sweep_every_s: float,
    database_url: str,
    redis_url: str,
    pool_max: int,
    web_threads: int,
) -> None:
    """Raises `ImproperlyConfigured`. Times in seconds; `within_lease`: by variable, what has to end before a worker is told
    to stop."""
    for name, seconds in within_lease.items():
        if seconds >= soft_limit_s:
            raise ImproperlyConfigured(
                f"{name}={seconds:g} is too long: it must stay below 0.7 × HANGO_LEASE_S = {soft_limit_s:g}, or two workers would "
                "write the same summary."
            )
    if sweep_every_s > lease_s:
        raise ImproperlyConfigured(
            f"HANGO_SWEEP_EVERY_S={sweep_every_s:g} is too long: it must not exceed HANGO_LEASE_S={lease_s:g}, or the work of a worker "
            "that died lies about for longer than its lease."
        )
    postgres = database_url.startswith("postgres")
    if postgres and 0 < pool_max < web_threads:
        raise ImproperlyConfigured(
            f"HANGO_DATABASE_POOL_MAX={pool_max} is too small: each of the {web_threads} threads (HANGO_WEB_THREADS) of a web process needs a "
            "connection, or requests wait for one another. 0 means no pool."
        )
    if not postgres and not _on_this_machine(redis_url):
        raise ImproperlyConfigured(
            "HANGO_REDIS_URL names another machine while the database is SQLite, a file of this one: workers elsewhere would not see its "
            "work. Set HANGO_DATABASE_URL to a PostgreSQL."
        )


def _on_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname
    if host is None or host == "localhost":  # a socket
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
