"""ASGI entry point, for servers that need one; API and admin are ten times faster by WSGI."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

from hango import telemetry

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hango.settings")
telemetry.start()
application = get_asgi_application()
