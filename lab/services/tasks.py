"""Task sets: read from their folders into rows, handed to the engine as specs, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from lab.engine.environments import practice_environment, sandbox_spec_for
from lab.engine.sandboxes.base import Progress, SandboxProvider
from lab.engine.tasks.loader import load_task_set, practice_folder
from lab.engine.tasks.spec import Environment, TaskSetSpec, TaskSpec, Verification
from lab.engine.verify.base import TaskCheckResult
from lab.models import HiddenTaskPart, Task, TaskCheck, TaskSet
from lab.services import isolation

# The digest of the set with the tasks of imported runs.
RECORDED_ELSEWHERE = "imported"


def sync_task_set(*, folder: Path) -> TaskSet:
    """The row of the task set in `folder`, made when its content is new.

    Content decides: the same digest is the same row, wherever the folder lies now; changed content is a new
    one beside the old. What stands outside the digest (place, plans, the words of the list) is brought up to
    date.

    Raises:
        InvalidValueError: a file of the set is missing or does not fit.
    """
    spec = load_task_set(folder)
    with transaction.atomic():
        task_set, made = TaskSet.objects.get_or_create(
            digest=spec.digest,
            defaults={"name": spec.name, "version": spec.version, "title": spec.title, "folder": str(folder)},
        )
        if made:
            _create_tasks(task_set, spec)
        else:
            _refresh(task_set, spec, folder)
    return task_set


def sync_practice() -> TaskSet:
    """The task set "practice" that comes with the lab.

    Raises:
        InvalidValueError: as `sync_task_set`.
    """
    return sync_task_set(folder=practice_folder())


def is_practice(task_set: TaskSet) -> bool:
    """Whether the set is the lab's own: decided by where it lies, which no imported set can claim."""
    return Path(task_set.folder) == practice_folder()


def current_task_set() -> TaskSet | None:
    """The set the first page offers: the practice set that was read last."""
    newest = _launchable().order_by("-pk")
    return newest.filter(folder=str(practice_folder())).first() or newest.first()


def newest_sets() -> list[TaskSet]:
    """Of each set's name the one that was read last, the newest first; sets that can be launched."""
    newest: dict[str, TaskSet] = {}
    for task_set in _launchable().order_by("-pk"):
        newest.setdefault(task_set.name, task_set)
    return list(newest.values())


def launchable_set(number: int) -> TaskSet | None:
    """The set of this number for the launch form; the one the first page offers where there is none."""
    return _launchable().filter(pk=number).first() or current_task_set()


def _launchable() -> QuerySet[TaskSet]:
    """All but the tasks of imported runs, of which the lab has no repository."""
    return TaskSet.objects.exclude(digest=RECORDED_ELSEWHERE)


def task_spec(task: Task) -> TaskSpec:
    """The task as the engine takes it, hidden parts included: for runs and checks, never for pages."""
    hidden: HiddenTaskPart = task.hidden
    return TaskSpec(
        id=task.slug,
        title=task.title,
        statement=task.statement,
        repository=Path(task.folder),
        difficulty=task.difficulty,
        trait=task.trait,
        origin=task.repository,
        environment=Environment.model_validate(task.environment),
        verification=Verification.model_validate(hidden.verification),
        gold_patch=hidden.gold_patch,
        plans=hidden.plans,
        repository_digest=task.repository_digest,
    )


def prepare_practice_environment() -> Path:
    """The folder with the interpreter and pytest that practice tasks are worked on with, made when missing.

    Raises:
        InvalidValueError: the data folder cannot be written.
        InfrastructureError: pytest is not installed beside the lab.
    """
    return practice_environment(Path(settings.LAB_DATA_DIR)).bin


def check_task(*, task: Task, provider: SandboxProvider, progress: Progress | None = None) -> TaskCheckResult:
    """Grade the task without a patch and with its gold patch, and keep what came out.

    `progress` hears how far an image is that must be pulled or built first.

    Raises:
        InvalidValueError: the task's environment is not known, or is none for this kind of sandbox.
        InfrastructureError: the environment cannot be made, or a sandbox broke; nothing is kept.
    """
    from lab.engine.verify.run import check_task as check

    spec = task_spec(task)
    place = sandbox_spec_for(
        spec,
        data_folder=Path(settings.LAB_DATA_DIR),
        label=f"check-{task.pk}",
        limits=isolation.limits(provider.kind),
        kind=provider.kind,
        practice_image=settings.LAB_PRACTICE_IMAGE,
    )
    provider.prepare(place, progress=progress)
    result = check(spec, provider=provider, sandbox_spec=place)
    TaskCheck.objects.create(
        task=task, sandbox=provider.kind, valid=result.valid, detail="\n".join(result.problems)
    )
    return result


def _create_tasks(task_set: TaskSet, spec: TaskSetSpec) -> None:
    for position, task in enumerate(spec.tasks, start=1):
        row = Task.objects.create(
            task_set=task_set,
            slug=task.id,
            position=position,
            statement=task.statement,
            digest=task.digest,
            repository_digest=task.repository_digest,
            environment=task.environment.model_dump(mode="json"),
            fail_to_pass_count=len(task.verification.fail_to_pass),
            pass_to_pass_count=len(task.verification.pass_to_pass),
            **_outside_digest(task),
        )
        HiddenTaskPart.objects.create(
            task=row,
            verification=task.verification.model_dump(mode="json"),
            gold_patch=task.gold_patch,
            plans=task.plans,
        )


def _refresh(task_set: TaskSet, spec: TaskSetSpec, folder: Path) -> None:
    TaskSet.objects.filter(pk=task_set.pk).update(title=spec.title, folder=str(folder))
    task_set.title, task_set.folder = spec.title, str(folder)
    for task in spec.tasks:
        rows = Task.objects.filter(task_set=task_set, slug=task.id)
        rows.update(**_outside_digest(task))
        HiddenTaskPart.objects.filter(task__in=rows).update(plans=task.plans)


def _outside_digest(task: TaskSpec) -> dict[str, Any]:
    return {
        "title": task.title,
        "folder": str(task.repository),
        "difficulty": task.difficulty,
        "trait": task.trait,
        "repository": task.origin,
    }
