"""WSGI entry point: API and admin."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

from hango import telemetry

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hango.settings")
telemetry.start()
application = get_wsgi_application()
_ = get_resolver().url_patterns  # loads the views now, not within somebody's first request
