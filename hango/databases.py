"""`HANGO_DATABASE_URL` to a Django database. SQLite without a URL, PostgreSQL with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

# Without IMMEDIATE a read that becomes a write ignores the timeout and fails as "database is locked".
_SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
_ACCEPTS = (
    "postgres://user:password@host:port/name?sslmode=…, sqlite:///path, or nothing (SQLite in HANGO_HOME)"
)


def configure(url: str, home: Path, *, role: str, pool_max: int) -> dict[str, Any]:
    """The entry for `DATABASES`.

    `role` is `web`, `worker`, `beat` or empty (a command). Only web processes get a pool: Celery closes a
    pool around every task, and a forked child must not share one. `pool_max` 0 means no pool.
    Raises ImproperlyConfigured naming HANGO_DATABASE_URL; the message never holds the password.
    """
    parts = urlsplit(url)
    if not url:
        return sqlite(home / "hango.sqlite3")
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        return sqlite(Path(unquote(parts.path)))
    if parts.scheme in {"postgres", "postgresql"}:
        return _postgres(url, role=role, pool_max=pool_max)
    raise ImproperlyConfigured(f"HANGO_DATABASE_URL has the scheme {parts.scheme!r}: it accepts {_ACCEPTS}.")


def sqlite(path: Path) -> dict[str, Any]:
    """SQLite at `path`, safe for several processes on one machine."""
    # A file also for tests: an in-memory database has no WAL and cannot be shared with a worker.
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": dict(_SQLITE_OPTIONS)}


def _postgres(url: str, *, role: str, pool_max: int) -> dict[str, Any]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as exc:
        raise ImproperlyConfigured(f"HANGO_DATABASE_URL has no valid port: it accepts {_ACCEPTS}.") from exc
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise ImproperlyConfigured(f"HANGO_DATABASE_URL names no database: it accepts {_ACCEPTS}.")
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    host = options.pop("host", "") or unquote(parts.hostname or "")
    limits = ["-c lock_timeout=5s", "-c idle_in_transaction_session_timeout=30s"]
    if role:
        # Not for commands: a migration of a large table may take longer.
        limits.append("-c statement_timeout=30s")
    options["options"] = " ".join([*limits, options.get("options", "")]).strip()
    options.setdefault("connect_timeout", 3)
    entry: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(port or ""),
        "OPTIONS": options,
    }
    if role == "web" and pool_max:
        options["pool"] = {"min_size": min(2, pool_max), "max_size": pool_max, "timeout": 10}
        entry["CONN_MAX_AGE"] = 0
    else:
        entry["CONN_MAX_AGE"] = 60
        entry["CONN_HEALTH_CHECKS"] = True
    return entry
