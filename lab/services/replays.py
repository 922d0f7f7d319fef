"""Replays: the recorded turns of an arm's runs as a model, so that something else is tried for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from lab.engine.errors import InvalidValueError
from lab.engine.events import Record
from lab.engine.harnesses.arguments import PROTOCOL_WORDS
from lab.engine.limits import as_typed
from lab.engine.llm.replay import OnDifference, Recording, recording_of
from lab.models import Arm, Call, Endpoint, Event, Experiment, HarnessVersion, Model, Role, Run, Task
from lab.services import log
from lab.services.access import for_role
from lab.services.blobs import BodyMissingError
from lab.services.endpoint_fields import REPLAY_PREFIX
from lab.services.endpoints import REPLAY_ENDPOINT
from lab.services.errors import FieldErrors
from lab.services.locks import one_at_a_time

_NAMED = 4


@for_role(Role.OPERATOR)
def make(*, by: User, arm: Arm, on_difference: str = "stop") -> Model:
    """The model that serves the recorded turns of the arm's runs; there is one for each setting.

    `on_difference`: `stop` ends a run where its conversation first goes another way than the recorded one,
    `follow` goes on with the recording and says where that was.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "on_difference".
    """
    if on_difference not in Model.OnDifference.values:
        reason = f"is neither; choose one of {', '.join(Model.OnDifference.values)}"
        raise FieldErrors({"on_difference": str(_wrong("on_difference", on_difference, reason))})
    recorded = arm.model
    follows = " follow" if on_difference == Model.OnDifference.FOLLOW else ""
    name = f"{REPLAY_PREFIX}{arm.experiment_id}{arm.letter}{follows}"
    with transaction.atomic():
        one_at_a_time("models")
        there = Model.objects.filter(replays=arm, on_difference=on_difference).order_by("-version").first()
        if there is not None:
            if there.retired:
                Model.objects.filter(pk=there.pk).update(retired=False)
                there.retired = False
            return there
        endpoint, _ = Endpoint.objects.get_or_create(name=REPLAY_ENDPOINT)
        newest = Model.objects.filter(name=name).order_by("-version").first()
        return Model.objects.create(
            endpoint=endpoint,
            name=name,
            version=newest.version + 1 if newest else 1,
            model_id=name,
            context_window=recorded.context_window,
            max_tokens_per_turn=recorded.max_tokens_per_turn,
            sampling=recorded.sampling,
            extra_body=recorded.extra_body,
            price_basis="replay",
            replays=arm,
            on_difference=on_difference,
        )


def recorded_runs(arm: Arm) -> QuerySet[Run]:
    """The arm's runs that a replay can serve: ended, with at least one answer of the model."""
    answered = Call.objects.filter(run=OuterRef("pk"), state=Call.State.FINISHED)
    runs = _own().filter(Exists(answered), arm=arm, status=Run.Status.ENDED).select_related("task")
    return runs.order_by("task__position", "task_id", "seed")


def _own() -> QuerySet[Run]:
    """Runs whose tasks the lab has: an imported one has no repository to go through again."""
    return Run.objects.exclude(experiment__kind=Experiment.Kind.IMPORTED)


def replayable(arms: Iterable[Arm]) -> list[Arm]:
    """Those of the arms that have a run which a replay can serve."""
    arms = list(arms)
    answered = Call.objects.filter(run=OuterRef("pk"), state=Call.State.FINISHED)
    runs = _own().filter(Exists(answered), arm__in=arms, status=Run.Status.ENDED)
    found = set(runs.order_by().values_list("arm", flat=True).distinct())
    return [arm for arm in arms if arm.pk in found]


def unrecorded(run: Run) -> str:
    """Why the run cannot be replayed, with a way out; "" when it can."""
    if run.experiment.kind == Experiment.Kind.IMPORTED:
        reason = "it was imported, and the lab has no repository of its task"
        return f"run {run.pk} cannot be replayed: {reason}; choose a run of the lab's own"
    if run.status != Run.Status.ENDED:
        return f"run {run.pk} goes on; replay it when it has ended, or choose another run"
    if not is_recorded(run):
        reason = "it ended before the model's first reply"
        return f"no turn was recorded in run {run.pk}: {reason}; run it again, or choose another run"
    return ""


