"""Fixtures for every test: private servers when asked for, and no way out to the network."""

import itertools
import socket
from collections.abc import Iterator

import pytest

from tests import servers

_LOOPBACK = ("127.", "::1", "localhost", "0.0.0.0")
_redis_numbers = itertools.cycle(range(1, 16))


class NetworkRefused(RuntimeError):
    """A test went for a host other than this machine; a stand-in server on the loopback is what it needs."""


def _is_local(address: object) -> bool:
    return not isinstance(address, tuple) or str(address[0]).startswith(_LOOPBACK)


@pytest.fixture(autouse=True, scope="session")
def network_guard() -> Iterator[None]:
    """Connections to other hosts fail, and so does looking up their names. Unix sockets are fine."""
    real = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex")}
    real_lookup = socket.getaddrinfo

    def guarded(name):
        def call(self, address):
            if not _is_local(address):
                raise NetworkRefused(f"a test must not connect to {address[0]}")
            return real[name](self, address)

        return call

    def lookup(host, *args, **kwargs):
        name = host.decode() if isinstance(host, bytes) else host
        if name and not name.startswith(_LOOPBACK):
            raise NetworkRefused(f"a test must not look up {name}")
        return real_lookup(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for name in real:
            patch.setattr(socket.socket, name, guarded(name))
        patch.setattr(socket, "getaddrinfo", lookup)
        yield


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """A PostgreSQL server whose user may create databases; started when first asked for."""
    return servers.postgres_url()


@pytest.fixture(scope="session")
def redis_url() -> str:
    """A Redis or Valkey; started when first asked for."""
    return servers.redis_url()


@pytest.fixture
def fresh_postgres_url(postgres_url: str) -> Iterator[str]:
    """A new, empty PostgreSQL database, for tests with processes of their own; dropped afterwards."""
    url = servers.new_database()
    yield url
    servers.drop_database(url)


@pytest.fixture
def fresh_redis_url(redis_url: str) -> str:
    """An emptied Redis database."""
    return servers.new_redis(next(_redis_numbers))


@pytest.fixture
def fresh_database_url(request: pytest.FixtureRequest) -> str:
    """What a process started by a test gets as HANGO_DATABASE_URL in this run: empty (SQLite in its home),
    or a new PostgreSQL database when the run is on PostgreSQL."""
    from django.conf import settings

    on_sqlite = "sqlite" in settings.DATABASES["default"]["ENGINE"]
    return "" if on_sqlite else request.getfixturevalue("fresh_postgres_url")
