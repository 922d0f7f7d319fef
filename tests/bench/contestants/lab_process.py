"""One worker child: claims a queued run and runs its attempt through the worker's own task."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import User

KEY_VARIABLE = "BENCH_API_KEY"


def set_up() -> None:
    """Django, and a key that says whose processor time the endpoint shall read."""
    os.environ[KEY_VARIABLE] = f"bench-key-of-{os.getpid()}"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
    import django

    django.setup()


def session_cookie(person: User) -> str:
    """The Cookie header of this person, signed in."""
    from django.conf import settings
    from django.test import Client

    client = Client()
    client.force_login(person)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


def main() -> None:
    set_up()
    from lab.models import Attempt, Event
    from lab.worker.execution import warm_up
    from lab.worker.tasks import claim_and_run

    # As the worker's main process does before it forks its pool children.
    warm_up()
    claim_and_run()
    attempt = Attempt.objects.order_by("-started_at").select_related("run").first()
    if attempt is None:
        raise SystemExit("no run could be claimed")
    print(
        json.dumps(
            {
                "run": attempt.run_id,
                "exit_reason": attempt.exit_reason,
                "events": Event.objects.filter(run=attempt.run_id).count(),
                "status": attempt.run.status,
            }
        )
    )


if __name__ == "__main__":
    main()
