"""Guidelines: which vocabulary people label with, and which step counts as the root cause."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib import messages
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods, require_safe

from lab.engine.labels.guideline import DEFAULT, DEFINITIONS, OWN
from lab.models import GuidelineVersion, Role, TaxonomyVersion
from lab.services import guidelines
from lab.services.errors import FieldErrors
from lab.web.http import for_role, signed_in

LABELS = Q(annotations__state="submitted", annotations__kind="label", annotations__replaced_by=None)
FIELDS = ("name", "taxonomy", "definition", "root_cause", "instructions", "seen")


@require_safe
@for_role(Role.VIEWER)
def guideline_list(request: HttpRequest) -> HttpResponse:
    """Every version of every guideline, with how many labels were made under it."""
    rows = GuidelineVersion.objects.select_related("guideline", "taxonomy_version__taxonomy", "made_by")
    rows = rows.annotate(labels=Count("annotations", filter=LABELS)).order_by("guideline_id", "-n")
    newest = {row.pk for row in guidelines.all_newest()}
    context = {"place": "annotate", "tab": "guidelines", "rows": rows, "newest": newest}
    return render(request, "annotations/guidelines.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def guideline_edit(request: HttpRequest) -> HttpResponse:
    """A new guideline, or with `?of=` the next version of one; what was typed stays when it is refused."""
    before = _before(request)
    typed = (
        {name: request.POST.get(name, "") for name in FIELDS} if request.method == "POST" else _filled(before)
    )
    errors: Mapping[str, str] = {}
    if request.method == "POST":
        chosen = typed["taxonomy"]
        version = TaxonomyVersion.objects.filter(
            pk=int(chosen) if chosen.isdecimal() and len(chosen) < 10 else 0
        ).first()
        if version is None:
            errors = {"taxonomy": f"“{chosen[:20]}” is no taxonomy version; choose one"}
        else:
            try:
                saved = guidelines.save_version(
                    by=signed_in(request),
                    name=typed["name"],
                    taxonomy_version=version,
                    definition=typed["definition"],
                    root_cause=typed["root_cause"],
                    instructions=typed["instructions"],
                    seen_n=int(typed["seen"])
                    if typed["seen"].isdecimal() and len(typed["seen"]) < 7
                    else None,
                )
            except FieldErrors as wrong:
                errors = wrong.errors
            else:
                messages.success(request, f"{saved} is stored; queues made from now on can use it.")
                return redirect("guidelines")
    context = {
        "place": "annotate",
        "tab": "guidelines",
        "before": before,
        "typed": typed,
        "errors": errors,
        "taxonomies": TaxonomyVersion.objects.select_related("taxonomy").order_by("taxonomy_id", "-n"),
        "definitions": [(name, *words) for name, words in DEFINITIONS.items()] + [(OWN, "Your own", "")],
    }
    return render(request, "annotations/guideline_edit.html", context, status=422 if errors else 200)


def _before(request: HttpRequest) -> GuidelineVersion | None:
    text = request.GET.get("of", "")
    if not text:
        return None
    rows = GuidelineVersion.objects.select_related("guideline", "taxonomy_version")
    found = rows.filter(pk=int(text) if text.isdecimal() and len(text) < 10 else 0).first()
    if found is None:
        raise Http404(f"There is no guideline version {text[:20]}.")
    return found


def _filled(before: GuidelineVersion | None) -> dict[str, str]:
    if before is None:
        return dict.fromkeys(FIELDS, "") | {"definition": DEFAULT}
    return {
        "name": before.guideline.name,
        "taxonomy": str(before.taxonomy_version_id),
        "definition": before.definition,
        "root_cause": before.root_cause if before.definition == OWN else "",
        "instructions": before.instructions,
        "seen": str(before.n),
    }


urlpatterns = [
    path("annotate/guidelines/", guideline_list, name="guidelines"),
    path("annotate/guidelines/edit", guideline_edit, name="guideline_edit"),
]
