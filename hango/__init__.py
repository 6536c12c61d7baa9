"""Wiring of the project: settings, servers, processes. No rules live here."""

from __future__ import annotations

from hango.celery import app as celery_app

__version__ = "0.1.0"
__all__ = ["celery_app"]
