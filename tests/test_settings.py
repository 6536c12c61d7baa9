"""Settings: a wrong one stops the start and names the variable and what it accepts."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from hango import databases, embedded, env, home, reference, storages

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _registry(monkeypatch):
    monkeypatch.setattr(env, "REGISTRY", dict(env.REGISTRY))


def read_settings(folder, expression="0", **variables):
    """A new process that reads the settings and prints `expression`."""
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith(("HANGO_", "ANTHROPIC_", "OPENAI_", "PORT"))
    }
    code = f"from hango import settings as s; print({expression})"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "HANGO_HOME": str(folder), **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("read", "raw", "accepts"),
    [
        (lambda: env.integer("X", 1, "", low=1, high=9), "ten", "a whole number from 1 to 9"),
        (lambda: env.integer("X", 1, "", low=1, high=9), "10", "a whole number from 1 to 9"),
        (lambda: env.integer("X", 1, "", low=1), "0", "a whole number from 1 up"),
        (lambda: env.number("X", 1, ""), "soon", "a number from 0 up"),
        (lambda: env.number("X", 1, ""), "-1", "a number from 0 up"),
        (lambda: env.number("X", 1, ""), "nan", "a number from 0 up"),
        (lambda: env.number("X", 1, ""), "inf", "a number from 0 up"),
        (lambda: env.flag("X", False, ""), "maybe", "on or off"),
        (lambda: env.choice("X", "a", ("a", "b", "c"), ""), "d", "a, b or c"),
        (lambda: env.json_object("X", ""), "{", "a JSON object"),
        (lambda: env.json_object("X", ""), "[1]", "a JSON object"),
    ],
)
def test_a_wrong_value_names_the_variable_and_what_it_accepts(monkeypatch, read, raw, accepts):
    monkeypatch.setenv("X", raw)
    with pytest.raises(ImproperlyConfigured) as caught:
        read()
    assert str(caught.value) == f"X={raw!r} is not valid: it accepts {accepts}."


def test_values_are_read_in_their_types_and_blank_means_not_set(monkeypatch):
    monkeypatch.setenv("X", " 32_000 ")
    assert env.integer("X", 1, "") == 32000
    monkeypatch.setenv("X", "0.5")
    assert env.number("X", 1, "") == 0.5
    monkeypatch.setenv("X", "ON")
    assert env.flag("X", False, "") is True
    monkeypatch.setenv("X", "B")
    assert env.choice("X", "a", ("a", "b"), "") == "b"
    monkeypatch.setenv("X", "a, ,b")
    assert env.names("X", "", "") == ["a", "b"]
    monkeypatch.setenv("X", '{"m": {}}')
    assert env.json_object("X", "") == {"m": {}}
    monkeypatch.setenv("X", "  ")
    assert (env.integer("X", 7, ""), env.flag("X", True, ""), env.text("X", "d", "")) == (7, True, "d")


def test_a_secret_may_stand_in_a_file(monkeypatch, tmp_path):
    (tmp_path / "key").write_text("from-file\n")
    monkeypatch.setenv("X_FILE", str(tmp_path / "key"))
    assert env.secret("X", "") == "from-file"
    monkeypatch.setenv("X", "direct")
    assert env.secret("X", "") == "direct"


def test_a_secret_file_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("X_FILE", str(tmp_path / "absent"))
    with pytest.raises(ImproperlyConfigured, match=r"X_FILE=.*absent.* cannot be read: No such file"):
        env.secret("X", "")


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"HANGO_LEASE_S": "60"}, "HANGO_SUMMARY_TIMEOUT_S=90 is too long"),
        ({"HANGO_SUMMARIZER_DELAY_S": "300"}, "HANGO_SUMMARIZER_DELAY_S=300 is too long"),
        ({"HANGO_PROVIDER": "anthropic"}, "needs ANTHROPIC_API_KEY"),
        ({"HANGO_PROVIDER": "openai"}, "needs OPENAI_API_KEY"),
        ({"HANGO_OPENAI_API": "batch"}, "it accepts chat or responses"),
        ({"HANGO_STORAGE": "s3"}, "needs HANGO_S3_BUCKET"),
        ({"PORT": "70000"}, "PORT='70000' is not valid"),
        ({"HANGO_SWEEP_EVERY_S": "301"}, "HANGO_SWEEP_EVERY_S=301 is too long"),
        (
            {"HANGO_DATABASE_URL": "postgres://u@h/d", "HANGO_WEB_THREADS": "9"},
            "HANGO_DATABASE_POOL_MAX=8 is too small",
        ),
        ({"HANGO_REDIS_URL": "redis://elsewhere:6379/0"}, "HANGO_REDIS_URL names another machine"),
        ({"HANGO_CRASH_AT": "after-claim"}, "HANGO_CRASH_AT kills this process"),
    ],
)
def test_the_start_is_refused_with_the_name_of_the_variable(tmp_path, variables, named):
    done = read_settings(tmp_path, **variables)
    assert done.returncode == 1
    assert named in done.stderr.splitlines()[-1]


def test_the_provider_follows_the_key(tmp_path):
    assert read_settings(tmp_path, "s.HANGO_PROVIDER").stdout.strip() == "extractive"
    assert read_settings(tmp_path, "s.HANGO_PROVIDER", ANTHROPIC_API_KEY="k").stdout.strip() == "anthropic"
    assert read_settings(tmp_path, "s.HANGO_PROVIDER", OPENAI_API_KEY="k").stdout.strip() == "openai"
    both = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    assert read_settings(tmp_path, "s.HANGO_PROVIDER", **both).stdout.strip() == "anthropic"


def test_the_broker_is_private_unless_named(tmp_path):
    assert (
        read_settings(tmp_path, "s.CELERY_BROKER_URL").stdout.strip()
        == f"redis+socket://{tmp_path}/valkey.sock"
    )
    shared = {"HANGO_REDIS_URL": "redis://h:1/2", "HANGO_DATABASE_URL": "postgres://u@h/d"}
    assert read_settings(tmp_path, "s.CELERY_BROKER_URL", **shared).stdout.strip() == "redis://h:1/2"


@pytest.mark.parametrize("lease", [6, 60, 300, 1_000])
def test_time_limits_stand_in_the_order_that_keeps_one_writer_for_any_lease(tmp_path, lease):
    names = [
        "HANGO_SUMMARY_TIMEOUT_S",
        "CELERY_TASK_SOFT_TIME_LIMIT",
        "CELERY_TASK_TIME_LIMIT",
        "HANGO_LEASE_S",
    ]
    asked = f"[{', '.join(f's.{name}' for name in names)}, s.CELERY_BROKER_TRANSPORT_OPTIONS['visibility_timeout']]"
    times = {
        "HANGO_LEASE_S": str(lease),
        "HANGO_SUMMARY_TIMEOUT_S": str(0.6 * lease),
        "HANGO_SWEEP_EVERY_S": "5",
    }
    limits = json.loads(read_settings(tmp_path, asked, **times).stdout)
    assert limits == sorted(set(limits))


def test_the_defaults_stand_in_that_order_too(settings):
    limits = [
        settings.HANGO_SUMMARY_TIMEOUT_S,
        settings.CELERY_TASK_SOFT_TIME_LIMIT,
        settings.CELERY_TASK_TIME_LIMIT,
        settings.HANGO_LEASE_S,
        settings.CELERY_BROKER_TRANSPORT_OPTIONS["visibility_timeout"],
    ]
    assert limits == sorted(set(limits))


def test_a_long_home_gets_a_short_socket_in_a_folder_of_its_own(tmp_path):
    path = embedded.socket_path(tmp_path / ("x" * 120))
    assert len(str(path)) <= 103
    assert path != embedded.socket_path(tmp_path / ("y" * 120))


def test_the_secret_key_is_made_once_and_for_this_user_only(tmp_path):
    first = home.secret_key(tmp_path / "new")
    assert len(first) >= 50
    assert home.secret_key(tmp_path / "new") == first
    assert stat.S_IMODE((tmp_path / "new" / "secret_key").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["secret_key"]


def test_sqlite_waits_for_locks_instead_of_failing(tmp_path):
    entry = databases.configure("", tmp_path, role="web", pool_max=8)
    assert entry["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert entry["NAME"] == str(tmp_path / "hango.sqlite3")


def test_only_web_processes_pool_their_connections(tmp_path):
    url = "postgres://us%40er:p%2Fw@h:5433/db?sslmode=require"
    web = databases.configure(url, tmp_path, role="web", pool_max=8)
    assert (web["USER"], web["PASSWORD"], web["HOST"], web["PORT"], web["NAME"]) == (
        "us@er",
        "p/w",
        "h",
        "5433",
        "db",
    )
    assert web["OPTIONS"]["sslmode"] == "require"
    assert web["OPTIONS"]["pool"]["max_size"] == 8
    assert web["CONN_MAX_AGE"] == 0
    worker = databases.configure(url, tmp_path, role="worker", pool_max=8)
    assert "pool" not in worker["OPTIONS"]
    assert "statement_timeout" in worker["OPTIONS"]["options"]
    assert (
        "statement_timeout"
        not in databases.configure(url, tmp_path, role="", pool_max=8)["OPTIONS"]["options"]
    )


@pytest.mark.parametrize(
    "url", ["mysql://u:secret@h/db", "postgres://u:secret@h:port/db", "postgres://u:secret@h", "db"]
)
def test_a_wrong_database_url_is_refused_without_its_password(tmp_path, url):
    with pytest.raises(ImproperlyConfigured, match="HANGO_DATABASE_URL") as caught:
        databases.configure(url, tmp_path, role="web", pool_max=8)
    assert "secret" not in str(caught.value)


def test_a_bucket_is_configured_with_limits(monkeypatch, tmp_path):
    monkeypatch.setenv("HANGO_S3_BUCKET", "b")
    options = storages.history("s3", tmp_path)["OPTIONS"]
    assert options["bucket_name"] == "b"
    assert options["client_config"].connect_timeout == 2


def test_the_reference_lists_every_variable_once():
    rows = reference.table().splitlines()[2:]
    names = [row.split("`")[1] for row in rows]
    assert len(names) == len(set(names))
    assert {"HANGO_HOME", "PORT", "HANGO_LEASE_S", "HANGO_S3_BUCKET"} <= set(names)
    assert all(row.count(" | ") == 3 for row in rows)


def test_the_reference_is_written_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{reference.BEGIN}\nold\n{reference.END}\nafter\n")
    assert reference.main([str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "\nold\n" not in text
    assert reference.main([str(page)]) == 0
    assert page.read_text() == text


def test_the_vocabulary_is_unpacked_once_and_read_offline(monkeypatch, tmp_path):
    import tiktoken

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    folder = embedded.unpack_vocabulary(tmp_path)
    made = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert set(made) == set(embedded.VOCABULARIES.values())
    embedded.unpack_vocabulary(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == made
    assert tiktoken.get_encoding("o200k_base").encode("hello world") == [24912, 2375]
