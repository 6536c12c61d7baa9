"""What the model is shown, recorded beside the transcript: nothing here changes a message (SPEC N1)."""

from __future__ import annotations

import uuid

from django.db import models

from compaction.engine.types import Reason
from sessions_app.models import Project, Session


class Frame(models.Model):
    """Everything that shapes a request and is not a message, addressed by its content within its project.

    `body` is a JSON object of strings: model, the exact texts of system, tools and memory, and the shaping settings.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64)
    body = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "digest"], name="one_frame_per_content")]

    def __str__(self) -> str:
        return self.digest[:12]


class Turn(models.Model):
    """One model call with its retries: the view it shows, what was sent, what came back."""

    class Status(models.TextChoices):
        OPEN = "open"
        COMPLETED = "completed"
        FAILED = "failed"

    class Rung(models.TextChoices):
        """How far up the overflow ladder this turn is (SPEC F10)."""

        NONE = ""
        OVERFLOW = "overflow"
        TRUNCATE = "truncate"

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="turns")
    number = models.PositiveIntegerField()
    status = models.CharField(max_length=10, choices=Status, default=Status.OPEN)
    rung = models.CharField(max_length=10, choices=Rung, default=Rung.NONE, blank=True)
    frame = models.ForeignKey(Frame, on_delete=models.PROTECT, related_name="+")
    # the view (compaction.engine.types.View)
    compaction = models.ForeignKey(
        "Compaction", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    kept_from = models.PositiveIntegerField(default=0)
    first_seq = models.PositiveIntegerField(default=0)
    args_cut_before = models.PositiveIntegerField(default=0)
    block_limit = models.PositiveIntegerField(default=0)
    thinking_stripped_from = models.PositiveIntegerField(null=True, blank=True)
    thinking_stripped_to = models.PositiveIntegerField(null=True, blank=True)
    memories = models.JSONField(
        default=list,
        blank=True,
        help_text="Where memory stands within the messages: [seq, digest of its frame].",
    )
    last_seq = models.IntegerField()
    # as sent
    max_tokens = models.PositiveIntegerField()
    digest = models.CharField(max_length=64)
    elements = models.PositiveIntegerField(help_text="How many prompt elements the request has.")
    elements_digest = models.CharField(max_length=64)
    estimated_tokens = models.PositiveIntegerField(help_text="Of the request as sent, in base units.")
    input_tokens = models.PositiveIntegerField(
        help_text="As measured when it was built, in the model's tokens."
    )
    counted_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text="As the provider counted the request before it was sent."
    )
    sent_digest = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="Of everything that the answer's thinking is bound to.",
    )
    adopted = models.BooleanField(default=False, help_text="This turn swapped to another compaction.")
    deferred = models.BooleanField(default=False)
    attempts = models.JSONField(default=list)
    # what came back
    usage = models.JSONField(null=True, blank=True)
    stop_reason = models.CharField(max_length=60, blank=True, default="")
    raw_answer = models.TextField(
        blank=True, default="", help_text="The provider's own answer, where its shape is not the stored one."
    )
    answer_digest = models.CharField(max_length=64, blank=True, default="")
    warnings = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["session", "number"]
        constraints = [models.UniqueConstraint(fields=["session", "number"], name="one_turn_per_number")]

    def __str__(self) -> str:
        return f"{self.session} turn {self.number}"


LIVE = ("requested", "running")


class Compaction(models.Model):
    """One summary that stands for the messages before `kept_from`; also the job that writes it.

    The database is the queue: a lost, doubled or late Celery message costs time, never a record. `fence` grows with
    every claim; only the holder of the newest may record anything. `apply`: when a ready one is shown.
    """

    class Status(models.TextChoices):
        REQUESTED = "requested"
        RUNNING = "running"
        READY = "ready"
        FAILED = "failed"
        REJECTED = "rejected"
        SKIPPED = "skipped"
        REVOKED = "revoked"

    class Kind(models.TextChoices):
        MODEL = "model"
        EXTRACTIVE = "extractive"
        IMPORTED = "imported"

    class Apply(models.TextChoices):
        AT_TRIGGER = "at_trigger"
        NEXT_BUILD = "next_build"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="compactions_made")
    turn = models.PositiveIntegerField(null=True, blank=True, help_text="The turn that asked for it.")
    reason = models.CharField(max_length=12, choices=[(r.value, r.value) for r in Reason])
    kind = models.CharField(max_length=12, choices=Kind, default=Kind.MODEL)
    status = models.CharField(max_length=12, choices=Status, default=Status.REQUESTED)
    apply = models.CharField(max_length=12, choices=Apply)
    instructions = models.TextField(blank=True, default="")
    base = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="built_on_this"
    )
    kept_from = models.PositiveIntegerField(null=True, blank=True)
    prefix_digest = models.CharField(max_length=64, blank=True, default="")
    keep_tokens = models.PositiveIntegerField(
        default=0, help_text="What the cut keeps verbatim, in base units."
    )
    # folding: what a partial summary of a long span covers so far
    folded_through = models.PositiveIntegerField(
        default=0, help_text="First message that `partial` does not cover."
    )
    partial = models.TextField(blank=True, default="")
    # the result
    summary = models.TextField(blank=True, default="")
    head = models.TextField(blank=True, default="", help_text="The summary message as it is shown.")
    head_tokens = models.PositiveIntegerField(default=0)
    offload_path = models.CharField(max_length=200, blank=True, default="")
    mirrored = models.BooleanField(default=False, help_text="The history file holds these messages.")
    tokens_before = models.PositiveIntegerField(null=True, blank=True)
    tokens_after = models.PositiveIntegerField(null=True, blank=True)
    evicted_messages = models.PositiveIntegerField(default=0)
    summarizer_model = models.CharField(max_length=200, blank=True, default="")
    usage = models.JSONField(null=True, blank=True)
    cost_usd = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    identifiers_found = models.JSONField(default=list)
    identifiers_kept = models.JSONField(default=list)
    ledger = models.JSONField(default=list)
    prompt_version = models.CharField(max_length=20, blank=True, default="")
    notes = models.JSONField(default=list)
    # the job
    lease_until = models.DateTimeField(null=True, blank=True)
    fence = models.PositiveIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(null=True, blank=True)
    error_code = models.CharField(max_length=60, blank=True, default="")
    error = models.CharField(max_length=500, blank=True, default="")
    traceparent = models.CharField(max_length=60, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["session", "created_at"]
        permissions = [("force_compaction", "Can force a compaction")]
        constraints = [
            models.UniqueConstraint(
                fields=["session"],
                condition=models.Q(status__in=LIVE),
                name="one_live_compaction_per_session",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "status", "kept_from"], name="ready_compactions"),
            models.Index(
                fields=["status", "next_at"], condition=models.Q(status__in=LIVE), name="due_compactions"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.session} {self.reason} {self.status}"


class ModelFact(models.Model):
    """What hango's own calls taught about a model at one provider address."""

    base_url = models.CharField(max_length=300, blank=True, default="")
    model = models.CharField(max_length=200)
    max_input_tokens = models.PositiveIntegerField(null=True, blank=True)
    estimate_factor = models.FloatField(null=True, blank=True)
    samples = models.PositiveIntegerField(default=0)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["base_url", "model"], name="one_fact_per_model")]

    def __str__(self) -> str:
        return self.model


class Circuit(models.Model):
    """Whether a provider key may be used: open after failures, so that jobs do not each rediscover an outage."""

    key_digest = models.CharField(max_length=64, unique=True)
    failures = models.PositiveIntegerField(default=0)
    open_until = models.DateTimeField(null=True, blank=True)
    error_code = models.CharField(max_length=60, blank=True, default="")
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.key_digest[:8]} {self.error_code}"
