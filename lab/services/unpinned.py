"""What "run again with the same settings" cannot hold fast, with what is recorded of it."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Q

from lab.engine.key_shapes import masked
from lab.models import Attempt, Call, Experiment, Model, Run, Task
from lab.render.sandboxes import short_hash
from lab.render.text import one_line
from lab.services import preflights

_NAMED = 3


def unpinned(experiment: Experiment) -> list[str]:
    """What may be another thing when the experiment is run again, a sentence each; the recorded value where
    there is one."""
    used = experiment.arms.values("model_id")
    models = list(Model.objects.filter(pk__in=used).select_related("endpoint"))
    served = [model for model in models if not model.scripted and not model.replay]
    return [*_models(experiment, served), *_images(experiment), *_by_people(experiment)]


def _models(experiment: Experiment, models: list[Model]) -> Iterator[str]:
    if not models:
        return
    answered: dict[int, set[str]] = {}
    calls = Call.objects.filter(run__experiment=experiment).exclude(model="").order_by()
    for model_id, said in calls.values_list("run__arm__model_id", "model").distinct():
        answered.setdefault(model_id, set()).add(str(said))
    examined = preflights.newest_ended(models)
    for model in models:
        names = sorted(answered.get(model.pk, ()))
        said = f"it answered as {_listed(names)}" if names else "it has answered nothing yet"
        yield f"the weights behind {model.model_id!r} at {model.endpoint.name}: {said}"
        preflight = examined.get(model.pk)
        server = preflight.measured.get("server") if preflight else None
        known = f"preflight {preflight.pk} recognised {server}" if preflight and server else "not recorded"
        yield f"the server at {model.endpoint.name} and its version: {known}"
        if "seed" not in {**model.sampling, **model.extra_body}:
            yield f"the sampling of {model.name}: no seed is sent, so its answers differ each time"


def _images(experiment: Experiment) -> Iterator[str]:
    """Images that a task names by a tag, which can come to stand for another one."""
    tasks = Task.objects.filter(runs__experiment=experiment).order_by()
    named = tasks.values_list("environment__image", flat=True).distinct()
    tags = {str(image) for image in named if image and "@sha256:" not in str(image)}
    if any(tasks.values_list("environment__build", flat=True).distinct()):
        yield "what the Dockerfiles of tasks take from elsewhere: an image is built anew where it is gone"
    recorded: dict[str, set[str]] = {}
    sandboxes = Attempt.objects.filter(run__experiment=experiment, sandbox__image__isnull=False).order_by()
    facts = sandboxes.values_list("sandbox__image__reference", "sandbox__image__digest").distinct()
    for reference, digest in facts:
        if digest:
            recorded.setdefault(str(reference), set()).add(str(digest))
    for tag in sorted(tags)[:_NAMED]:
        digests = sorted(recorded.get(tag, ()))
        shown = [short_hash(digest.rpartition("@")[2]) for digest in digests]
        yield f"the image {tag}: {f'it was {_listed(shown)}' if shown else 'which one is not recorded'}"
    if len(tags) > _NAMED:
        yield f"{len(tags) - _NAMED} more images that tasks name by a tag: their digests stand with the runs"


def _by_people(experiment: Experiment) -> Iterator[str]:
    changed = Run.objects.filter(experiment=experiment).filter(
        Q(facts__limits_changed=True) | Q(facts__got_message=True)
    )
    if number := changed.count():
        runs = "1 run" if number == 1 else f"{number} runs"
        yield f"what people did to {runs} while they went on: messages and changed limits are not repeated"


def _listed(names: list[str]) -> str:
    shown = [one_line(str(masked(name)), 60) for name in names[:_NAMED]]
    return " and ".join(shown) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
