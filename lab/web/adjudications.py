"""Runs whose labels differ, and settling them on the labelling page."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_POST, require_safe

from lab.engine.errors import InvalidValueError
from lab.models import Annotation, GuidelineVersion, Role
from lab.services import adjudications
from lab.web import labelling
from lab.web.http import for_role, signed_in

PAGE = 50


@require_safe
@for_role(Role.VIEWER)
def adjudication_list(request: HttpRequest) -> HttpResponse:
    """Every run that several people labelled; what waits comes first."""
    cases, hidden = adjudications.cases(by=signed_in(request))
    waiting = sum(case.waits for case in cases)
    context = {
        "place": "annotate",
        "tab": "adjudications",
        "page": Paginator(cases, PAGE).get_page(request.GET.get("page")),
        "waiting": waiting,
        "hidden": hidden,
    }
    return render(request, "annotations/adjudications.html", context)


@require_POST
@for_role(Role.OPERATOR)
def adjudicate(request: HttpRequest, run_id: int) -> HttpResponse:
    """Begins the record that settles a run's labels, or goes on with one's draft of it."""
    text = request.POST.get("guideline", "")
    guideline = GuidelineVersion.objects.filter(
        pk=int(text) if text.isdecimal() and len(text) < 10 else 0
    ).first()
    try:
        if guideline is None:
            raise InvalidValueError("guideline", text[:20], "is no guideline version; start from the list")
        draft = adjudications.open_draft(by=signed_in(request), run_id=run_id, guideline=guideline)
    except InvalidValueError as refused:
        messages.error(request, str(refused))
        return redirect("adjudications")
    return redirect("label", pk=draft.pk)


@require_POST
@for_role(Role.OPERATOR)
def label_take(request: HttpRequest, pk: int) -> HttpResponse:
    """Takes part of one of the labels into the third record: `part` of label `parent`."""
    by = signed_in(request)
    parent = request.POST.get("parent", "")

    def change() -> Annotation:
        return adjudications.take(
            by=by,
            annotation_id=pk,
            revision=labelling.revision_of(request),
            parent_id=int(parent) if parent.isdecimal() and len(parent) < 10 else 0,
            part=request.POST.get("part", ""),
        )

    return labelling.changed(request, pk, change)


urlpatterns = [
    path("annotate/adjudications/", adjudication_list, name="adjudications"),
    path("runs/<int:run_id>/adjudicate", adjudicate, name="adjudicate"),
    path("annotate/labels/<int:pk>/take", label_take, name="label_take"),
]
