"""Is the web process there, and can the lab work?"""

from __future__ import annotations

import logging

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from lab.services import heartbeats, lab
from lab.web.http import for_everyone

_log = logging.getLogger(__name__)


@for_everyone
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 as soon as the process answers."""
    return JsonResponse({"status": "ok"})


@for_everyone
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the database answers and workers and tick reported lately, else 503 with what is missing."""
    missing = []
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if not lab.workers_alive():
            missing.append("no worker has reported lately")
        if not heartbeats.tick_is_heard():
            missing.append("no tick has reported lately: nobody takes runs back from dead workers")
    except DatabaseError as error:
        # Whoever may ask this is not signed in, and drivers name hosts and people.
        _log.warning("the database does not answer: %s", error)
        missing.append("the database does not answer; the web process has printed why")
    return JsonResponse({"ready": not missing, "missing": missing}, status=503 if missing else 200)
