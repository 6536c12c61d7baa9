"""The Celery application. Tasks are in `compaction.tasks`; what they take is one id."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hango.settings")

app = Celery("hango")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["compaction"])


@signals.worker_init.connect
def _load(**_: Any) -> None:
    """The provider's SDK takes seconds to load on a busy machine: once, before the fork, and not in a summary's time."""
    import django  # noqa: PLC0415 - only in a worker

    django.setup()
    from compaction.providers import registry  # noqa: PLC0415 - needs the settings

    registry.provider()


@signals.worker_process_init.connect
def _trace(**_: Any) -> None:
    # After the fork: an exporter's thread does not survive one.
    from hango import telemetry  # noqa: PLC0415 - its packages load only in processes that trace

    telemetry.start(django=False)


@signals.worker_ready.connect
def _look_for_work(**_: Any) -> None:
    """A worker that starts looks at once for what was left behind: the clock that rings the sweep may be dead, too."""
    app.send_task("compaction.sweep", expires=60, retry=False)
