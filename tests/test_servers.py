"""The servers that the tests run on, and the guard of the network."""

import socket

import psycopg
import pytest
import redis

from tests import conftest


@pytest.mark.postgres
def test_a_fresh_database_is_empty_and_may_be_written(fresh_postgres_url):
    with psycopg.connect(fresh_postgres_url) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() == (0,)
        connection.execute("CREATE TABLE thing (id int)")


def test_a_fresh_redis_is_empty_and_apart_from_the_last(redis_url, fresh_redis_url):
    assert fresh_redis_url != redis_url
    with redis.Redis.from_url(fresh_redis_url) as client:
        assert client.dbsize() == 0
        client.set("key", "value")


@pytest.mark.parametrize("host", ["192.0.2.1", "api.anthropic.com"])
def test_other_hosts_are_refused(host):
    with pytest.raises(conftest.NetworkRefused, match=host):
        socket.create_connection((host, 443), timeout=1)


def test_the_loopback_is_allowed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=1).close()
