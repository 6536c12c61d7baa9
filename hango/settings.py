"""Every setting, read once from the environment; a wrong one stops the start with its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import django_stubs_ext
from django.core.exceptions import ImproperlyConfigured

from compaction import crash
from compaction.engine.profiles import parse_configured
from hango import combinations, databases, embedded, env, home, storages

# Typed admin classes (ModelAdmin[Session]) need it at run time as well.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
crash.arm(os.environ)  # nothing outside of tests: a process that is told to die does not start

# --- where everything is -----------------------------------------------------------------------

HANGO_HOME = Path(
    env.text(
        "HANGO_HOME",
        "./var",
        "folder of the embedded default: database, broker, history, vocabulary",
        "a path",
    )
).resolve()
HANGO_HOST = env.text("HANGO_HOST", "127.0.0.1", "address the web server listens on")
PORT = env.integer("PORT", 8000, "port the web server listens on", low=1, high=65535)
HANGO_ROLE = env.choice(
    "HANGO_ROLE",
    "command",
    ("command", "web", "worker", "beat"),
    "what this process is; set by whatever starts it",
)
HANGO_WEB_WORKERS = env.integer("HANGO_WEB_WORKERS", 2, "web processes", low=1)
HANGO_WEB_THREADS = env.integer("HANGO_WEB_THREADS", 4, "threads in each web process", low=1)
HANGO_WORKERS = env.integer("HANGO_WORKERS", 2, "summaries written at a time (Celery concurrency)", low=1)
HANGO_LOG_LEVEL = env.choice(
    "HANGO_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"), "lowest level that is logged"
)
HANGO_OTEL = env.flag(
    "HANGO_OTEL", False, "send traces over OTLP; OTEL_EXPORTER_OTLP_ENDPOINT and its kin say where"
)

# --- safety ------------------------------------------------------------------------------------

DEBUG = env.flag("HANGO_DEBUG", False, "Django's debug pages; never on a server that others reach")
SECRET_KEY = env.secret(
    "HANGO_SECRET_KEY", "signs admin sessions; made once in HANGO_HOME when not set"
) or home.secret_key(HANGO_HOME)
ALLOWED_HOSTS = [
    *env.names(
        "HANGO_ALLOWED_HOSTS",
        "localhost,127.0.0.1,[::1]",
        "host names answered to, besides these; `*` for all",
    ),
    *("localhost", "127.0.0.1", "[::1]"),  # health checks ask by them
]
CSRF_TRUSTED_ORIGINS = env.names(
    "HANGO_CSRF_TRUSTED_ORIGINS", "", "origins of the admin behind a TLS proxy, as https://name"
)
HANGO_BOOTSTRAP_API_KEY = env.secret(
    "HANGO_BOOTSTRAP_API_KEY",
    "a key that works from the first start, or `project:key` pairs separated by commas",
)
HANGO_MAX_BODY_BYTES = env.integer(
    "HANGO_MAX_BODY_BYTES", 32_000_000, "largest request body, in bytes", low=1
)
DATA_UPLOAD_MAX_MEMORY_SIZE = HANGO_MAX_BODY_BYTES
HANGO_RATE_LIMIT_PER_MINUTE = env.integer(
    "HANGO_RATE_LIMIT_PER_MINUTE",
    0,
    "requests a minute of each API key, unless its project has a limit of its own; 0: no limit",
)
HANGO_DAILY_TOKEN_BUDGET = env.integer(
    "HANGO_DAILY_TOKEN_BUDGET",
    0,
    "tokens a day that hango's own model calls may take for each project; 0: no limit",
)

# --- servers -----------------------------------------------------------------------------------

HANGO_DATABASE_POOL_MAX = env.integer(
    "HANGO_DATABASE_POOL_MAX", 8, "PostgreSQL connections of each web process; 0: no pool"
)
HANGO_DATABASE_URL = env.secret(
    "HANGO_DATABASE_URL",
    "PostgreSQL as postgres://user:password@host:port/name; SQLite in HANGO_HOME when not set",
)
DATABASES = {
    "default": databases.configure(
        HANGO_DATABASE_URL,
        HANGO_HOME,
        role="" if HANGO_ROLE == "command" else HANGO_ROLE,
        pool_max=HANGO_DATABASE_POOL_MAX,
    )
}
HANGO_REDIS_URL = env.secret(
    "HANGO_REDIS_URL", "broker as redis://host:port/0; a private Valkey in HANGO_HOME when not set"
) or embedded.socket_url(HANGO_HOME)
HANGO_STORAGE = env.choice(
    "HANGO_STORAGE", "file", ("file", "s3"), "where history files are kept: HANGO_HOME/history, or a bucket"
)
STORAGES: dict[str, Any] = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(HANGO_HOME / "media")},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "history": storages.history(HANGO_STORAGE, HANGO_HOME),
}

# --- models and summaries ----------------------------------------------------------------------

ANTHROPIC_API_KEY = env.secret("ANTHROPIC_API_KEY", "key of the provider that writes summaries")
ANTHROPIC_BASE_URL = env.text(
    "ANTHROPIC_BASE_URL", "", "another address of the provider, such as a gateway", "a URL"
)
OPENAI_API_KEY = env.secret("OPENAI_API_KEY", "key of OpenAI, or of a server that speaks its language")
OPENAI_BASE_URL = env.text(
    "OPENAI_BASE_URL", "https://api.openai.com/v1", "address of that server, with its version", "a URL"
)
HANGO_OPENAI_API = env.choice(
    "HANGO_OPENAI_API", "chat", ("chat", "responses"), "which of OpenAI's APIs is called"
)
HANGO_PROVIDER = env.choice(
    "HANGO_PROVIDER",
    "auto",
    ("auto", "anthropic", "openai", "extractive", "scripted"),
    "which model provider is called; auto: whose key is set, Anthropic first, else extractive (no model)",
)
if HANGO_PROVIDER == "auto":
    HANGO_PROVIDER = "anthropic" if ANTHROPIC_API_KEY else "openai" if OPENAI_API_KEY else "extractive"
if HANGO_PROVIDER == "anthropic" and not ANTHROPIC_API_KEY:
    raise ImproperlyConfigured("HANGO_PROVIDER=anthropic needs ANTHROPIC_API_KEY.")
if HANGO_PROVIDER == "openai" and not OPENAI_API_KEY:
    raise ImproperlyConfigured("HANGO_PROVIDER=openai needs OPENAI_API_KEY.")
HANGO_SUMMARIZER_MODEL = env.text(
    "HANGO_SUMMARIZER_MODEL", "", "model that writes summaries; the session's own when not set", "a model id"
)
HANGO_MODEL_PROFILES = env.json_object(
    "HANGO_MODEL_PROFILES",
    "facts about models that hango does not know, or knows differently",
    'a JSON object, model id to {"max_input_tokens": …, "max_output_tokens": …}',
)
HANGO_CONTEXT_TRIGGER_FRAC = env.number(
    "HANGO_CONTEXT_TRIGGER_FRAC", 0.85, "share of the window at which something is done", low=0.05, high=1
)
HANGO_CONTEXT_KEEP_FRAC = env.number(
    "HANGO_CONTEXT_KEEP_FRAC", 0.10, "share of the window that stays verbatim", low=0, high=0.9
)
HANGO_CONTEXT_PRECOMPUTE_FRAC = env.number(
    "HANGO_CONTEXT_PRECOMPUTE_FRAC",
    0.75,
    "share of the window at which a summary is begun ahead",
    low=0.05,
    high=1,
)
if not HANGO_CONTEXT_KEEP_FRAC < HANGO_CONTEXT_PRECOMPUTE_FRAC < HANGO_CONTEXT_TRIGGER_FRAC:
    raise ImproperlyConfigured(
        "HANGO_CONTEXT_KEEP_FRAC has to be below HANGO_CONTEXT_PRECOMPUTE_FRAC, and that below "
        "HANGO_CONTEXT_TRIGGER_FRAC."
    )
HANGO_TOOL_ARG_MAX_TOKENS = env.integer(
    "HANGO_TOOL_ARG_MAX_TOKENS",
    500,
    "tokens of an old tool argument or result that truncation leaves whole",
    low=20,
)
try:
    parse_configured(HANGO_MODEL_PROFILES)
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from None
HANGO_ESTIMATOR = env.choice(
    "HANGO_ESTIMATOR", "heuristic", ("heuristic", "tiktoken"), "how tokens are estimated"
)

# --- time, in seconds --------------------------------------------------------------------------

HANGO_MAX_WAIT_S = env.number("HANGO_MAX_WAIT_S", 20, "longest that a build waits for a summary; 0: never")
HANGO_SUMMARY_TIMEOUT_S = env.number("HANGO_SUMMARY_TIMEOUT_S", 90, "longest call of the summarizer", low=0.1)
HANGO_CALL_TIMEOUT_S = env.number(
    "HANGO_CALL_TIMEOUT_S", 600, "longest that hango's own model call may take, its retries included", low=1
)
HANGO_LEASE_S = env.number(
    "HANGO_LEASE_S", 300, "after that a summary whose worker died is begun again", low=1
)
HANGO_SWEEP_EVERY_S = env.number("HANGO_SWEEP_EVERY_S", 15, "how often forgotten work is looked for", low=0.1)
HANGO_SUMMARIZER_DELAY_S = env.number(
    "HANGO_SUMMARIZER_DELAY_S", 0, "extractive and scripted summaries take that long, as a model's would"
)
HANGO_RETENTION_DAYS = env.integer(
    "HANGO_RETENTION_DAYS", 0, "sessions unused for so many days are erased; 0: never", low=0
)
HANGO_SHUTDOWN_S = env.number(
    "HANGO_SHUTDOWN_S", 10, "longest that stopping waits for what is running", low=1
)

# A summary must end before the worker is told to stop, that before it is killed, that before the lease
# ends, that before the broker gives the message to another: else two workers write the same summary.
_SOFT_LIMIT_S, _HARD_LIMIT_S = 0.7 * HANGO_LEASE_S, 0.8 * HANGO_LEASE_S
_VISIBILITY_S = int(max(900, 3 * HANGO_LEASE_S))
combinations.check(
    lease_s=HANGO_LEASE_S,
    soft_limit_s=_SOFT_LIMIT_S,
    within_lease={
        "HANGO_SUMMARY_TIMEOUT_S": HANGO_SUMMARY_TIMEOUT_S,
        "HANGO_SUMMARIZER_DELAY_S": HANGO_SUMMARIZER_DELAY_S,
    },
    sweep_every_s=HANGO_SWEEP_EVERY_S,
    database_url=HANGO_DATABASE_URL,
    redis_url=HANGO_REDIS_URL,
    pool_max=HANGO_DATABASE_POOL_MAX,
    web_threads=HANGO_WEB_THREADS,
)

# --- Celery: the doorbell and the workforce; the database is the queue --------------------------

CELERY_BROKER_URL = embedded.celery_url(HANGO_REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_SOFT_TIME_LIMIT = _SOFT_LIMIT_S
CELERY_TASK_TIME_LIMIT = _HARD_LIMIT_S
CELERY_TASK_PUBLISH_RETRY = False  # a lost doorbell costs one sweep, a waiting web thread costs more
CELERY_TASK_DEFAULT_QUEUE = "hango"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # one slow model call must not hold others
CELERY_WORKER_CONCURRENCY = HANGO_WORKERS
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = max(0.5, 0.6 * HANGO_SHUTDOWN_S)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": _VISIBILITY_S,
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 1,
    # The worker's blocking read may itself take a second.
    "socket_timeout": 5 if HANGO_ROLE == "worker" else 1,
    # Whoever rings finds a broker that is away at once; kombu would try for six seconds on the path of a turn.
    **({} if HANGO_ROLE == "worker" else {"max_retries": 1, "interval_start": 0, "interval_step": 0}),
}
CELERY_BEAT_SCHEDULE_FILENAME = str(HANGO_HOME / "celerybeat-schedule")
CELERY_BEAT_MAX_LOOP_INTERVAL = min(5.0, HANGO_SWEEP_EVERY_S)
CELERY_BEAT_SCHEDULE = {
    "sweep": {
        "task": "compaction.sweep",
        "schedule": HANGO_SWEEP_EVERY_S,
        # Sweeps that no worker took in time would all run at once when one comes back.
        "options": {"expires": max(5.0, HANGO_SWEEP_EVERY_S)},
    },
    "expire": {"task": "compaction.expire", "schedule": 3600.0, "options": {"expires": 3600.0}},
}

# --- Django ------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "unfold",  # before the admin, whose templates it replaces
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "sessions_app",
    "compaction",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "hango.urls"
WSGI_APPLICATION = "hango.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True  # the packages' own files are served as they lie: nothing to collect
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
AUTH_PASSWORD_VALIDATORS = [{"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"}]

UNFOLD = {"SITE_TITLE": "hango", "SITE_HEADER": "hango", "SHOW_VIEW_ON_SITE": False}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["sessions_app.auth.BearerKey"],
    "DEFAULT_PERMISSION_CLASSES": ["sessions_app.auth.HasKey"],
    "DEFAULT_PARSER_CLASSES": ["sessions_app.parsers.ExactJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "hango.problems.handler",
    "UNAUTHENTICATED_USER": None,
    "DEFAULT_THROTTLE_CLASSES": ["sessions_app.limits.PerKey"],
}
SPECTACULAR_SETTINGS = {
    "TITLE": "hango",
    "DESCRIPTION": "Sessions that stay inside their context window.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    # Fields of one name and different values; the rest are named after their field.
    "ENUM_NAME_OVERRIDES": {
        "CompactionStatus": ["requested", "running", "ready", "failed", "rejected", "skipped", "revoked"],
        "CompactionReason": ["threshold", "overflow", "tool", "truncate", "manual", "imported"],
        "ForcedReason": ["manual", "tool"],
        "CompletedStatus": ["completed"],
        "RetryStatus": ["retry"],
        "FailedStatus": ["failed"],
    },
}

# The SDKs log whole requests at DEBUG, and those are somebody's transcript.
_QUIET = {
    name: {"level": "WARNING"}
    for name in ("anthropic", "openai", "httpx", "httpx2", "httpcore", "httpcore2", "urllib3", "botocore")
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": HANGO_LOG_LEVEL},
    "loggers": {"django": {"handlers": [], "level": HANGO_LOG_LEVEL, "propagate": True}, **_QUIET},
}

# tiktoken reads its vocabulary from here instead of from the network.
if HANGO_ESTIMATOR == "tiktoken":
    embedded.unpack_vocabulary(HANGO_HOME)
else:
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(HANGO_HOME / "tokenizer"))
