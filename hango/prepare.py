"""`python -m hango.prepare`: folders, vocabulary, migrations, first keys. Safe to run again and again."""

from __future__ import annotations

import os

import django
from django.conf import settings
from django.core.management import call_command

from hango import embedded, home


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hango.settings")
    home.prepare(settings.HANGO_HOME)
    embedded.unpack_vocabulary(settings.HANGO_HOME)
    django.setup()
    call_command("migrate", interactive=False, verbosity=0)
    call_command("bootstrap")


if __name__ == "__main__":
    main()
