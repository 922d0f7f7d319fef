"""Every websocket × everybody, over real sockets; and pages of other origins, other hosts and nobody."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from channels.generic.websocket import AsyncWebsocketConsumer
from django.core.exceptions import ImproperlyConfigured
from django.urls import path
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from lab.live.routing import NOT_FOUND, guarded, websocket_urlpatterns
from lab.models import Role, Run
from lab.services import access, people
from tests import builders
from tests.access.people import visitors
from tests.live.lab_server import LabServer, running_lab, session_cookie

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED, LET_IN = 403, 101


class Socket(NamedTuple):
    """One route and who may use it."""

    route: str
    decision: access.Decision | None

    def of(self, run: Run) -> str:
        known = {"<int:run_id>": run.pk, "<int:experiment_id>": run.experiment_id}
        address = self.route
        for name, value in known.items():
            address = address.replace(name, str(value))
        assert "<" not in address, f"{self.route}: say what its parameters are"
        asked = f"?runs={run.pk}" if self.route == "ws/compare/" else ""
        return f"/{address or 'ws/nowhere/'}{asked}"


SOCKETS = [
    Socket(str(found.pattern), getattr(found.callback.consumer_class, "access", None))
    for found in websocket_urlpatterns
]


@pytest.fixture(scope="module")
def lab(django_db_setup: None) -> Iterator[LabServer]:
    with running_lab() as server:
        yield server


def handshake(lab: LabServer, path: str, *, cookie: str = "", origin: str = "", host: str = "") -> int:
    """The status that a websocket's opening request gets, with headers exactly as given."""
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host or lab.host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
    ]
    lines += [f"Origin: {origin}"] if origin else []
    lines += [f"Cookie: {cookie}"] if cookie else []
    with socket.create_connection(("127.0.0.1", lab.port), timeout=60) as opened:
        opened.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(opened.recv(4096).split(b" ", 2)[1])


def closed(opened: ClientConnection) -> bool:
    """Whether the socket ended; else a message came, which it does every two seconds."""
    try:
        opened.recv(timeout=60)
    except ConnectionClosed:
        return True
    return False


@pytest.mark.parametrize("watched", SOCKETS, ids=lambda watched: watched.route or "anything else")
def test_everybody_may_watch_or_not_as_decided(lab: LabServer, watched: Socket) -> None:
    assert watched.decision is not None
    run = builders.run()
    for visitor in visitors():
        cookie = session_cookie(visitor.user) if visitor.user else ""
        allowed = watched.decision == access.EVERYONE or visitor.holds(Role(watched.decision))
        status = handshake(lab, watched.of(run), cookie=cookie, origin=f"http://{lab.host}")
        assert status == (LET_IN if allowed else REFUSED), (watched.route, visitor.kind)


def test_only_an_address_that_does_not_exist_is_for_everyone_and_it_is_closed_at_once(lab: LabServer) -> None:
    assert [watched.route for watched in SOCKETS if watched.decision == access.EVERYONE] == [""]
    origin = Origin(f"http://{lab.host}")
    with connect(f"ws://{lab.host}/ws/nowhere/", origin=origin, open_timeout=60) as opened:
        with pytest.raises(ConnectionClosed):
            opened.recv(timeout=60)
        assert opened.close_code == NOT_FOUND


@pytest.mark.parametrize("watched", [one for one in SOCKETS if one.route], ids=lambda watched: watched.route)
def test_a_page_of_another_origin_or_under_a_foreign_name_may_not_watch(
    lab: LabServer, watched: Socket
) -> None:
    path, cookie = watched.of(builders.run()), session_cookie(builders.person(Role.ADMIN))
    own = f"http://{lab.host}"
    assert handshake(lab, path, cookie=cookie, origin=own) == LET_IN
    for origin, host in (
        ("", ""),
        ("null", ""),
        ("https://evil.example", ""),
        ("http://127.0.0.1:1", ""),
        (own + ".evil.example", ""),
        # A name of theirs that leads to this machine.
        (f"http://evil.example:{lab.port}", f"evil.example:{lab.port}"),
        (own, f"evil.example:{lab.port}"),
    ):
        assert handshake(lab, path, cookie=cookie, origin=origin, host=host) == REFUSED, (origin, host)


def test_an_absent_run_and_a_made_up_session_are_refused_alike(lab: LabServer) -> None:
    cookie, own = session_cookie(builders.person(Role.ADMIN)), f"http://{lab.host}"
    assert handshake(lab, "/ws/runs/987654321/", cookie=cookie, origin=own) == REFUSED
    assert handshake(lab, "/ws/experiments/987654321/", cookie=cookie, origin=own) == REFUSED
    run = builders.run()
    for runs in ("", "x", "987654321", f"{run.pk},987654321", "1,2,3,4,5,6,7"):
        assert handshake(lab, f"/ws/compare/?runs={runs}", cookie=cookie, origin=own) == REFUSED, runs
    assert handshake(lab, f"/ws/runs/{run.pk}/", cookie="lab_session=made-up", origin=own) == REFUSED


def test_whoever_is_deactivated_stops_watching(lab: LabServer) -> None:
    run, viewer, admin = builders.run(), builders.person(Role.VIEWER), builders.person(Role.ADMIN)
    headers = {"Cookie": session_cookie(viewer)}
    address = f"ws://{lab.host}/ws/runs/{run.pk}/"
    origin = Origin(f"http://{lab.host}")
    with connect(address, origin=origin, additional_headers=headers, open_timeout=60) as opened:
        assert opened.recv(timeout=60)
        people.deactivate(by=admin, person=viewer)
        while not closed(opened):
            pass


def test_a_socket_that_nobody_decided_about_keeps_the_lab_from_starting() -> None:
    class Undecided(AsyncWebsocketConsumer):
        """Says nothing of who may use it."""

    route: Any = path
    with pytest.raises(ImproperlyConfigured, match="Undecided: nobody has decided"):
        guarded([route("ws/new/", Undecided.as_asgi())])