def what_parts(recorded: HarnessVersion, other: HarnessVersion) -> list[str]:
    """Why a replay of the one harness's runs with the other will leave the recording; none: nothing known."""
    if recorded.pk == other.pk:
        return []
    was, now = (version.config.get("protocol", "native") for version in (recorded, other))
    if was != now:
        holds, takes = (PROTOCOL_WORDS.get(protocol, protocol) for protocol in (was, now))
        return [f"takes {takes}, and the recorded turns hold {holds}: none of them would be understood"]
    found = []
    missing = sorted(_tools(recorded) - _tools(other))
    if missing:
        found.append(f"does not offer {', '.join(missing)}, which recorded turns may call")
    families = [version.config.get("family", "") for version in (recorded, other)]
    if families[0] != families[1]:
        words = f"is of the family {families[1]}, not {families[0]}"
        found.append(f"{words}: it tells the model other words after a call")
    return found


def _tools(version: HarnessVersion) -> set[str]:
    return {tool["name"] for tool in version.config.get("tools") or []}


def is_recorded(run: Run) -> bool:
    """Whether a replay can serve this run: it has ended and the model has answered in it."""
    answered = Call.objects.filter(run=run, state=Call.State.FINISHED)
    imported = run.experiment.kind == Experiment.Kind.IMPORTED
    return run.status == Run.Status.ENDED and not imported and answered.exists()


def source_of(model: Model, *, task: Task, seed: int) -> Run | None:
    """The recorded run of this task and seed; the same task may have come with another task set."""
    if model.replays is None:
        return None
    same = Q(task=task) | Q(task__digest=task.digest)
    return recorded_runs(model.replays).filter(same, seed=seed).last()


def problem(model: Model, cells: Iterable[tuple[int, Task]]) -> str:
    """Why the model cannot serve these seeds and tasks, naming them and a way out; "" when it can."""
    if model.replays is None:
        return f"{model.name!r} has no recorded runs any more; choose another model"
    arm = model.replays
    recorded = list(recorded_runs(arm))
    there = {(run.task.digest, run.seed) for run in recorded}
    missing = [(task, seed) for seed, task in cells if (task.digest, seed) not in there]
    if not missing:
        return ""
    named = ", ".join(f"{task.slug} with seed {seed}" for task, seed in missing[:_NAMED])
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    known = [f"{run.task.slug} with seed {run.seed}" for run in recorded[:_NAMED]]
    known += ["…"] if len(recorded) > _NAMED else []
    offer = f"there are {', '.join(known)}" if known else "none of them has ended"
    return (
        f"{model.name!r} has no recorded run of {named}{more}; choose among the runs of experiment "
        f"{arm.experiment_id}, arm {arm.letter} ({offer})"
    )


def recording_for(run: Run) -> Recording:
    """What the model of the run serves to it.

    Raises:
        InvalidValueError: "models": there is no such recorded run any more, or a text of it is gone.
    """
    model = run.arm.model
    source = source_of(model, task=run.task, seed=run.seed)
    if source is None:
        reason = f"has no recorded run of {run.task.slug} with seed {run.seed} any more; launch another model"
        raise InvalidValueError("models", model.name, reason)
    try:
        records = _records(source)
    except BodyMissingError as error:
        reason = f"cannot serve run {source.pk} of {run.task.slug} with seed {run.seed} again: {error}"
        raise InvalidValueError("models", model.name, reason) from error
    on_difference: OnDifference = "follow" if model.on_difference == Model.OnDifference.FOLLOW else "stop"
    return recording_of(records, source=f"run {source.pk}", on_difference=on_difference)


def _records(run: Run) -> list[Record]:
    """Every record of the run, whole."""
    attempts = Event.objects.filter(run=run).order_by("attempt").values_list("attempt", flat=True).distinct()
    return [record for n in attempts for record in log.read_history(run_id=run.pk, attempt=n)]


def retire_those_of(*, arms: Sequence[Arm] | QuerySet[Arm]) -> None:
    """Before recorded runs are taken out of the lab: their replays cannot be launched any more."""
    Model.objects.filter(replays__in=arms).update(replays=None, retired=True)


def _wrong(field: str, value: str, reason: str) -> InvalidValueError:
    return InvalidValueError(field, as_typed(value), reason)
