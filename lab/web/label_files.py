"""Labels as files: what comes in and what became of it, and what goes out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_POST, require_safe

from lab.engine.errors import InvalidValueError
from lab.engine.labels.formats.catalogue import READ, WRITTEN
from lab.models import Annotation, Annotator, Experiment, GuidelineVersion, Role
from lab.services import label_exports, label_imports
from lab.services.errors import FieldErrors
from lab.web.http import for_role, signed_in

_LISTED = 200
_MOST_FILES = 1_000


@require_safe
@for_role(Role.VIEWER)
def label_files(request: HttpRequest) -> HttpResponse:
    return render(request, "annotations/files.html", _context(request))


@require_POST
@for_role(Role.OPERATOR)
def label_import(request: HttpRequest) -> HttpResponse:
    """Read the given files, one after another; one that cannot be read does not stop the others."""
    try:
        files, typed = request.FILES.getlist("files"), request.POST
    except UnreadablePostError:
        return _refused(request, {"file": "The files broke off on their way. Nothing was imported."}, {})
    errors: dict[str, str] = {}
    experiment = _number(typed.get("experiment", ""), "experiment", errors)
    if not files:
        errors["file"] = "files: nothing was given; choose at least one file of labels"
    if len(files) > _MOST_FILES:
        errors["file"] = f"files: {len(files)} were given, at most {_MOST_FILES} at once"
    if errors:
        return _refused(request, errors, typed)
    outcomes: list[dict[str, Any]] = []
    for file in files:
        name = file.name or "unnamed"
        outcome: dict[str, Any] = {"name": name}
        try:
            data = file.read()
            outcome["report"] = label_imports.import_file(
                by=signed_in(request),
                name=name,
                data=data,
                annotator=typed.get("annotator", ""),
                experiment=experiment,
            )
        except FieldErrors as error:
            outcome["error"] = str(error)
        outcomes.append(outcome)
    context = _context(request) | {"outcomes": [_shown(one) for one in outcomes], "typed": typed}
    failed = all("error" in one for one in outcomes)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if failed else HTTPStatus.OK
    return render(request, "annotations/files.html", context, status=status)


def _shown(outcome: dict[str, Any]) -> dict[str, Any]:
    """The first of long lists, and how many are left."""
    report = outcome.get("report")
    if report is None:
        return outcome
    return outcome | {
        "missing": report.missing[:_LISTED],
        "missing_more": max(0, len(report.missing) - _LISTED),
        "problems": report.problems[:_LISTED],
        "problems_more": max(0, len(report.problems) - _LISTED),
        "words": report.words.most_common(20),
        # A Counter answers 0 to any name a template asks it for.
        "annotators": report.annotators.most_common(20),
    }


@require_safe
@for_role(Role.VIEWER)
def label_export(request: HttpRequest) -> HttpResponse:
    """The file, with how many labels are hidden and left out in headers; the page says it before."""
    errors: dict[str, str] = {}
    names = ("guideline", "experiment", "annotator")
    numbers = {name: _number(request.GET.get(name, ""), name, errors) for name in names}
    if errors:
        return _refused(request, errors, request.GET)
    format_name = request.GET.get("format", "lab-jsonl")
    try:
        found = label_exports.export(
            by=signed_in(request), format_name=format_name, wanted=label_exports.Wanted(**numbers)
        )
    except InvalidValueError as error:
        return _refused(request, {"format": str(error)}, request.GET)
    response = HttpResponse(found.content, content_type=found.content_type)
    response["Content-Disposition"] = f'attachment; filename="{found.file_name}"'
    response["X-Labels"] = str(found.labels)
    response["X-Labels-Hidden"] = str(found.hidden)
    response["X-Labels-Left-Out"] = str(found.unfit)
    return response


def _number(text: str, name: str, errors: dict[str, str]) -> int | None:
    stripped = text.strip()
    if not stripped:
        return None
    if stripped.isascii() and stripped.isdigit() and len(stripped) < 10:
        return int(stripped)
    errors[name] = f"{name}: “{stripped[:40]}” is no number; choose one of the list"
    return None


def _context(request: HttpRequest) -> dict[str, Any]:
    seen, hidden = label_exports.counts(by=signed_in(request))
    labelled = Annotation.objects.filter(state=Annotation.State.SUBMITTED)
    versions = GuidelineVersion.objects.select_related("guideline").order_by("guideline__name", "n")
    return {
        "place": "annotate",
        "tab": "files",
        "seen": seen,
        "hidden": hidden,
        "read": READ,
        "written": WRITTEN,
        "experiments": Experiment.objects.order_by("-pk")[:_LISTED],
        "guidelines": versions.filter(pk__in=labelled.values("guideline")),
        "annotators": Annotator.objects.filter(pk__in=labelled.values("annotator")).order_by("name"),
    }


def _refused(request: HttpRequest, errors: dict[str, str], typed: Any) -> HttpResponse:
    context = _context(request) | {"errors": errors, "typed": typed}
    return render(request, "annotations/files.html", context, status=HTTPStatus.UNPROCESSABLE_ENTITY)


urlpatterns = [
    path("annotate/files/", label_files, name="label_files"),
    path("annotate/files/import/", label_import, name="label_import"),
    path("annotate/files/export/", label_export, name="label_export"),
]
