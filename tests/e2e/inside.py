"""What tests do inside a lab: run in a process of its own, with the lab's settings, by `WholeLab.program`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.forms.models import model_to_dict

from lab.engine.harnesses.conversation import rebuild_inputs
from lab.models import Attempt, Call, Control, Draft, Event, HarnessVersion, Model, Run, RunFacts
from lab.services import endpoints, harnesses, log, messages, runs, tasks
from lab.services.facts import Entry, empty_facts, fold
from tests.e2e.faults import Fault, FaultFolder

TWENTY_STEPS = Path(__file__).parent / "fixtures" / "twenty-steps"
# A scripted model whose calls cost what they would cost at a provider, so that there is something to add up.
PRICED = "priced"


def launch(
    data_folder: str, told: Sequence[Sequence[dict[str, Any]]], *, ring: int | None = None
) -> list[int]:
    """Launch one twenty-step run for each list of faults, told before any worker can hear of the run.

    `ring` sends so many messages instead of one a run.
    """
    task_set = tasks.sync_task_set(folder=TWENTY_STEPS)
    folder = FaultFolder(Path(data_folder))
    if ring is not None:
        messages._send = lambda count, send=messages._send: send(ring)  # type: ignore[misc]
    with transaction.atomic():
        experiment = runs.launch(
            by=User.objects.order_by("pk")[0],
            tasks=list(task_set.tasks.all()),
            harness_versions=list(HarnessVersion.objects.filter(harness__name="leaf-compatible")),
            models=[_priced_model()],
            seeds=len(told),
        )
        launched = list(experiment.runs.order_by("seed").values_list("pk", flat=True))
        folder.tell(
            Fault(**{**fault, "run": run, "name": f"{run}-{number}"})
            for run, faults in zip(launched, told, strict=True)
            for number, fault in enumerate(faults)
        )
    return launched


def _priced_model() -> Model:
    harnesses.sync_presets()
    solver = next(model for model in endpoints.sync_scripted() if model.name.endswith("solver"))
    fields = {"price_basis": "table", "price_provider": "openai", "price_model": "gpt-4o"}
    fields |= {"endpoint": solver.endpoint, "model_id": solver.model_id}
    return Model.objects.get_or_create(name=PRICED, version=1, defaults=fields)[0]


def tell(launched: Sequence[int]) -> list[dict[str, Any]]:
    """Everything the lab holds about these runs, as JSON; see `tests.e2e.stories.Story`."""
    return [json.loads(json.dumps(_story(run), default=str)) for run in launched]


def _story(run_id: int) -> dict[str, Any]:
    run = Run.objects.get(pk=run_id)
    records = log.read_records(run_id=run_id)
    facts = RunFacts.objects.get(pk=run_id)
    rows = Event.objects.filter(run_id=run_id).order_by("seq").values_list("kind", "at", "payload")
    folded = fold(empty_facts(run_id), (Entry(*row) for row in rows))
    return {
        "run": run_id,
        "status": run.status,
        "exit_reason": run.exit_reason,
        "last_seq": run.last_seq,
        "events": [json.loads(record.to_line()) for record in records],
        "calls": list(
            Call.objects.filter(run=run).values("seq", "state", "cost", "input_total", "output_total")
        ),
        "cost_of_calls": sum((call.cost or Decimal(0) for call in Call.objects.filter(run=run)), Decimal(0)),
        "facts": _facts(facts),
        "folded": _facts(folded),
        "attempts": list(Attempt.objects.filter(run=run).order_by("n").values()),
        "inputs": [[one.seq, one.sha256_expected == one.sha256_actual] for one in rebuild_inputs(records)],
        "drafts": Draft.objects.filter(run=run).count(),
        "unseen": Control.objects.filter(run=run, seen_at=None).count(),
    }


def _facts(facts: RunFacts) -> dict[str, Any]:
    values = model_to_dict(facts)
    dollars = {name: values[name] for name in ("cost", "cost_earlier")}
    return values | {
        name: None if value is None else Decimal(value).normalize() for name, value in dollars.items()
    }
