"""What was said. Messages are append-only: nothing here is ever rewritten, only a whole session is erased."""

from __future__ import annotations

import uuid

from django.db import models


class Project(models.Model):
    """A tenant. A key sees its own project's sessions and nothing else."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=100, unique=True)
    rate_limit_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Requests of each key; empty: HANGO_RATE_LIMIT_PER_MINUTE; 0: no limit.",
    )
    daily_token_budget = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Tokens of hango's own model calls a day (UTC); empty: HANGO_DAILY_TOKEN_BUDGET; 0: no limit.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """A project's key. Only its SHA-256 is stored: a key of 32 random bytes needs no salt and no slow hash.

    A wider scope includes the narrower ones: `read` sees, `write` also adds and changes, `admin` also erases and revokes.
    """

    class Scope(models.TextChoices):
        READ = "read"
        WRITE = "write"
        ADMIN = "admin"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="keys")
    name = models.CharField(max_length=100, blank=True)
    prefix = models.CharField(max_length=12, help_text="The key's first characters, to tell keys apart.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scope = models.CharField(max_length=5, choices=Scope, default=Scope.ADMIN)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.project})"


class Session(models.Model):
    """A long conversation and what shapes its requests.

    `system` and `tools` hold the exact JSON text that was given. Within a turn this row is written exactly once
    (SPEC N5): its two counters, when the turn closes.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="sessions")
    public_id = models.CharField("id", max_length=128)
    model = models.CharField(max_length=200)
    system = models.TextField(blank=True, default="")
    tools = models.TextField(blank=True, default="")
    max_tokens = models.PositiveIntegerField(null=True, blank=True)
    limits = models.JSONField(default=dict, blank=True)
    summarizer_model = models.CharField(max_length=200, blank=True, default="")
    compact_tool = models.BooleanField(default=False)
    strict = models.BooleanField(default=False)
    memory_placement = models.CharField(
        max_length=10, default="system", choices=[("system", "system"), ("message", "message")]
    )
    metadata = models.TextField(blank=True, default="{}")
    estimator = models.CharField(max_length=40, help_text="The unit of this session's stored token counts.")
    fixed_tokens = models.PositiveIntegerField(default=0, help_text="System and tools, in base units.")
    last_input_tokens = models.PositiveIntegerField(default=0)
    compactions = models.PositiveIntegerField(default=0)
    reported_limit = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="The window that a provider named when it refused a request of this session.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["project", "public_id"], name="one_session_per_public_id")
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def history_path(self) -> str:
        """Where an agent's `read_file` finds the evicted transcript (SPEC F8)."""
        return f"/conversation_history/{self.public_id}.md"


class Message(models.Model):
    """One message of the transcript, exactly as it was sent.

    `content` is text and never `jsonb`, which would reorder keys. `tokens` are base units of the session's estimator,
    `tokens_through` their running sum, so the weight of any span is one subtraction. `digest` is a hash chain: equal
    digests mean equal prefixes. `asks`: the user says something of his own here, not only tool results.
    `shown_ids`, `open_calls`: JSON lists, decided once when the message came (ids repeat in real transcripts).
    """

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="messages")
    seq = models.PositiveIntegerField()
    role = models.CharField(max_length=10, choices=[("user", "user"), ("assistant", "assistant")])
    content = models.TextField()
    tokens = models.PositiveIntegerField()
    tokens_through = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=64)
    client_id = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - null keeps it out of the unique constraint
    pinned = models.BooleanField(default=False)
    asks = models.BooleanField(default=False)
    shown_ids = models.TextField(blank=True, default="")
    open_calls = models.TextField(blank=True, default="")
    produced_on = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["session", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="one_message_per_seq"),
            models.UniqueConstraint(
                fields=["session", "client_id"],
                condition=models.Q(client_id__isnull=False),
                name="one_message_per_client_id",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "seq"], condition=models.Q(pinned=True), name="pinned_messages")
        ]

    def __str__(self) -> str:
        return f"{self.session} #{self.seq}"


class ToolCallId(models.Model):
    """Every tool call id that a session has used or shown, so that a repeated one is noticed without a scan."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+")
    tool_use_id = models.CharField(max_length=300)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "tool_use_id"], name="one_row_per_tool_call_id")
        ]

    def __str__(self) -> str:
        return self.tool_use_id


class IdempotentAnswer(models.Model):
    """The first answer under an `Idempotency-Key`, written in the transaction of its effect."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of method, path and body.")
    session = models.ForeignKey(
        Session, on_delete=models.CASCADE, null=True, related_name="+", help_text="Erased with it."
    )
    status = models.PositiveSmallIntegerField()
    body = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "key"], name="one_answer_per_idempotency_key")
        ]

    def __str__(self) -> str:
        return self.key


class Spending(models.Model):
    """Tokens that hango's own model calls took for a project on one day (UTC), input and output."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="spending")
    day = models.DateField()
    tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "spending"
        constraints = [models.UniqueConstraint(fields=["project", "day"], name="one_row_per_project_and_day")]

    def __str__(self) -> str:
        return f"{self.project} {self.day}"


class Tombstone(models.Model):
    """The record of an erasure: when, why, by whom, how much; nothing of what was said, and not even the session's name.

    `object_name`: the history file's, until the storage has deleted it as well.
    """

    class Reason(models.TextChoices):
        REQUEST = "request"
        RETENTION = "retention"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="tombstones")
    session_id = models.UUIDField()
    public_id_digest = models.CharField(max_length=64, help_text="SHA-256 of the session's id.")
    reason = models.CharField(max_length=10, choices=Reason)
    by = models.CharField(max_length=100, blank=True, help_text="The API key's first characters.")
    messages = models.PositiveIntegerField()
    turns = models.PositiveIntegerField()
    compactions = models.PositiveIntegerField()
    object_name = models.CharField(max_length=200, blank=True)
    erased_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["erased_at"], condition=~models.Q(object_name=""), name="objects_to_delete")
        ]

    def __str__(self) -> str:
        return f"{self.session_id} ({self.reason})"
