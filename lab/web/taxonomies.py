"""Vocabularies of failures: all of them, one version, and the editor that makes the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods, require_safe
from pydantic import ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.labels import changes
from lab.engine.labels.taxonomy import Code
from lab.engine.labels.taxonomy import Taxonomy as Vocabulary
from lab.models import Role, Taxonomy, TaxonomyVersion
from lab.services import taxonomies
from lab.services.taxonomies import Used
from lab.web.http import for_role, signed_in

MOST_CODES = 200
LONGEST_FILE = 1_000_000
TEXTS = ("id", "name", "group", "definition", "use_when", "not_when", "example", "maps_to")


class Listed(NamedTuple):
    """A vocabulary of the list: its newest version, codes in use, and in how many error events they stand."""

    version: TaxonomyVersion
    codes: int
    events: int


@require_safe
@for_role(Role.VIEWER)
def taxonomy_list(request: HttpRequest) -> HttpResponse:
    rows = []
    for taxonomy in Taxonomy.objects.order_by("id"):
        version = taxonomy.versions.select_related("taxonomy").order_by("-n").first()
        if version is not None:
            used = taxonomies.usage(signed_in(request), version)
            codes = sum(not one.code.retired for one in used)
            rows.append(Listed(version, codes, sum(one.events for one in used)))
    context = {"place": "annotate", "tab": "taxonomies", "rows": rows}
    return render(request, "annotations/taxonomies.html", context)


@require_safe
@for_role(Role.VIEWER)
def taxonomy(request: HttpRequest, pk: int) -> HttpResponse:
    """One version; `?format=yaml` as the file that makes it again."""
    version = _found(pk)
    content = taxonomies.content_of(version)
    if request.GET.get("format") == "yaml":
        name = f"taxonomy-{content.slug}-v{version.n}.yaml"
        return HttpResponse(
            changes.to_yaml(content),
            content_type="application/yaml; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )
    versions = list(version.taxonomy.versions.select_related("made_by").order_by("-n"))
    before = next((one for one in versions if one.n == version.n - 1), None)
    context = {
        "place": "annotate",
        "tab": "taxonomies",
        "version": version,
        "content": content,
        "groups": _groups(taxonomies.usage(signed_in(request), version)),
        "others": sorted({slug for code in content.codes for slug in code.maps_to}),
        "versions": versions,
        "changed": changes.differences(taxonomies.content_of(before), content) if before else [],
        "newest": versions[0].n,
    }
    return render(request, "annotations/taxonomy.html", context)


def _found(pk: int) -> TaxonomyVersion:
    found = TaxonomyVersion.objects.select_related("taxonomy", "made_by").filter(pk=pk).first()
    if found is None:
        raise Http404(f"There is no taxonomy version {pk}.")
    return found


def _groups(used: list[Used]) -> dict[str, list[Used]]:
    groups: dict[str, list[Used]] = {}
    for one in used:
        groups.setdefault("Retired" if one.code.retired else one.code.group, []).append(one)
    return groups


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def taxonomy_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """All codes of a version in one form; saving makes the next version of the vocabulary."""
    version = _found(pk)
    content, error, status = taxonomies.content_of(version), "", 200
    rows = [_row(code) for code in content.codes]
    head = {"name": content.name, "description": content.description, "note": ""}
    seen = str(version.n)
    if request.method == "POST":
        rows, head = _typed_rows(request), {name: request.POST.get(name, "") for name in head}
        seen = request.POST.get("seen", seen)
        try:
            saved = taxonomies.save_version(
                by=signed_in(request),
                content=_content(content, head, rows),
                seen_n=int(seen) if seen.isdecimal() and len(seen) < 7 else 0,
                note=head["note"],
            )
        except taxonomies.NewerTaxonomyError as newer:
            error, status, seen = str(newer), 409, str(newer.newest.n)
            rows += _added_meanwhile(rows, content, newer.newest)
        except InvalidValueError as wrong:
            error, status = str(wrong), 422
        else:
            said = f"{saved} is stored." if saved.pk != pk else "Nothing changed: this is the same version."
            messages.success(request, said)
            return redirect("taxonomy", pk=saved.pk)
    blank = dict.fromkeys(TEXTS, "") | {"retired": ""}
    context = {
        "place": "annotate",
        "tab": "taxonomies",
        "version": version,
        "rows": [*rows, blank, blank],
        # An id that labels may hold is not typed over.
        "known": {code.id for code in content.codes},
        "head": head,
        "seen": seen,
        "error": error,
    }
    return render(request, "annotations/taxonomy_edit.html", context, status=status)


def _added_meanwhile(
    rows: list[dict[str, str]], before: Vocabulary, newest: TaxonomyVersion
) -> list[dict[str, str]]:
    """Codes that somebody else added since: without a row of their own, saving again would retire them."""
    known = {row["id"] for row in rows} | {code.id for code in before.codes}
    return [_row(code) for code in taxonomies.content_of(newest).codes if code.id not in known]


def _row(code: Code) -> dict[str, str]:
    texts = {name: str(getattr(code, name)) for name in TEXTS if name != "maps_to"}
    mapped = "; ".join(f"{slug}: {', '.join(ids)}" for slug, ids in code.maps_to.items())
    return texts | {"maps_to": mapped, "retired": "on" if code.retired else ""}


def _typed_rows(request: HttpRequest) -> list[dict[str, str]]:
    """The rows of the form that hold anything; each row has every text, and a tick for "retired" by place."""
    fields = {name: "name-of" if name == "name" else name for name in TEXTS}
    columns = {name: request.POST.getlist(field) for name, field in fields.items()}
    number = max((len(values) for values in columns.values()), default=0)
    retired = set(request.POST.getlist("retired"))
    rows = [
        {name: (values[place] if place < len(values) else "").strip() for name, values in columns.items()}
        | {"retired": "on" if str(place) in retired else ""}
        for place in range(number)
    ]
    return [row for row in rows if any(row[name] for name in TEXTS)]


def _content(before: Vocabulary, head: Mapping[str, str], rows: list[dict[str, str]]) -> Vocabulary:
    """Raises: InvalidValueError, which names the code and the field."""
    if len(rows) > MOST_CODES:
        raise InvalidValueError(
            "codes", len(rows), f"are too many for one form; it takes {MOST_CODES}, YAML more"
        )
    codes = []
    for row in rows:
        values: dict[str, Any] = {name: row[name] for name in TEXTS if name != "maps_to"}
        values |= {"maps_to": _mapping(row), "retired": bool(row["retired"])}
        try:
            codes.append(Code.model_validate(values))
        except ValidationError as invalid:
            first = invalid.errors()[0]
            field = ".".join(map(str, first["loc"]))
            where = f"{row['id'] or 'a code without an id'}, {field}"
            raise InvalidValueError(where, first.get("input"), f"cannot be used: {first['msg']}") from None
    try:
        return Vocabulary(
            slug=before.slug,
            name=head["name"].strip(),
            description=head["description"].strip(),
            source=before.source,
            codes=tuple(codes),
        )
    except ValidationError as invalid:
        first = invalid.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidValueError(field, first.get("input"), f"cannot be used: {first['msg']}") from None


def _mapping(row: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """ "mast: fm-1.1, fm-1.3; agentrx: inconclusive" as a mapping."""
    mapped = {}
    for part in filter(None, (one.strip() for one in row["maps_to"].split(";"))):
        slug, colon, ids = part.partition(":")
        known = tuple(filter(None, (one.strip() for one in ids.split(","))))
        if not colon or not known:
            raise InvalidValueError(
                f"{row['id']}, maps to", part, "is no mapping; write such as mast: fm-1.1, fm-1.3"
            )
        mapped[slug.strip()] = known
    return mapped


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def taxonomy_import(request: HttpRequest) -> HttpResponse:
    """A vocabulary of one's own, or the next version of one, from its YAML."""
    text, error = request.POST.get("text", ""), ""
    if request.method == "POST":
        given = request.FILES.get("file")
        if given is not None:
            text = given.read(LONGEST_FILE + 1).decode("utf-8", "replace")
        try:
            if len(text) > LONGEST_FILE:
                raise InvalidValueError("file", text[:40], f"is longer than {LONGEST_FILE:,} characters")
            content = changes.from_yaml(text)
            last = TaxonomyVersion.objects.filter(taxonomy__slug=content.slug).order_by("-n").first()
            saved = taxonomies.save_version(
                by=signed_in(request), content=content, seen_n=last.n if last else 0, new=last is None
            )
        except InvalidValueError as wrong:
            error = str(wrong)
        else:
            messages.success(request, f"{saved} is stored.")
            return redirect("taxonomy", pk=saved.pk)
    context = {"place": "annotate", "tab": "taxonomies", "text": text, "error": error}
    return render(request, "annotations/taxonomy_import.html", context, status=422 if error else 200)


urlpatterns = [
    path("annotate/taxonomies/", taxonomy_list, name="taxonomies"),
    path("annotate/taxonomies/import", taxonomy_import, name="taxonomy_import"),
    path("annotate/taxonomies/<int:pk>/", taxonomy, name="taxonomy"),
    path("annotate/taxonomies/<int:pk>/edit", taxonomy_edit, name="taxonomy_edit"),
]
