"""The answers' shapes, for the OpenAPI document only: answers are written as exact JSON text."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import serializers

Shape = serializers.Serializer[Any]


class BearerKeyScheme(OpenApiAuthenticationExtension):
    """How a key is shown to those who read the document."""

    target_class = "sessions_app.auth.BearerKey"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class Budget(Shape):
    input_tokens = serializers.IntegerField()
    window = serializers.IntegerField()
    trigger = serializers.IntegerField()
    precompute_at = serializers.IntegerField(allow_null=True)
    source = serializers.ChoiceField(choices=["provider", "usage", "estimate"])  # type: ignore[assignment]


class SessionAnswer(Shape):
    id = serializers.CharField()
    model = serializers.CharField()
    system = serializers.JSONField(allow_null=True)
    tools = serializers.JSONField(allow_null=True)
    max_tokens = serializers.IntegerField(allow_null=True)
    limits = serializers.DictField()
    summarizer_model = serializers.CharField(allow_null=True)
    compact_tool = serializers.BooleanField()
    strict = serializers.BooleanField()
    memory_placement = serializers.ChoiceField(choices=["system", "message"])
    metadata = serializers.JSONField()
    last_input_tokens = serializers.IntegerField()
    compactions = serializers.IntegerField()
    budget = Budget()
    history_path = serializers.CharField()
    created_at = serializers.DateTimeField()


class SessionPage(Shape):
    results = SessionAnswer(many=True)
    next = serializers.CharField(allow_null=True)


class MessageBody(Shape):
    role = serializers.ChoiceField(choices=["user", "assistant"])
    content = serializers.JSONField(
        help_text="Text, or a list of content blocks in the Anthropic Messages shape."
    )
    client_id = serializers.CharField(required=False, max_length=200)
    pinned = serializers.BooleanField(required=False)


class AppendBody(Shape):
    messages = MessageBody(many=True)
    expected_seq = serializers.IntegerField(required=False, min_value=0)


class StoredMessage(Shape):
    seq = serializers.IntegerField()
    role = serializers.ChoiceField(choices=["user", "assistant"])
    content = serializers.JSONField()
    client_id = serializers.CharField(allow_null=True)
    pinned = serializers.BooleanField()
    created_at = serializers.DateTimeField()


class MessagePage(Shape):
    results = StoredMessage(many=True)
    next = serializers.CharField(allow_null=True)


class Change(Shape):
    seq = serializers.IntegerField(allow_null=True)
    rule = serializers.CharField()
    detail = serializers.CharField()


class AppendedMessage(Shape):
    seq = serializers.IntegerField()
    role = serializers.CharField()
    tokens = serializers.IntegerField(help_text="In the session's base units.")
    client_id = serializers.CharField(allow_null=True)


class Appended(Shape):
    appended = AppendedMessage(many=True)
    next_seq = serializers.IntegerField()
    warnings = Change(many=True)
    budget = Budget()
