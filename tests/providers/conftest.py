"""A server on loopback, and both of OpenAI's APIs."""

import pytest

from tests.providers.loopback import serving


@pytest.fixture
def server():
    with serving() as state:
        yield state


@pytest.fixture(params=["chat", "responses"])
def api(request):
    return request.param
