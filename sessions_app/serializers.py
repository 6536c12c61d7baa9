"""The fields of a session as the API takes them (API.md)."""

from __future__ import annotations

import re
from typing import Any

from rest_framework import serializers

from sessions_app import redaction

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # API.md rule 5
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")  # PROTOCOL R19
MOST_TOKENS = 100_000_000


def tokens(low: int = 1) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, allow_null=True, min_value=low, max_value=MOST_TOKENS)


def share(**options: Any) -> serializers.FloatField:
    return serializers.FloatField(required=False, min_value=0.0, max_value=1.0, **options)


class KnownFields(serializers.Serializer[Any]):
    """A serializer that refuses what it does not know."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and (unknown := sorted(set(data) - set(self.fields))):
            raise serializers.ValidationError({name: ["unknown field"] for name in unknown})
        return super().to_internal_value(data)


class Limits(KnownFields):
    """The session's own values over the model profile's. Tokens, shares of the window, seconds."""

    max_input_tokens = tokens()
    max_output_tokens = tokens()
    max_trigger_tokens = tokens()
    trigger_frac = serializers.FloatField(required=False, min_value=0.01, max_value=1.0)
    keep_frac = share()
    precompute_frac = share(allow_null=True)
    tool_arg_max_tokens = tokens(20)
    summary_max_tokens = tokens(16)
    max_wait_s = serializers.FloatField(required=False, min_value=0, max_value=600)
    state_tools = serializers.ListField(
        child=serializers.CharField(max_length=128), required=False, max_length=50
    )
    redact = serializers.ListField(
        child=serializers.CharField(max_length=1000), required=False, max_length=20
    )

    def validate_redact(self, value: list[str]) -> list[str]:
        for index, pattern in enumerate(value):
            if rule := redaction.fault(pattern):
                raise serializers.ValidationError(f"pattern {index} {rule}")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in attrs.items() if v is not None or k == "precompute_frac"}


class SessionFields(KnownFields):
    """The body of `POST /sessions/`; `PATCH` takes any of them but `id`."""

    id = serializers.RegexField(ID, required=False)
    model = serializers.CharField(max_length=200)
    system = serializers.JSONField(required=False, allow_null=True)
    tools = serializers.JSONField(required=False, allow_null=True)
    max_tokens = tokens()
    limits = Limits(required=False, allow_null=True)
    summarizer_model = serializers.CharField(
        max_length=200, required=False, allow_null=True, allow_blank=True
    )
    compact_tool = serializers.BooleanField(required=False)
    strict = serializers.BooleanField(required=False)
    memory_placement = serializers.ChoiceField(choices=["system", "message"], required=False)
    metadata = serializers.JSONField(required=False, allow_null=True)

    def validate_system(self, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        return text_blocks(value)

    def validate_tools(self, value: Any) -> Any:
        if value is None:
            return value
        if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
            raise serializers.ValidationError("has to be a list of tool definitions")
        names = [tool.get("name") for tool in value]
        for index, name in enumerate(names):
            if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
                raise serializers.ValidationError(
                    f"tool {index}: the name has to match ^[a-zA-Z0-9_-]{{1,128}}$ (R19)"
                )
        if len(set(names)) != len(names):
            raise serializers.ValidationError("tool names have to be unique (R19)")
        return value

    def validate_metadata(self, value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise serializers.ValidationError("has to be an object")
        return value


def text_blocks(value: Any) -> Any:
    """Checks that the value is a list of text blocks, as `system` and `memory` are."""
    if not isinstance(value, list):
        raise serializers.ValidationError("has to be text or a list of text blocks")
    for index, block in enumerate(value):
        if (
            not isinstance(block, dict)
            or block.get("type") != "text"
            or not isinstance(block.get("text"), str)
        ):
            raise serializers.ValidationError(f"block {index}: has to be a text block")
    return value
