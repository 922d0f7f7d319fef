"""What works on this machine, tried on asking: sandboxes, database, queue, disk."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_safe

from lab.models import Role
from lab.services import doctor
from lab.web.http import for_role

# State -> icon and tone of a finding.
_LOOKS = {
    "ok": ("ok", "passed"),
    "absent": ("cancelled", "quiet"),
    "warning": ("warning", "warning"),
    "problem": ("cross", "failed"),
}


@require_safe
@for_role(Role.OPERATOR)
def machine(request: HttpRequest) -> HttpResponse:
    """The page comes at once and fetches the findings; asked for as a part, they are tried."""
    if request.headers.get("HX-Request") != "true" and "now" not in request.GET:
        return render(request, "machine/detail.html", {"place": "settings"})
    findings = [(finding, *_LOOKS[finding.state]) for finding in doctor.examine()]
    context = {"place": "settings", "findings": findings}
    by_script = request.headers.get("HX-Request") == "true"
    return render(request, "machine/_findings.html" if by_script else "machine/detail.html", context)


urlpatterns = [path("machine/", machine, name="machine")]
