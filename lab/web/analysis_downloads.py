"""The tables of an analysis as CSV files, one or all."""

from __future__ import annotations

import zipfile
from io import BytesIO

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from lab.models import Role
from lab.render.tables import Table, csv_text
from lab.services import analysis
from lab.services.analysis import Observed, Selection
from lab.services.errors import FieldErrors
from lab.web import analysis_sections
from lab.web.http import for_role, signed_in

# Zip files hold a time for each file; the same analysis is the same bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


@require_safe
@for_role(Role.VIEWER)
def one_table(request: HttpRequest, table: str) -> HttpResponse:
    """The table of that name, each row with the selection it is of."""
    try:
        observed = analysis.observed(Selection.from_query(request.GET))
    except FieldErrors as error:
        return _refused(error)
    for found in analysis_sections.tables(observed, signed_in(request)):
        if found.key == table:
            return _file(_csv(found, observed).encode(), "text/csv; charset=utf-8", f"{table}.csv")
    known = ", ".join(one.key for one in analysis_sections.tables(observed, signed_in(request)))
    raise Http404(f"No table of an analysis is “{table[:40]}”; there are {known}.")


@require_safe
@for_role(Role.VIEWER)
def all_tables(request: HttpRequest) -> HttpResponse:
    """Every table in one zip file."""
    try:
        observed = analysis.observed(Selection.from_query(request.GET))
    except FieldErrors as error:
        return _refused(error)
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for table in analysis_sections.tables(observed, signed_in(request)):
            entry = zipfile.ZipInfo(f"analysis/{table.key}.csv", _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, _csv(table, observed))
    return _file(out.getvalue(), "application/zip", "analysis.zip")


def _csv(table: Table, observed: Observed) -> str:
    return csv_text(table, {"selection": observed.selection.query() or "everything"})


def _file(data: bytes, content_type: str, name: str) -> HttpResponse:
    return HttpResponse(
        data,
        content_type=content_type,
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


def _refused(error: FieldErrors) -> HttpResponse:
    return HttpResponse(f"{error}\n", status=400, content_type="text/plain; charset=utf-8")
