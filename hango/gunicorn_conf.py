"""gunicorn's configuration: a few processes with threads, since a build waits on the database, not the CPU."""

import os
from pathlib import Path

os.environ["HANGO_ROLE"] = "web"  # before the settings are read: only web processes get a pool

from hango import settings

bind = f"{settings.HANGO_HOST}:{settings.PORT}"
worker_class = "gthread"
workers = settings.HANGO_WEB_WORKERS
threads = settings.HANGO_WEB_THREADS
timeout = 60
graceful_timeout = int(settings.HANGO_SHUTDOWN_S)
# A heartbeat file on a slow disk makes gunicorn kill workers that are well.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - gunicorn makes its own file there
# Loading takes seconds: once for all, before the fork. Nothing is connected by then.
preload_app = True
# It would be one socket for all servers of a user, in the home folder.
control_socket_disable = True
errorlog = "-"
loglevel = settings.HANGO_LOG_LEVEL.lower()
