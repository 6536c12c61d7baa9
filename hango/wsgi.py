"""WSGI entry point: API and admin."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

from hango import telemetry

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hango.settings")
telemetry.start()
application = get_wsgi_application()
