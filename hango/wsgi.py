"""WSGI entry point: API and admin."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

from hango import celery, telemetry

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hango.settings")
telemetry.start()
application = get_wsgi_application()

from compaction import conf  # noqa: E402 - needs the applications to be loaded


def _warm() -> None:
    """Loads what a first request would else wait for: the views, the price catalog, the broker's transport."""
    assert get_resolver().url_patterns  # noqa: S101 - the getter is what loads them
    conf.catalog("claude-sonnet-4-5")
    celery.app.connection_for_write().get_transport_cls()


_warm()
