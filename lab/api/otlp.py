"""Where programs send their spans: OTLP/HTTP, JSON or protobuf, acknowledged once they are stored.

OTEL_EXPORTER_OTLP_ENDPOINT=http://lab.example/api/otlp
OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer tlab_…"
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException, UnreadablePostError
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from lab.api.security import NoTokenError, TokenOf
from lab.engine.formats import otlp_wire
from lab.engine.formats.otlp_wire import JSON_TYPE, WireError
from lab.models import Role
from lab.services import access, otlp
from lab.services.errors import AccessDeniedError

_log = logging.getLogger(__name__)
_token = TokenOf(Role.OPERATOR)


def traces(request: HttpRequest) -> HttpResponse:
    """Store the spans of an ExportTraceServiceRequest. Whatever is refused is refused whole, with the reason.

    503 means: nothing was stored, send it again, as exporters do by themselves.
    """
    if request.method != "POST":
        refusal = _refusal("Send spans by POST.", HTTPStatus.METHOD_NOT_ALLOWED)
        refusal.headers["Allow"] = "POST"
        return refusal
    try:
        person = _token(request)
        content_type = request.headers.get("Content-Type", "")
        encoding = request.headers.get("Content-Encoding", "")
        found = otlp_wire.read_request(_body(request), content_type=content_type, encoding=encoding)
        otlp.receive(by=person, spans=found.spans)
    except NoTokenError as error:
        refusal = _refusal(str(error), HTTPStatus.UNAUTHORIZED)
        refusal.headers["WWW-Authenticate"] = 'Bearer realm="trajectory-lab"'
        return refusal
    except AccessDeniedError as error:
        return _refusal(str(error), HTTPStatus.FORBIDDEN)
    except WireError as error:
        return _refusal(str(error), error.status)
    except DatabaseError as error:
        _log.warning("spans were not stored (%s); the sender tries again", error)
        refusal = _refusal("The database is busy; nothing was stored.", HTTPStatus.SERVICE_UNAVAILABLE)
        refusal.headers["Retry-After"] = "1"
        return refusal
    body, kind = otlp_wire.answer(found, content_type=content_type)
    return HttpResponse(body, content_type=kind)


def _body(request: HttpRequest) -> bytes:
    """The body, however long a form may be: its own limit is that of one request with spans.

    Raises:
        WireError: it is longer, or it broke off.
    """
    if int(request.headers.get("Content-Length") or 0) > otlp_wire.MOST_BYTES:
        raise WireError(
            f"The request is larger than {otlp_wire.MOST_BYTES:,} bytes; send fewer spans at once",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    try:
        return request.read(otlp_wire.MOST_BYTES + 1)
    except (UnreadablePostError, RawPostDataException, OSError) as error:
        raise WireError(f"The body could not be read: {error}") from None


def _refusal(message: str, status: HTTPStatus) -> HttpResponse:
    """A `google.rpc.Status`, which exporters print, as JSON."""
    return HttpResponse(json.dumps({"message": message}), content_type=JSON_TYPE, status=status)


# A token is no cookie: no browser sends it by itself.
receiver = csrf_exempt(traces)
vars(receiver)["access"] = access.PER_OPERATION

urlpatterns = [path("v1/traces", receiver, name="otlp_traces")]
