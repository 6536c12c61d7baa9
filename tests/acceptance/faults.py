"""Faults that happen to the store, done by a process of its own with the settings of the running stack.

It reads lines, `torn_tail SESSION` or `clock SECONDS`, and answers each with `done`.
"""

import os
import signal
import sys
from datetime import timedelta

import django
from django.apps import apps
from django.db import models, transaction


def torn_tail(public_id: str) -> None:
    """Dies in the middle of an append. A database's nearest equal to half a record at the end of a file."""
    from sessions_app import append, views
    from sessions_app.models import Session

    session = Session.objects.get(public_id=public_id)
    with transaction.atomic():
        views.appended(session, [append.NewMessage("user", '[{"type":"text","text":"HALF-A-RECORD"}]')])
        os.kill(os.getpid(), signal.SIGKILL)


def clock(seconds: str) -> None:
    """Time passes: everything that is stored lies that much further back."""
    for label in ("transcript", "compaction"):
        for model in apps.get_app_config(label).get_models():
            for field in model._meta.fields:
                if isinstance(field, models.DateTimeField):
                    earlier = models.F(field.name) - timedelta(seconds=float(seconds))
                    model.objects.filter(**{f"{field.name}__isnull": False}).update(**{field.name: earlier})


if __name__ == "__main__":
    django.setup()
    for line in sys.stdin:
        name, value = line.split()
        {"torn_tail": torn_tail, "clock": clock}[name](value)
        print("done", flush=True)
