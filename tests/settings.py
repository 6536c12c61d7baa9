"""The project's settings for tests: a throwaway home, a scripted summarizer, no key of the developer's.

`HANGO_TEST_ON=postgres` runs the same tests on PostgreSQL.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from hango import embedded
from tests import servers

_home = Path(tempfile.mkdtemp(prefix="hango-test-"))
atexit.register(shutil.rmtree, _home, ignore_errors=True)

for _name in list(os.environ):
    if _name.startswith(("HANGO_", "ANTHROPIC_", "OPENAI_", "OTEL_")) and not _name.startswith("HANGO_TEST_"):
        del os.environ[_name]

_on = os.environ.get("HANGO_TEST_ON", "sqlite")
if _on not in {"sqlite", "postgres"}:
    raise ValueError(f"HANGO_TEST_ON={_on!r}: it accepts sqlite or postgres")

os.environ.update(
    HANGO_HOME=str(_home),
    HANGO_SECRET_KEY="only-for-tests",
    HANGO_PROVIDER="scripted",
    HANGO_ALLOWED_HOSTS="testserver,localhost,127.0.0.1",
    # Refused at once: a test that rings a doorbell learns what an absent broker does.
    HANGO_REDIS_URL="redis://127.0.0.1:1/0",
    HANGO_DATABASE_URL=servers.postgres_url() if _on == "postgres" else "",
)
embedded.unpack_vocabulary(_home)

from hango.settings import *  # noqa: E402, F403
from hango.settings import DATABASES  # noqa: E402

if _on == "sqlite":
    # A file: an in-memory database locks whole tables when threads share it.
    DATABASES["default"]["TEST"] = {"NAME": str(_home / "test.sqlite3")}
else:
    DATABASES["default"]["CONN_MAX_AGE"] = 0  # threads of a test must leave no connection behind

# Looked up when asked for: scanning every package's files for each test client takes time.
WHITENOISE_AUTOREFRESH = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
