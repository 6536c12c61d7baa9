"""The tree of errors: what each says by itself, and what it carries for the problem that it becomes."""

from __future__ import annotations

import pytest

from compaction.engine import errors
from compaction.engine.errors import ContextError, ProviderFailed


def every(kind: type[ContextError] = ContextError) -> list[type[ContextError]]:
    return [kind, *(found for sub in kind.__subclasses__() for found in every(sub))]


@pytest.mark.parametrize("kind", every(), ids=lambda kind: kind.code)
def test_each_error_has_a_code_of_its_own_a_status_and_words(kind: type[ContextError]) -> None:
    assert [k.code for k in every()].count(kind.code) == 1
    assert 400 <= kind.status < 600
    assert kind().detail == (kind.__doc__ or "").strip()
    assert kind("said so").detail == "said so"


def test_an_error_carries_its_fields_and_members() -> None:
    error = errors.Conflict("no", errors=[{"pointer": "/a", "detail": "b"}], turn=3)
    assert (error.errors, error.extra) == ([{"pointer": "/a", "detail": "b"}], {"turn": 3})
    assert (errors.Conflict().errors, errors.Conflict().extra) == ([], {})


def test_a_providers_words_are_kept_apart_from_what_is_told() -> None:
    error = ProviderFailed(
        "the provider answered 400", kind="invalid_request_error", http_status=400, retry_after_s=2.5,
        retryable=True, message="your prompt said: hunter2",
    )  # fmt: skip
    assert (error.kind, error.http_status, error.retry_after_s, error.may_pass) == (
        "invalid_request_error", 400, 2.5, True,
    )  # fmt: skip
    assert error.message == "your prompt said: hunter2"
    assert "hunter2" not in str(error) + repr(error.extra)
    assert error.passed_on is False
    assert (ProviderFailed().may_pass, ProviderFailed().http_status) == (False, None)
