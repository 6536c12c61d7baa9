"""The two independent judges of a request: the strict upstream, and the fixed rules of the case files.

Neither knows the engine. A request is handed over as the bytes that would be sent.
"""

from __future__ import annotations

import json

from compaction.engine.types import OutgoingRequest
from tests.cases import reference
from tests.upstream import strict_anthropic


def refusals(request: OutgoingRequest) -> list[str]:
    """Why the judges would refuse the request; empty when both accept it."""
    body = json.loads(request.body())
    found = [] if not (shape := reference.shape_error(body)) else [shape]
    try:
        strict_anthropic.check_request(body)
    except strict_anthropic.Refused as refused:
        found.append(str(refused))
    found += reference.pair_errors(body) + reference.blank_errors(body)
    if reference.cache_marks(body) > 4:
        found.append("more than 4 cache_control marks")
    if body["messages"][-1:] and body["messages"][-1]["role"] != "user":
        found.append("the conversation must end with a user message")
    if reference.has_lone_surrogate(json.dumps(body, ensure_ascii=False)):
        found.append("body is not valid UTF-8")
    return found


def strict_check(request: OutgoingRequest) -> None:
    assert refusals(request) == []
