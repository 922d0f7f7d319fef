"""Scripts, styles and icons, answered before Django: a page waits for a dozen of them until it is painted.

Whitenoise finds the files and makes the headers as in Django's own middleware, where each file would wait
for a thread. Here they are answered on the loop and compressed once a process.
"""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import Any, cast

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.middleware.security import SecurityMiddleware
from django.utils.cache import patch_vary_headers
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped] # has no types
from whitenoise.responders import StaticFile  # type: ignore[import-untyped] # has no types

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

_COMPRESSIBLE = ("text/", "image/svg+xml", "application/json")
_SMALLEST = 500


class StaticFiles:
    """An ASGI application: the files it knows by their exact address, everything else from `pages`.

    With LAB_DEBUG it knows none: Django's middleware looks for them anew each time.
    """

    def __init__(self, pages: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._pages = pages
        self._files: dict[str, StaticFile] = WhiteNoiseMiddleware(_nothing_else).files
        # The headers of all answers of the lab, and the way to HTTPS.
        self._answer = SecurityMiddleware(self._file)
        self._compressed: dict[str, bytes] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in self._files:
            await self._pages(scope, receive, send)
            return
        response = cast(HttpResponse, self._answer(ASGIRequest(scope, BytesIO())))
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.items()]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})

    def _file(self, request: HttpRequest) -> HttpResponse:
        """Whitenoise's answer, in gzip where that is a whole file of text for somebody who reads gzip."""
        file = self._files[request.path_info]
        found = file.get_response(request.method, request.META)
        response = HttpResponse(status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        if found.file is not None:
            with found.file as opened:
                response.content = opened.read()
        if found.status == HTTPStatus.OK and _is_compressible(response):
            patch_vary_headers(response, ["Accept-Encoding"])
            if "gzip" in request.headers.get("Accept-Encoding", ""):
                self._compress(request, response, file)
        return response

    def _compress(self, request: HttpRequest, response: HttpResponse, file: StaticFile) -> None:
        body = self._compressed.get(request.path_info)
        if body is None:
            _, path, _ = file.alternatives[0]
            body = self._compressed[request.path_info] = gzip.compress(Path(path).read_bytes(), mtime=0)
        response["Content-Encoding"] = "gzip"
        response["Content-Length"] = str(len(body))
        if request.method != "HEAD":
            response.content = body


def _is_compressible(response: HttpResponse) -> bool:
    return (
        "Content-Encoding" not in response
        and response["Content-Type"].startswith(_COMPRESSIBLE)
        and int(response["Content-Length"]) >= _SMALLEST
    )


def _nothing_else(request: HttpRequest) -> HttpResponse:
    raise LookupError(f"{request.path} is no static file")
