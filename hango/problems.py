"""Errors → problem+json (RFC 9457), in one place."""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from rest_framework import exceptions, status

from compaction import again
from compaction.engine import exact
from compaction.engine.errors import BudgetSpent, ContextError

log = logging.getLogger(__name__)

TITLES = {
    400: "Bad request", 401: "Not authenticated", 403: "Not allowed", 404: "Not found", 405: "Method not allowed", 406: "Not acceptable",
    409: "Conflict", 413: "Body too large", 415: "Unsupported media type", 422: "Invalid input", 429: "Too many requests",
    500: "Internal error", 502: "Provider failed", 503: "Try again later",
}  # fmt: skip


def problem(
    code: str, http_status: int, detail: str, headers: dict[str, str] | None = None, **members: object
) -> HttpResponse:
    """One problem as a response. `code` is its `type`: a relative URI reference, as RFC 9457 allows."""
    body = {
        "type": code,
        "title": TITLES.get(http_status, "Error"),
        "status": http_status,
        "detail": detail,
        **members,
    }
    return HttpResponse(
        exact.dumps(body), status=http_status, content_type="application/problem+json", headers=headers
    )


def handler(error: Exception, context: dict[str, Any]) -> HttpResponse | None:  # noqa: PLR0911 - a table
    """DRF's exception handler. None lets Django answer with its own 500, which `server_error` writes."""
    if isinstance(error, ContextError):
        if error.status == 500:  # what broke may name what was said; it is logged where it is raised
            log.error("%s: %s", error.code, type(error).__name__)
            return problem(error.code, error.status, (type(error).__doc__ or "").strip(), None, **error.extra)
        members = {"errors": error.errors} if error.errors else {}
        wait = error.retry_after_s if isinstance(error, BudgetSpent) else None
        later = {"Retry-After": str(int(wait) + 1)} if wait is not None else None
        return problem(error.code, error.status, error.detail, later, **members, **error.extra)
    if isinstance(error, RequestDataTooBig):
        return problem(
            "body-too-large",
            status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
            "the body is larger than HANGO_MAX_BODY_BYTES allows",
        )
    if isinstance(error, exceptions.ValidationError):
        faults = list(_faults(error.detail, ""))
        return problem(
            "invalid",
            status.HTTP_422_UNPROCESSABLE_ENTITY,
            f"{faults[0]['pointer']}: {faults[0]['detail']}",
            errors=faults,
        )
    if isinstance(error, Http404):
        return problem("not-found", status.HTTP_404_NOT_FOUND, "there is no such thing in this project")
    if isinstance(error, PermissionDenied):
        return problem("not-allowed", status.HTTP_403_FORBIDDEN, "this key may not do that")
    if isinstance(error, exceptions.APIException):
        headers: dict[str, str] = (
            {"WWW-Authenticate": header} if (header := getattr(error, "auth_header", None)) else {}
        )
        if getattr(error, "wait", None):
            headers["Retry-After"] = str(int(error.wait) + 1)  # type: ignore[attr-defined]
        return problem(
            str(error.get_codes()).replace("_", "-"), error.status_code, str(error.detail), headers
        )
    if again.away(error):
        log.error("the database did not answer: %s", type(error).__name__)
        return problem(
            "try-again",
            status.HTTP_503_SERVICE_UNAVAILABLE,
            "the database did not answer in time",
            {"Retry-After": "1"},
        )
    return None


def server_error(request: HttpRequest, *args: object) -> HttpResponse:
    return problem("internal", 500, "something went wrong inside; it was logged")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not request.path.startswith("/api/"):
        return defaults.page_not_found(request, exception)
    return problem("not-found", 404, "there is nothing at this address")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    if isinstance(exception, RequestDataTooBig):
        return problem("body-too-large", 413, "the body is larger than HANGO_MAX_BODY_BYTES allows")
    return problem("bad-request", 400, "the request could not be read")


def _faults(detail: Any, pointer: str) -> Any:
    """DRF's nested error details as (JSON pointer, text) pairs."""
    if isinstance(detail, dict):
        for key, value in detail.items():
            yield from _faults(
                value, pointer if key == "non_field_errors" else f"{pointer}/{exact.pointer_part(str(key))}"
            )
    elif isinstance(detail, list):
        for index, value in enumerate(detail):
            yield from _faults(value, pointer if isinstance(value, str) else f"{pointer}/{index}")
    else:
        yield {"pointer": pointer or "/", "detail": str(detail)}
