"""What somebody should know before launching an experiment: what blocks it, and what makes it worth less."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from django.conf import settings
from django.urls import reverse

from lab.analysis.estimates import Unknown
from lab.engine.errors import SandboxLostError
from lab.models import Attempt, Model, Preflight, Task, TaskCheck
from lab.render.numbers import plural, size
from lab.services import isolation, preflights
from lab.services.experiment_forecasts import Expected, Forecast
from lab.services.experiment_plans import Resolved, unpriced
from lab.services.isolation import IsolationMissingError
from lab.services.runs import MAX_RUNS
from lab.services.tasks import is_practice

_NAMED = 3
_IMAGES_SECONDS = 15.0
# A difference of rates that one would want to see, as a share of 1.
WANTED_DIFFERENCE = 0.1

Level = Literal["blocks", "asks", "warns", "note"]


class Caution(NamedTuple):
    """One thing to know. "blocks": nothing is launched like this; "asks": only once somebody agrees."""

    level: Level
    text: str
    url: str = ""
    verb: str = ""


def cautions(resolved: Resolved, forecast: Forecast) -> list[Caution]:
    """What speaks against launching it as it is, the worst first."""
    found = [
        *_number(forecast),
        *_sandboxes(resolved),
        *_models(resolved.models),
        *_prices(resolved),
        *_budgets(resolved, forecast),
        *_checks(resolved.tasks),
        *_images(resolved.tasks),
        *_few_tasks(forecast, len(resolved.plan.seeds)),
    ]
    order: tuple[Level, ...] = ("blocks", "asks", "warns", "note")
    return sorted(found, key=lambda one: order.index(one.level))


def _number(forecast: Forecast) -> Iterator[Caution]:
    if forecast.runs > MAX_RUNS:
        yield Caution("blocks", f"{forecast.runs:,} runs are more than the {MAX_RUNS:,} of one experiment.")


def _sandboxes(resolved: Resolved) -> Iterator[Caution]:
    lab_only = is_practice(resolved.task_set) and all(model.lab_written for model in resolved.models)
    try:
        isolation.check(tasks=resolved.tasks, lab_commands_only=lab_only)
    except IsolationMissingError as error:
        yield Caution("blocks", str(error).removeprefix("sandbox: "), reverse("machine"), "This machine")


def _models(models: Sequence[Model]) -> Iterator[Caution]:
    """Preflights that fail, warn or are not there, and models that were taken out of use."""
    for model in models:
        if model.retired or model.endpoint.retired:
            yield Caution(
                "blocks", f"{model.name} is retired.", reverse("model", args=[model.pk]), "Restore it"
            )
    asked = [model for model in models if preflights.can_be_examined(model)]
    newest = preflights.newest_ended(asked)
    for model in asked:
        found = newest.get(model.pk)
        url = reverse("preflight", args=[model.pk])
        if found is None:
            yield Caution("warns", f"{model.name} has had no preflight.", url, "Examine it")
        elif found.outcome == Preflight.Outcome.FAILING:
            why = "; ".join(preflights.failing_titles(found))
            yield Caution("asks", f"The newest preflight of {model.name} is failing: {why}.", url, "See it")
        elif found.outcome == Preflight.Outcome.WARNING:
            yield Caution("note", f"The newest preflight of {model.name} has warnings.", url, "See them")


def _prices(resolved: Resolved) -> Iterator[Caution]:
    unknown = unpriced(resolved.models)
    dollars = resolved.plan.budgets.max_cost_usd
    for model in unknown:
        url = reverse("model", args=[model.pk])
        so = "it counts in no budget of dollars" if dollars is not None else "its cost will be too"
        yield Caution("warns", f"The price of {model.name} is unknown, so {so}.", url, "Add one")


def _budgets(resolved: Resolved, forecast: Forecast) -> Iterator[Caution]:
    budgets = resolved.plan.budgets
    dollars = None if budgets.max_cost_usd is None else float(budgets.max_cost_usd)
    if dollars is not None and forecast.dollars is not None and forecast.dollars.high == 0:
        yield Caution(
            "warns",
            "Every arm is free, so the budget of dollars can never be reached; limit tokens or hours "
            "instead.",
        )
    hours = forecast.clock and Expected(*(value / 3600 for value in forecast.clock))
    for name, most, expected in (
        ("dollars", dollars, forecast.dollars or forecast.known_dollars),
        ("tokens", budgets.max_tokens, forecast.tokens),
        ("hours", budgets.max_hours, hours),
    ):
        if most is None or expected is None or expected.high <= most:
            continue
        how = "will probably" if expected.mean > most else "may"
        text = f"The budget of {name} {how} be reached before the last run: it would pause the experiment."
        yield Caution("warns", text)


def _checks(tasks: Sequence[Task]) -> Iterator[Caution]:
    """Tasks whose newest check found them unsound."""
    chosen = {task.pk: task for task in tasks}
    if not chosen:
        return
    newest: dict[int, bool] = {}
    checks = TaskCheck.objects.filter(task__task_set=tasks[0].task_set).order_by("at", "pk")
    for task, valid in checks.values_list("task", "valid"):
        newest[task] = valid
    bad = [chosen[number] for number, valid in newest.items() if not valid and number in chosen]
    if bad:
        names = _listed([task.slug for task in bad])
        text = f"{plural(len(bad), 'task is', 'tasks are')} invalid by the newest check: {names}."
        yield Caution("warns", text, reverse("task", args=[bad[0].pk]), "See it")


def _images(tasks: Sequence[Task]) -> Iterator[Caution]:
    """Images that are pulled or built while the runs wait for them."""
    wanted = sorted({str(task.environment["image"]) for task in tasks if task.environment.get("image")})
    builds = sum(1 for task in tasks if task.environment.get("build"))
    if builds:
        many = plural(builds, "task builds its image", "tasks build their images")
        yield Caution("note", f"{many} from a Dockerfile when first needed, where that is not done yet.")
    here = _here() if wanted else None
    if here is None:
        return
    missing = [name for name in wanted if name not in here and f"{name}:latest" not in here]
    if missing:
        many = plural(len(missing), "image is", "images are")
        where = f"{many} not on this machine and will be pulled when first needed"
        yield Caution("warns", f"{where}: {_listed(missing)}; {_sizes(missing)}.")


def _sizes(missing: Sequence[str]) -> str:
    """How large they were when a run used them."""
    rows = Attempt.objects.filter(sandbox__image__reference__in=list(missing)[:200]).order_by()
    sizes = dict(rows.values_list("sandbox__image__reference", "sandbox__image__size_bytes").distinct())
    known = [number for number in sizes.values() if number]
    if not known:
        return "their size is unknown"
    rest = f", of {len(missing) - len(known)} unknown" if len(known) < len(missing) else ""
    return f"{size(sum(known))} in all, as recorded{rest}"


_seen: dict[str, tuple[float, set[str] | None]] = {}


def _here() -> set[str] | None:
    """The names of the images on the machine, looked up every few seconds; None where nobody knows."""
    from lab.engine.sandboxes.docker_client import ERRORS, connected

    host = settings.LAB_DOCKER_HOST
    at, names = _seen.get(host, (-_IMAGES_SECONDS, None))
    if time.monotonic() - at < _IMAGES_SECONDS:
        return names
    try:
        images = connected(host).api.images()
        names = {
            name for image in images for key in ("RepoTags", "RepoDigests") for name in image.get(key) or ()
        }
    except (SandboxLostError, *ERRORS):
        names = None
    _seen[host] = (time.monotonic(), names)
    return names


def _few_tasks(forecast: Forecast, seeds: int) -> Iterator[Caution]:
    """Whether a difference that one would want to see can be seen at all. With several seeds both the
    difference and the tasks it takes lie between two ends, by how much of a disagreement is chance."""
    blind = [pair for pair in forecast.detectable if pair.high > WANTED_DIFFERENCE]
    if not blind:
        return
    worst = max(blind, key=lambda pair: pair.high)
    if worst.low > 1:
        least = "no difference"
    elif worst.high > 1:
        least = f"only a difference of {100 * worst.low:.0f} points or more, or none,"
    else:
        least = f"only a difference of {_from_to(100 * worst.low, 100 * worst.high)} points or more"
    yield Caution(
        "warns",
        f"With {plural(worst.tasks, 'task')} and {plural(seeds, 'seed')} {least} would be found; one of "
        f"{100 * WANTED_DIFFERENCE:.0f} points {_takes(worst.share, seeds)}.",
    )


def _takes(share: float, seeds: int) -> str:
    """How many tasks show the wanted difference where this share of them differs."""
    from lab.analysis import power

    exact = power.tasks_needed_mcnemar(WANTED_DIFFERENCE, share)
    if isinstance(exact, Unknown):
        return f"cannot be, as {exact.why}"
    if seeds == 1:
        return f"takes {exact:,} tasks"
    ends = [power.tasks_needed_paired_t(WANTED_DIFFERENCE, variance) for variance in (share / seeds, share)]
    return f"takes {_from_to(*ends)} tasks"


def _from_to(low: float, high: float) -> str:
    ends = f"{low:,.0f}", f"{high:,.0f}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
