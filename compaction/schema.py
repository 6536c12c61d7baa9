"""The bodies and answers of the compaction endpoints, for the OpenAPI document only."""

from __future__ import annotations

from rest_framework import serializers

from sessions_app.schema import Budget, Change, MessageBody, Shape


class RequestBody(Shape):
    messages = MessageBody(many=True, required=False)
    memory = serializers.JSONField(
        required=False, help_text="Text or text blocks; omitted: as in the last turn."
    )
    max_tokens = serializers.IntegerField(required=False, min_value=1)


class Coverage(Shape):
    summarised = serializers.ListField(child=serializers.IntegerField(), allow_null=True)
    dropped = serializers.ListField(child=serializers.IntegerField(), allow_null=True)
    verbatim = serializers.ListField(child=serializers.IntegerField())


class Work(Shape):
    state = serializers.ChoiceField(choices=["idle", "requested", "running", "ready", "failed"])
    code = serializers.CharField(allow_null=True)
    compaction = serializers.CharField(allow_null=True)


class Summarizer(Shape):
    model = serializers.CharField(allow_null=True)
    usage = serializers.DictField(allow_null=True)


class Identifiers(Shape):
    found = serializers.IntegerField()
    kept = serializers.IntegerField()


class CompactionAnswer(Shape):
    id = serializers.CharField()
    status = serializers.ChoiceField(
        choices=["requested", "running", "ready", "failed", "rejected", "skipped", "revoked"]
    )
    kind = serializers.ChoiceField(choices=["model", "extractive", "imported"])
    reason = serializers.ChoiceField(
        choices=["threshold", "overflow", "tool", "truncate", "manual", "imported"]
    )
    turn = serializers.IntegerField(allow_null=True)
    kept_from = serializers.IntegerField(allow_null=True)
    evicted_messages = serializers.IntegerField()
    tokens_before = serializers.IntegerField(allow_null=True)
    tokens_after = serializers.IntegerField(allow_null=True)
    summary = serializers.CharField()
    offload_path = serializers.CharField()
    summarizer = Summarizer()
    identifiers = Identifiers()
    error_code = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()


class CompactionPage(Shape):
    results = CompactionAnswer(many=True)
    next = serializers.CharField(allow_null=True)


class BuiltAnswer(Shape):
    turn = serializers.IntegerField()
    request = serializers.DictField(help_text="The request to send, in the Anthropic Messages shape.")
    budget = Budget()
    coverage = Coverage()
    compaction = CompactionAnswer(allow_null=True)
    work = Work()
    deferred = serializers.BooleanField()
    repairs = Change(many=True)
    truncated_tool_args = serializers.IntegerField()
    prefix_changed = serializers.BooleanField()
    digest = serializers.CharField()
    warnings = Change(many=True)


class CompleteBody(Shape):
    message = MessageBody()
    stop_reason = serializers.CharField(required=False, allow_null=True)
    usage = serializers.DictField(required=False, allow_null=True)


class CompletedAnswer(Shape):
    status = serializers.ChoiceField(choices=["completed", "retry", "failed"])
    turn = serializers.IntegerField()
    seq = serializers.IntegerField(allow_null=True)
    warnings = serializers.ListField(child=serializers.CharField())


class OverflowBody(Shape):
    error = serializers.DictField(
        required=False, allow_null=True, help_text="The provider's error: status, type, code, message."
    )


class OverflowAnswer(Shape):
    status = serializers.ChoiceField(choices=["retry", "failed"])
    rung = serializers.ChoiceField(choices=["overflow", "truncate"])
    turn = serializers.IntegerField()
    request = serializers.DictField(required=False)


class CompactBody(Shape):
    reason = serializers.ChoiceField(choices=["manual", "tool"], required=False)
    instructions = serializers.CharField(required=False)
    wait = serializers.BooleanField(required=False)
    summary = serializers.CharField(
        required=False, help_text="Together with kept_from: a compaction written elsewhere."
    )
    kept_from = serializers.IntegerField(required=False, min_value=1)


class CompactAnswer(CompactionAnswer):
    outcome = serializers.ChoiceField(choices=["queued", "done", "skipped", "rejected", "failed"])
