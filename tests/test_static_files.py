"""Scripts and styles are answered before Django, with the headers that Django's own middleware gives them."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.conf import LazySettings

from lab.static_files import StaticFiles

SHEET = Path(__file__).resolve().parents[1] / "static" / "css" / "base.css"
URL = "/static/css/base.css"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """Stands for Django."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b"a page"})


async def ask(path: str = URL, *, method: str = "GET", scheme: str = "http", **headers: str) -> Answer:
    sent: list[Mapping[str, Any]] = []

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    told = {"host": "127.0.0.1:8000"} | {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": scheme,
        "headers": [(name.encode(), value.encode()) for name, value in told.items()],
        "server": ("127.0.0.1", 8000),
    }
    await StaticFiles(pages)(scope, receive, send)
    start, *rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(part["body"] for part in rest))


async def test_a_file_comes_as_it_is_to_who_reads_no_gzip() -> None:
    answer = await ask()
    assert (answer.status, answer.body) == (200, SHEET.read_bytes())
    assert answer.headers["content-type"] == 'text/css; charset="utf-8"'
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert "max-age" in answer.headers["cache-control"]


async def test_a_file_comes_compressed_to_who_reads_gzip_and_its_headers_alone_say_the_same() -> None:
    answer = await ask(accept_encoding="br, gzip")
    assert gzip.decompress(answer.body) == SHEET.read_bytes()
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-length"] == str(len(answer.body))
    head = await ask(method="HEAD", accept_encoding="br, gzip")
    assert (head.status, head.headers, head.body) == (200, answer.headers, b"")


async def test_an_unchanged_file_is_not_sent_again() -> None:
    known = (await ask()).headers["etag"]
    again = await ask(if_none_match=known)
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == known


async def test_a_part_of_a_file_is_a_part_of_what_was_compressed_for_nobody() -> None:
    answer = await ask(range="bytes=5-14", accept_encoding="gzip")
    assert (answer.status, answer.body) == (206, SHEET.read_bytes()[5:15])
    assert "content-encoding" not in answer.headers


async def test_nothing_can_be_sent_to_a_file() -> None:
    assert (await ask(method="POST")).status == 405


@pytest.mark.parametrize("path", ["/", "/static/", "/static/css/../css/base.css", "/static/css/none.css"])
async def test_whatever_is_no_file_of_exactly_this_address_is_for_the_pages(path: str) -> None:
    assert await ask(path) == Answer(299, {}, b"a page")


async def test_files_too_are_only_sent_over_https_where_the_lab_is(settings: LazySettings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_HSTS_SECONDS = 60
    plain = await ask()
    assert (plain.status, plain.headers["location"]) == (301, f"https://127.0.0.1:8000{URL}")
    secured = await ask(scheme="https")
    assert secured.status == 200
    assert secured.headers["strict-transport-security"].startswith("max-age=60")
