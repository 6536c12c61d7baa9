"""Where history files are kept: the `history` entry of Django's STORAGES."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from hango import env


def history(kind: str, home: Path) -> dict[str, Any]:
    """The entry for `kind` (`file` or `s3`). Raises ImproperlyConfigured naming what is missing.

    Credentials of a bucket are read by boto3 itself (AWS_ACCESS_KEY_ID and its kin).
    """
    bucket = env.text("HANGO_S3_BUCKET", "", "bucket of the history files", "a bucket name")
    endpoint = env.text("HANGO_S3_ENDPOINT_URL", "", "S3-compatible server other than AWS", "a URL")
    region = env.text("HANGO_S3_REGION", "", "region of the bucket", "a region name")
    prefix = env.text("HANGO_S3_PREFIX", "", "folder within the bucket", "a path")
    if kind == "file":
        return {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {
                "location": str(home / "history"),
                "file_permissions_mode": 0o600,
                "directory_permissions_mode": 0o700,
                "allow_overwrite": True,
            },
        }
    if not bucket:
        raise ImproperlyConfigured("HANGO_STORAGE=s3 needs HANGO_S3_BUCKET.")
    if importlib.util.find_spec("boto3") is None:
        raise ImproperlyConfigured("HANGO_STORAGE=s3 needs boto3: install the extra `s3`.")
    from botocore.config import Config  # noqa: PLC0415 - optional, and only now known to be there

    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": bucket,
            "endpoint_url": endpoint or None,
            "region_name": region or None,
            "location": prefix,
            "file_overwrite": True,
            "default_acl": None,
            # The mirror must not hold a worker for the minutes of boto's own defaults.
            "client_config": Config(connect_timeout=2, read_timeout=10, retries={"max_attempts": 2}),
        },
    }
