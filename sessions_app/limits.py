"""How many requests a key may send a minute (decision 0014)."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from sessions_app.auth import Caller


class PerKey(BaseThrottle):
    """A counter of each key and minute in the memory of each web process, which has its share of the limit. It asks no
    server on the path of a turn; fairness between keys is meant, not accounting."""

    _wait = 60.0

    def allow_request(self, request: Request, view: Any) -> bool:
        if not isinstance(request.user, Caller):
            return True
        own = request.user.project.rate_limit_per_minute
        limit = settings.HANGO_RATE_LIMIT_PER_MINUTE if own is None else own
        if not limit:
            return True
        now = time.time()
        self._wait = 60 - now % 60
        name = f"requests:{getattr(request.auth, 'pk', None)}:{int(now // 60)}"
        cache.add(name, 0, 120)
        return cache.incr(name) <= max(1, limit // settings.HANGO_WEB_WORKERS)

    def wait(self) -> float:
        """Seconds until the next minute begins."""
        return self._wait
