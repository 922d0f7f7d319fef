"""Imports: files are given, their reading is watched, and what it came to is read."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NamedTuple
from uuid import uuid4

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import UnreadablePostError
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.views.decorators.http import require_POST, require_safe

from lab.engine.formats.catalogue import FORMATS
from lab.models import Import, Role
from lab.services import interchange
from lab.services.errors import FieldErrors
from lab.web.http import for_role, is_script, signed_in

PAGE = 50
# State -> word, icon, class.
_STATES = {
    Import.State.RECEIVING: ("receiving files", "queued", "queued"),
    Import.State.QUEUED: ("waits for a worker", "queued", "queued"),
    Import.State.READING: ("reading", "running", "running"),
    Import.State.ENDED: ("read", "ok", "passed"),
    Import.State.FAILED: ("failed", "cross", "failed"),
    Import.State.CANCELLED: ("cancelled", "cancelled", "queued"),
}
_GOES_ON = (Import.State.RECEIVING, Import.State.QUEUED, Import.State.READING)


class Row(NamedTuple):
    """An import as lists show it; `runs` counts those it made, `known` those that were there."""

    imported: Import
    name: str
    word: str
    icon: str
    tone: str
    runs: int
    known: int
    problems: int


@require_safe
@for_role(Role.VIEWER)
def import_list(request: HttpRequest) -> HttpResponse:
    return render(request, "imports/list.html", _list_context(request))


@require_POST
@for_role(Role.OPERATOR)
def import_new(request: HttpRequest) -> HttpResponse:
    """Keep the given files and queue them. A script is answered by JSON: where to go, or what is wrong.

    A form names files without their folders; `paths` are the whole names beside them, in their order. `more`:
    other requests with the same `key` follow, the last one without it queues them all.
    """
    person = signed_in(request)
    try:
        files = [*request.FILES.getlist("files"), *request.FILES.getlist("folder")]
        names = request.POST.getlist("paths")
        name = request.POST.get("name", "")
    except UnreadablePostError:
        return _refused(request, "The files broke off on their way. Nothing was imported: send them again.")
    if not files:
        return _refused(request, "files: nothing was given; choose at least one file or folder")
    try:
        key = request.POST.get("key", "")
        imported = interchange.start(by=person, name=name, idempotency_key=key)
        for place, file in enumerate(files):
            given = names[place] if place < len(names) else file.name or "unnamed"
            interchange.add_file(by=person, imported=imported, name=given, chunks=file.chunks())
        if request.POST.get("more") == "yes":
            return JsonResponse({"location": None})
        interchange.submit(by=person, imported=imported)
    except FieldErrors as error:
        return _refused(request, str(error))
    where = reverse("import", args=[imported.pk])
    return JsonResponse({"location": where}) if is_script(request) else redirect(where)


@require_safe
@for_role(Role.VIEWER)
def import_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One import; while it goes on the page asks for it again each second."""
    imported = get_object_or_404(Import.objects.select_related("asked_by", "experiment"), pk=pk)
    report = interchange.report_of(imported)
    context = {
        "place": "experiments",
        "row": _row(imported),
        "imported": imported,
        "report": report,
        "goes_on": imported.state in _GOES_ON,
        "can_go_again": imported.state == Import.State.FAILED,
        "share": _share(imported),
    }
    part = request.headers.get("HX-Request") == "true"
    return render(request, "imports/_import.html" if part else "imports/detail.html", context)


@require_POST
@for_role(Role.OPERATOR)
def import_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    imported = get_object_or_404(Import, pk=pk)
    interchange.cancel(by=signed_in(request), imported=imported)
    return redirect("import", pk)


@require_POST
@for_role(Role.OPERATOR)
def import_again(request: HttpRequest, pk: int) -> HttpResponse:
    imported = get_object_or_404(Import, pk=pk)
    try:
        interchange.again(by=signed_in(request), imported=imported)
    except FieldErrors as error:
        messages.warning(request, str(error))
    return redirect("import", pk)


def _list_context(request: HttpRequest) -> dict[str, Any]:
    page = Paginator(Import.objects.select_related("asked_by").order_by("-pk"), PAGE).get_page(
        request.GET.get("page")
    )
    return {
        "place": "experiments",
        "page": page,
        "rows": [_row(one) for one in page],
        "formats": sorted(FORMATS, key=lambda one: one.name),
        # Of a form sent twice the second one is the same import.
        "key": uuid4().hex,
    }


def _row(imported: Import) -> Row:
    word, icon, tone = _STATES[Import.State(imported.state)]
    found = imported.found
    problems = found.get("problems", 0)
    if imported.state == Import.State.ENDED and problems:
        word, icon, tone = "read, with problems", "warning", "warning"
    return Row(
        imported,
        name_of(imported),
        word,
        icon,
        tone,
        runs=found.get("imported", 0) + found.get("verdict_only", 0),
        known=found.get("known", 0),
        problems=problems,
    )


def name_of(imported: Import) -> str:
    """Its own name, or that of what was given first."""
    if imported.name:
        return imported.name
    given = [str(one.get("name", "")) for one in imported.sources]
    if not given:
        return str(imported)
    return given[0] if len(given) == 1 else f"{given[0]} and {len(given) - 1:,} more"


def _share(imported: Import) -> int | None:
    """How many hundredths of its files are read, None while nobody has counted them."""
    return None if not imported.total else min(100, imported.done * 100 // imported.total)


def _refused(request: HttpRequest, error: str) -> HttpResponse:
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    if is_script(request):
        return JsonResponse({"error": error}, status=status)
    context = _list_context(request) | {"error": error, "name": request.POST.get("name", "")}
    return render(request, "imports/list.html", context, status=status)


urlpatterns = [
    path("imports/", import_list, name="imports"),
    path("imports/new/", import_new, name="import_new"),
    path("imports/<int:pk>/", import_detail, name="import"),
    path("imports/<int:pk>/cancel/", import_cancel, name="import_cancel"),
    path("imports/<int:pk>/again/", import_again, name="import_again"),
]
