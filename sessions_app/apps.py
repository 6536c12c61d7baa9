from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    label = "transcript"  # `sessions` is Django's own
    verbose_name = "Transcripts"
    default_auto_field = "django.db.models.BigAutoField"
