"""What the admin's tests look at: sessions with hostile text wherever it may be, and who looks."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

from sessions_app.models import Session
from tests.api.client import TOOLS, Api, user

EVIL = "<script>alert('x')</script>"
SESSIONS = "/admin/transcript/session/"


def hostile(api: Api, name: str = "s", rounds: int = 3, **fields: Any) -> Session:
    """A session with a turn, a tool call and its result in each round."""
    api.session(
        name, **{"model": f"claude-{EVIL}", "system": f"Be careful. {EVIL}", "tools": [{**TOOLS[0], "description": EVIL}],
                 "metadata": {"who": EVIL}, **fields},
    )  # fmt: skip
    new = [user(f"Find it. {EVIL}", client_id=EVIL, pinned=True)]
    for number in range(rounds):
        built = api.post(f"/sessions/{name}/requests/", {"messages": new}).expect(200)
        call = {
            "type": "tool_use",
            "id": f"call_{number}",
            "name": "read_file",
            "input": {"path": f"/{number}{EVIL}"},
        }
        answer = {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": EVIL, "signature": "x"}, call],
        }
        usage = {"input_tokens": 1000, "output_tokens": 10, "note": EVIL}
        path = f"/sessions/{name}/turns/{built['turn']}/complete/"
        api.post(path, {"message": answer, "stop_reason": "tool_use", "usage": usage}).expect(200)
        text = f"line {EVIL}\n" * 20
        new = [
            user(
                [{"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": number == 0}]
            )
        ]
    api.say(f"/sessions/{name}", *new)
    return Session.objects.get(public_id=name)


def staff(*permissions: str) -> Client:
    """Staff with these permissions ("app.codename") and no others."""
    someone = User.objects.create_user("staff", password="pw", is_staff=True)
    for name in permissions:
        app, codename = name.split(".")
        someone.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(someone)
    return client


def url(session: Session, page: str) -> str:
    return f"{SESSIONS}{session.pk}/{page}/"


def shown(client: Client, address: str) -> str:
    """The page, wherever the address leads."""
    response = client.get(address, follow=True)
    assert response.status_code == 200, address
    return response.content.decode()
