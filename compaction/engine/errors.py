"""The one tree of errors. The API maps it to problem+json in one place (`hango.problems`).

Each class has a machine-readable `code` (the last part of the problem's `type`), the HTTP `status` it is
mapped to, and `retryable`: whether the same call may succeed later without a change.
"""

from __future__ import annotations

from typing import ClassVar


class ContextError(Exception):
    """Something about a session's context is wrong. The default message is the class's docstring."""

    code: ClassVar[str] = "context-error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self, detail: str = "", *, errors: list[dict[str, str]] | None = None, **extra: object
    ) -> None:
        """`errors`: [{"pointer": "/messages/0/role", "detail": …}]; `extra`: further members of the problem."""
        super().__init__(detail or (self.__doc__ or "").strip())
        self.errors = errors or []
        self.extra = extra

    @property
    def detail(self) -> str:
        return str(self)


class Invalid(ContextError):
    """The input breaks a rule; `errors` names each field and its rule. Nothing was written."""

    code = "invalid"
    status = 422


class Malformed(ContextError):
    """The body is not the JSON that was expected. Nothing was written."""

    code = "malformed"
    status = 400


class NotFound(ContextError):
    """There is no such thing in this project."""

    code = "not-found"
    status = 404


class Conflict(ContextError):
    """The call contradicts what is stored."""

    code = "conflict"
    status = 409


class ResultsMissing(Conflict):
    """The request would end on tool calls without their results: append the results first."""

    code = "results-missing"


class NothingToAnswer(Conflict):
    """The request would end on the assistant's own text, and the session is strict."""

    code = "nothing-to-answer"


class NothingToSend(Conflict):
    """The session holds no message that could be sent: append one first."""

    code = "nothing-to-send"


class CannotFit(ContextError):
    """The request cannot be made to fit the window, not even by mechanical truncation."""

    code = "context-cannot-fit"
    status = 422


class InvalidRequest(ContextError):
    """The engine built a request that breaks the provider's rules: a fault of hango, never sent."""

    code = "invalid-request-built"


class SummaryRejected(ContextError):
    """The summarizer's answer cannot stand for the messages it was made of."""

    code = "summary-rejected"


class BudgetSpent(ContextError):
    """The project's tokens for today are spent. Appends and builds go on; hango itself calls no model until midnight (UTC)."""

    code = "budget-spent"
    status = 429

    def __init__(self, detail: str = "", *, retry_after_s: float = 60.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class ProviderFailed(ContextError):
    """The model provider did not answer with a message."""

    code = "provider-failed"
    status = 502

    def __init__(
        self,
        detail: str = "",
        *,
        kind: str = "",
        http_status: int | None = None,
        retry_after_s: float | None = None,
        retryable: bool = False,
        message: str = "",
    ) -> None:
        """`kind`: the provider's own error type; `retry_after_s`: what the provider asked for, in seconds; `message`: the
        provider's words, to classify by and to show nowhere, since they may quote the prompt."""
        super().__init__(detail)
        self.kind = kind
        self.http_status = http_status
        self.retry_after_s = retry_after_s
        self.may_pass = retryable
        self.message = message
        self.passed_on = False  # part of an answer had been passed on to the reader before
