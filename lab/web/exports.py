"""Runs and experiments as files of other programs, to download."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.http import require_safe

from lab.engine.errors import InvalidValueError, LabError
from lab.models import Experiment, Role, Run
from lab.services import exports
from lab.services.errors import AccessDeniedError
from lab.services.exports import Export
from lab.web.http import for_role, signed_in

_MOST_NAMED = 1_000


@require_safe
@for_role(Role.VIEWER)
def run_export(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """One run in the format that `?format=` names."""
    run = get_object_or_404(Run, pk=run_id)
    return _download(request, partial(exports.of_run, by=signed_in(request), run=run))


@require_safe
@for_role(Role.VIEWER)
def experiment_export(request: HttpRequest, pk: int) -> HttpResponseBase:
    """An experiment in the format that `?format=` names; of it only the runs that `?run=` names, if any."""
    experiment = get_object_or_404(Experiment, pk=pk)
    named = request.GET.getlist("run")[:_MOST_NAMED]
    if wrong := next((text for text in named if not (text.isdecimal() and len(text) < 10)), None):
        return _refused(InvalidValueError("run", wrong[:40], "is no number of a run"))
    runs = [int(text) for text in named]
    return _download(
        request, partial(exports.of_experiment, by=signed_in(request), experiment=experiment, runs=runs)
    )


def _download(request: HttpRequest, export: Callable[..., Export]) -> HttpResponseBase:
    try:
        made = export(format_name=request.GET.get("format", "")[:40])
    except AccessDeniedError:
        raise
    except LabError as error:
        return _refused(error)
    return download(request, made)


def download(request: HttpRequest, made: Export) -> StreamingHttpResponse:
    """A file that is sent while it is made."""
    # Under ASGI pieces that are not awaited would all be made before the first is sent.
    pieces = _awaited(made.pieces) if isinstance(request, ASGIRequest) else made.pieces
    return StreamingHttpResponse(
        pieces,
        content_type=made.content_type,
        headers={
            "Content-Disposition": f'attachment; filename="{made.file_name}"',
            "X-Content-Type-Options": "nosniff",
            # Otherwise Django would compress each awaited piece by itself, and browsers read the first alone.
            "Content-Encoding": "identity",
        },
    )


def _refused(error: LabError) -> HttpResponse:
    return HttpResponse(f"{error}\n", status=400, content_type="text/plain; charset=utf-8")


async def _awaited(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces, each made in the request's own thread; none is empty."""

    def following() -> bytes:
        return next(pieces, b"")

    while piece := await sync_to_async(following)():
        yield piece


urlpatterns = [
    path("runs/<int:run_id>/export", run_export, name="run_export"),
    path("experiments/<int:pk>/export", experiment_export, name="experiment_export"),
]
