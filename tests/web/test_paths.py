"""No address leads to a file outside the data folder or the lab's static files, by dots or by a link."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from django.conf import settings
from django.test import Client

from lab.models import Blob, Event, Role
from lab.services import blobs
from lab.services.blobs import BodyMissingError
from tests import builders
from tests.live.lab_server import LabServer, running_lab, session_cookie

SECRET = "what no page may show"
DOTS = (
    "../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "..\\",
    "....//", "%252e%252e%252f", "..;/", ".%00./", "//", "/./../"
)  # fmt: skip


@pytest.fixture(scope="module")
def lab(django_db_setup: None) -> Iterator[LabServer]:
    with running_lab() as server:
        yield server


def get(lab: LabServer, target: str, cookie: str) -> tuple[int, bytes]:
    """An answer to a request line exactly as given: clients would tidy its dots."""
    head = f"GET {target} HTTP/1.1\r\nHost: {lab.host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", lab.port), timeout=60) as opened:
        opened.sendall(head.encode())
        answer = b""
        while piece := opened.recv(65_536):
            answer += piece
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.django_db(transaction=True)
def test_dots_lead_out_of_no_folder(lab: LabServer) -> None:
    run = builders.run()
    builders.believable(run)
    cookie = session_cookie(builders.person(Role.ADMIN))
    assert get(lab, "/static/css/base.css", cookie)[0] == 200
    outside = Path(settings.LAB_DATA_DIR) / "secret_key"
    assert outside.is_file()
    for dots in DOTS:
        for depth in (1, 8):
            for base, file in (
                ("/static/", "lab/settings.py"),
                ("/static/css/", "templates/base.html"),
                ("/static/", f"{outside}".lstrip("/")),
                (f"/runs/{run.pk}/", "etc/passwd"),
                (f"/runs/{run.pk}/events/1/raw?part=", "etc/passwd"),
                ("/", "etc/passwd"),
            ):
                status, answer = get(lab, base + dots * depth + file, cookie)
                assert status in (302, 400, 404), (base, dots, depth, status)
                for line in (b"DJANGO_SETTINGS", b"root:x:", outside.read_bytes(), b"{% block"):
                    assert line not in answer


@pytest.mark.parametrize(
    "name",
    [
        "../" * 8 + "etc/passwd",
        "/etc/passwd",
        "..",
        "",
        "a" * 63,
        "a" * 65,
        "g" * 64,
        "A" * 64,
        "é" * 64,
        "a/../" + "a" * 59,
    ],
)
def test_a_stored_body_has_the_name_of_a_hash_or_none(db: None, name: str) -> None:
    for read in (lambda: blobs.blob_bytes(sha256=name), lambda: blobs.beginning_of(name, limit=10)):
        with pytest.raises(BodyMissingError, match="is no SHA-256"):
            read()


@pytest.mark.django_db
def test_a_link_in_the_place_of_a_body_is_not_followed(tmp_path: Path) -> None:
    """Even where its target holds what the name promises: the file is not the lab's."""
    data = SECRET.encode()
    digest = hashlib.sha256(data).hexdigest()
    outside = tmp_path / "outside.zst"
    outside.write_bytes(zstandard.ZstdCompressor().compress(data))
    place = blobs.path_of(digest)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)
    Blob.objects.create(sha256=digest, size=len(data), stored_size=1)
    try:
        for read in (lambda: blobs.blob_bytes(sha256=digest), lambda: blobs.beginning_of(digest, limit=100)):
            with pytest.raises(BodyMissingError, match="cannot be read"):
                read()
        run = builders.run()
        builders.start(run)
        seq = builders.append(run, *builders.bash_step(1, "cat x", "y" * 9000))
        row = Event.objects.get(run=run, seq=seq)
        row.payload["stdout"]["text"] = {"$blob": digest, "bytes": 9, "characters": 9, "preview": "y"}
        Event.objects.filter(pk=row.pk).update(payload=row.payload)
        client = Client()
        client.force_login(builders.person(Role.ADMIN))
        for path in ("", "steps", f"events/{seq}/body?part=stdout", f"events/{seq}/raw?part=stdout"):
            answer = client.get(f"/runs/{run.pk}/{path}")
            assert SECRET not in answer.content.decode()
            assert answer.status_code == (404 if "part" in path else 200)
    finally:
        place.unlink()


@pytest.mark.django_db
def test_a_folder_that_is_a_link_is_not_followed_either(tmp_path: Path) -> None:
    data = SECRET.encode() + b"2"
    digest = hashlib.sha256(data).hexdigest()
    place = blobs.path_of(digest)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / place.name).write_bytes(zstandard.ZstdCompressor().compress(data))
    assert not place.parent.exists()
    place.parent.parent.mkdir(exist_ok=True)
    place.parent.symlink_to(folder)
    try:
        with pytest.raises(BodyMissingError, match="cannot be read"):
            blobs.blob_bytes(sha256=digest)
    finally:
        place.parent.unlink()


@pytest.mark.django_db
def test_a_download_has_a_name_that_holds_no_path_and_no_line() -> None:
    run = builders.run()
    builders.believable(run)
    client = Client()
    client.force_login(builders.person(Role.ADMIN))
    seq = Event.objects.filter(run=run, kind="tool_call_finished").first().seq
    name = client.get(f"/runs/{run.pk}/events/{seq}/raw").headers["Content-Disposition"]
    assert name == f'attachment; filename="run-{run.pk}-event-{seq}-observation.txt"'
    for part in ("../../etc/passwd", "a\r\nX: y", '"; x="'):
        answer = client.get(f"/runs/{run.pk}/events/{seq}/raw", {"part": part})
        assert answer.status_code == 404
        assert "X" not in answer.headers


@pytest.mark.django_db
def test_another_host_name_gets_no_page() -> None:
    """A name of theirs that leads to this machine (DNS rebinding) is no name of the lab's."""
    client = Client()
    client.force_login(builders.person(Role.ADMIN))
    for host in (
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::2]",
    ):
        for path in ("/", "/sign-in/", "/api/v1/openapi.json", "/healthz"):
            assert client.get(path, headers={"host": host}).status_code == 400, (host, path)
    for host in ("127.0.0.1:8000", "localhost", "[::1]:8000"):
        assert client.get("/", headers={"host": host}).status_code == 200
