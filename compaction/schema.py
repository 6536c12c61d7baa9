"""The bodies and answers of the compaction endpoints, for the OpenAPI document only."""

from __future__ import annotations

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers

from sessions_app.schema import Budget, Change, MessageBody, Shape

RUNGS = ["overflow", "truncate"]
OUTCOMES = ["queued", "done", "skipped", "rejected", "failed"]


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
    cost_usd = serializers.CharField(allow_null=True)


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
    ledger = serializers.ListField(
        child=serializers.CharField(), help_text="Identifiers that the summary lost."
    )
    error_code = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class CompactionPage(Shape):
    results = CompactionAnswer(many=True)
    next = serializers.CharField(allow_null=True)


class UsedCompaction(CompactionAnswer):
    applied_now = serializers.BooleanField(help_text="This turn is the first that stands on it.")


class Built(Shape):
    turn = serializers.IntegerField()
    request = serializers.DictField(help_text="The request to send, in the Anthropic Messages shape.")
    budget = Budget()
    coverage = Coverage()
    compaction = UsedCompaction(allow_null=True)
    work = Work()
    deferred = serializers.BooleanField()
    repairs = Change(many=True)
    truncated_tool_args = serializers.IntegerField()
    prefix_changed = serializers.BooleanField()
    digest = serializers.CharField(help_text="SHA-256 of the bytes of `request` as they stand here.")


class BuiltAnswer(Built):
    warnings = Change(many=True)


class CompleteBody(Shape):
    message = MessageBody()
    stop_reason = serializers.CharField(required=False, allow_null=True)
    usage = serializers.DictField(required=False, allow_null=True)


class CompletedAnswer(Shape):
    status = serializers.ChoiceField(choices=["completed"])
    turn = serializers.IntegerField()
    seq = serializers.IntegerField(allow_null=True)
    warnings = serializers.ListField(child=serializers.CharField())


class OverflowBody(Shape):
    error = serializers.DictField(
        required=False, allow_null=True, help_text="The provider's error: status, type, code, message."
    )


class RetryAnswer(Built):
    status = serializers.ChoiceField(choices=["retry"])
    rung = serializers.ChoiceField(choices=RUNGS)


class FailedAnswer(Shape):
    status = serializers.ChoiceField(choices=["failed"])
    rung = serializers.ChoiceField(choices=RUNGS)
    turn = serializers.IntegerField()
    attempts = serializers.ListField(child=serializers.DictField())
    detail = serializers.CharField()


class SentRequest(Shape):
    turn = serializers.IntegerField()
    request = serializers.DictField()
    digest = serializers.CharField()


class CompactBody(Shape):
    reason = serializers.ChoiceField(choices=["manual", "tool"], required=False)
    instructions = serializers.CharField(required=False)
    wait = serializers.BooleanField(required=False)
    summary = serializers.CharField(
        required=False, help_text="Together with kept_from: a compaction written elsewhere."
    )
    kept_from = serializers.IntegerField(required=False, min_value=1)


class CompactAnswer(CompactionAnswer):
    outcome = serializers.ChoiceField(choices=OUTCOMES)
    detail = serializers.CharField(required=False, help_text="Why there is none.")
    asked_kept_from = serializers.IntegerField(
        required=False, help_text="`kept_from` is what it was moved back to."
    )


class NotCompacted(Shape):
    id = serializers.CharField(allow_null=True)
    outcome = serializers.ChoiceField(choices=OUTCOMES)
    detail = serializers.CharField()
    asked_kept_from = serializers.IntegerField(required=False)


def one_of(name: str, *shapes: type[Shape]) -> PolymorphicProxySerializer:
    """An answer of one of several shapes."""
    return PolymorphicProxySerializer(
        component_name=name, serializers=list(shapes), resource_type_field_name=None
    )


class RunBody(RequestBody):
    stream = serializers.BooleanField(
        required=False, help_text="Answer with the provider's events; also by `Accept`."
    )


class RunAnswer(Shape):
    turn = serializers.IntegerField()
    status = serializers.ChoiceField(choices=["completed", "failed"])
    message = serializers.DictField(allow_null=True)
    stop_reason = serializers.CharField(allow_null=True)
    usage = serializers.DictField(allow_null=True)
    compaction = CompactionAnswer(allow_null=True)
    attempts = serializers.ListField(child=serializers.DictField())
    deferred = serializers.BooleanField()
    warnings = serializers.ListField(child=serializers.CharField())
