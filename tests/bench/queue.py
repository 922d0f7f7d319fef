"""How long a queue over 10,000 runs takes to fill, and a submitted label until the next run's page is there.

    python -m tests.bench.queue [RUNS]

Prints one JSON object. `fill_seconds`: making the queue, limit 5. `submit_next`: milliseconds of the server
for submit and the page it leads to, median and worst of 20, when nine tenths of the items are labelled; limit
200. `ratio`: the same over that of a queue of 100 items. In the process of the server, without a network.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

TRIES = 20
SMALL = 100


def _prepare(folder: str) -> None:
    os.environ.update(
        LAB_DATA_DIR=folder, DJANGO_SETTINGS_MODULE="lab.settings", LAB_ALLOWED_HOSTS="testserver"
    )
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def _runs(number: int) -> Any:
    """A believable run, and so many of its arm that ended with the same facts and no log of their own."""
    from lab.models import Run, RunFacts
    from tests import builders

    first = builders.run()
    builders.believable(first)
    ended = {"arm": first.arm, "task": first.task, "experiment": first.experiment, "status": Run.Status.ENDED}
    rows = (Run(seed=seed, exit_reason="agent", **ended) for seed in range(2, number + 1))
    made = Run.objects.bulk_create(rows, batch_size=1_000)
    facts = (RunFacts(run=run, verdict="unresolved", steps=7) for run in made)
    RunFacts.objects.bulk_create(facts, batch_size=1_000)
    return first


def _filled(name: str, rules: dict[str, Any]) -> Any:
    from lab.services import guidelines, queues
    from tests import builders

    return queues.make(
        by=builders.person(),
        settings=queues.Settings(name=name, guideline=guidelines.default()),
        rules=rules,
    )


def _label_most(queue: Any) -> None:
    """Nine tenths of the items have all labels they want, by somebody else."""
    from lab.models import Annotation, Annotator

    others = [Annotator.objects.get_or_create(kind="person", name=f"other-{place}")[0] for place in range(2)]
    items = list(queue.items.order_by("position"))
    rows = [
        Annotation(
            run_id=item.run_id,
            guideline=queue.guideline,
            annotator=other,
            item=item,
            state="submitted",
            owner="agent",
        )
        for item in items[: len(items) * 9 // 10]
        for other in others[: item.wanted]
    ]
    Annotation.objects.bulk_create(rows, batch_size=1_000)


def _submit_next(queue: Any) -> list[float]:
    """Milliseconds from a submitted label to the next page, in this process."""
    from django.test import Client

    from lab.models import Annotation, Role
    from lab.services import claims, labels
    from tests import builders

    person, client = builders.person(Role.ANNOTATOR), Client()
    client.force_login(person)
    draft = claims.claim_next(by=person, queue_id=queue.pk)
    taken = []
    for _ in range(TRIES + 1):
        assert draft is not None
        for operation in ({"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": True}):
            draft = labels.edit(
                by=person, annotation_id=draft.pk, revision=draft.revision, operation=operation
            )
        begun = time.perf_counter()
        answer = client.post(f"/annotate/labels/{draft.pk}/submit", {"revision": draft.revision})
        page = client.get(answer.headers["Location"])
        taken.append(1000 * (time.perf_counter() - begun))
        assert page.status_code == 200
        draft = Annotation.objects.filter(annotator__person=person, state="draft").first()
    return taken[1:]  # The first one loads templates.


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        _prepare(folder)
        experiment = _runs(number).experiment_id
        begun = time.perf_counter()
        queue = _filled("large", {"experiments": [experiment]})
        filled = time.perf_counter() - begun
        _label_most(queue)
        large = _submit_next(queue)
        rest = list(queue.items.order_by("-position").values_list("run_id", flat=True)[:SMALL])
        small = _submit_next(_filled("small", {"runs": rest}))
    print(
        json.dumps(
            {
                "runs": number,
                "fill_seconds": round(filled, 2),
                "submit_next": {"median": round(statistics.median(large), 1), "worst": round(max(large), 1)},
                "ratio": round(statistics.median(large) / statistics.median(small), 2),
            }
        )
    )


if __name__ == "__main__":
    main()
