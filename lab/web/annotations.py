"""Queues of runs to be labelled: all of them, a new one, one with its progress; the keys one labels by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.engine.errors import ExitReason, InvalidValueError
from lab.models import Annotation, Arm, Experiment, GuidelineVersion, Queue, QueueItem, Role, Skip
from lab.render.moments import OUTCOMES
from lab.services import claims, guidelines, label_keys, queue_rules, queues
from lab.services.annotators import known_annotator
from lab.services.errors import FieldErrors
from lab.services.queues import Progress
from lab.web.http import for_role, holds, signed_in

PAGE = 100
MOST_EXPERIMENTS = 200
BEHAVIOURS = {
    "never_fixed": "never fixed",
    "regression": "regression",
    "both": "both",
    "never_ran": "never ran",
    "empty_patch": "empty patch",
}
_DEFAULTS = {"overlap": "20", "labels_wanted": "2", "seed": "1", "claim_minutes": "30"}
_NUMBERS = ("overlap", "labels_wanted", "seed", "claim_minutes")


class Row(NamedTuple):
    """A queue of the list with how far it is, for whoever looks."""

    queue: Queue
    progress: Progress


@require_safe
@for_role(Role.VIEWER)
def annotate(request: HttpRequest) -> HttpResponse:
    """Every queue, one's own drafts, and what to do first."""
    person = signed_in(request)
    annotator = known_annotator(person)
    drafts = _drafts(request).select_related("run__task", "item__queue")[:20] if annotator else []
    page = Paginator(queues.all_queues().order_by("-id"), 20).get_page(request.GET.get("page"))
    context = {
        "place": "annotate",
        "tab": "queues",
        "page": page,
        "rows": [Row(queue, queues.progress(queue, annotator=annotator)) for queue in page],
        "drafts": drafts,
        "may_label": holds(request, Role.ANNOTATOR),
    }
    return render(request, "annotations/list.html", context)


def _drafts(request: HttpRequest) -> QuerySet[Annotation]:
    own = Annotation.objects.filter(
        annotator__person_id=signed_in(request).pk,
        state=Annotation.State.DRAFT,
        kind=Annotation.Kind.LABEL,
    )
    return own.order_by("-touched_at")


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def queue_new(request: HttpRequest) -> HttpResponse:
    """The form of a new queue; `preview` counts the runs that the rules choose, and makes nothing."""
    typed = request.POST if request.method == "POST" else request.GET
    errors: Mapping[str, str] = {}
    if request.method == "POST":
        try:
            queue = queues.make(by=signed_in(request), settings=_settings(typed), rules=_rules(typed))
        except FieldErrors as wrong:
            errors = wrong.errors
        except InvalidValueError as wrong:
            errors = {wrong.field: str(wrong)}
        else:
            messages.success(request, f"“{queue.name}” holds {queue.items.count():,} runs.")
            return redirect("queue", pk=queue.pk)
    return render(request, "annotations/queue_new.html", _form(typed, errors), status=422 if errors else 200)


@require_safe
@for_role(Role.OPERATOR)
def queue_preview(request: HttpRequest) -> HttpResponse:
    """How many runs the rules choose, as a line of the form."""
    try:
        rules = queue_rules.rules_of(_rules(request.GET))
        found, error = queue_rules.matching(rules), ""
    except InvalidValueError as wrong:
        rules, found, error = queue_rules.Rules(), [], str(wrong)
    taken = len(found) if rules.sample is None else min(rules.sample, len(found))
    context = {"matching": len(found), "taken": taken, "error": error}
    return render(request, "annotations/_queue_preview.html", context)


def _settings(typed: QueryDict) -> queues.Settings:
    """Raises: InvalidValueError: a number that is none, or a guideline that is not there."""
    numbers = {name: _number(typed, name) for name in _NUMBERS}
    guideline = GuidelineVersion.objects.filter(pk=_number(typed, "guideline")).first()
    if guideline is None:
        raise InvalidValueError("guideline", typed.get("guideline", ""), "does not exist; choose one")
    return queues.Settings(
        name=typed.get("name", ""), guideline=guideline, show_hidden="show_hidden" in typed, **numbers
    )


def _number(typed: QueryDict, name: str) -> int:
    text = typed.get(name, "").strip()
    if not text.isdecimal() or len(text) > 9:
        raise InvalidValueError(name, text, "is no whole number")
    return int(text)


def _rules(typed: QueryDict) -> dict[str, Any]:
    rules: dict[str, Any] = {
        name: typed.getlist(name)
        for name in ("experiments", "arms", "verdicts", "exit_reasons", "behaviours")
        if any(typed.getlist(name))
    }
    rules = {name: [value for value in values if value] for name, values in rules.items()}
    if sample := typed.get("sample", "").strip():
        rules["sample"] = sample
    return rules


def _form(typed: QueryDict, errors: Mapping[str, str]) -> dict[str, Any]:
    """What the form shows: what was typed, else the defaults."""
    fresh = not typed
    chosen = {
        name: set(typed.getlist(name)) for name in ("experiments", "arms", "exit_reasons", "behaviours")
    }
    chosen["verdicts"] = {"unresolved"} if fresh else set(typed.getlist("verdicts"))
    arms = Arm.objects.filter(
        experiment_id__in=[int(one) for one in chosen["experiments"] if one.isdecimal() and len(one) < 10]
    )
    return {
        "place": "annotate",
        "tab": "queues",
        "typed": {name: typed.get(name, _DEFAULTS.get(name, "")) for name in (*_NUMBERS, "name", "sample")},
        "guidelines": guidelines.all_newest(),
        "guideline": typed.get("guideline", ""),
        "experiments": Experiment.objects.order_by("-id")[:MOST_EXPERIMENTS],
        "arms": arms.select_related("experiment", "harness_version__harness", "model"),
        "verdicts": [*((name, words[2]) for name, words in OUTCOMES.items()), ("not_graded", "not graded")],
        "exit_reasons": [(reason.value, reason.value) for reason in ExitReason],
        "behaviours": list(BEHAVIOURS.items()),
        "chosen": chosen,
        "show_hidden": "show_hidden" in typed,
        "errors": errors,
    }


@require_safe
@for_role(Role.VIEWER)
def queue(request: HttpRequest, pk: int) -> HttpResponse:
    """One queue: how far it is, its runs, what was skipped and why."""
    found = queues.all_queues().filter(pk=pk).first()
    if found is None:
        raise Http404(f"There is no queue {pk}.")
    person = signed_in(request)
    annotator = known_annotator(person)
    items = QueueItem.objects.filter(queue=found).select_related("run__task", "run__facts")
    page = Paginator(items.order_by("position"), PAGE).get_page(request.GET.get("page"))
    context = {
        "place": "annotate",
        "tab": "queues",
        "queue": found,
        "progress": queues.progress(found, annotator=annotator),
        "page": page,
        "rows": queues.item_rows(list(page), annotator=annotator),
        "rules": _rule_words(found),
        "skips": Skip.objects.filter(item__queue=found).select_related("annotator", "item__run__task")[:50],
        "may_label": holds(request, Role.ANNOTATOR),
    }
    return render(request, "annotations/queue.html", context)


def _rule_words(found: Queue) -> list[tuple[str, str]]:
    words = [(name.replace("_", " "), value) for name, value in found.rules.items() if value]
    return [
        (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)) for name, value in words
    ]


@require_POST
@for_role(Role.ANNOTATOR)
def queue_next(request: HttpRequest, pk: int) -> HttpResponse:
    """Gives the person the next run of the queue to label."""
    try:
        draft = claims.claim_next(by=signed_in(request), queue_id=pk)
    except InvalidValueError as refused:
        messages.error(request, str(refused))
        return redirect("annotate")
    if draft is None:
        messages.info(request, "This queue has nothing more for you right now.")
        return redirect("queue", pk=pk)
    return redirect("label", pk=draft.pk)


@require_POST
@for_role(Role.OPERATOR)
def queue_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Fills it again, closes it or opens it again: `do` says which."""
    by, do = signed_in(request), request.POST.get("do", "")
    try:
        if do == "refill":
            added = queues.refill(by=by, queue_id=pk)
            messages.success(
                request, f"{added:,} runs added." if added else "No further run is as the rules ask."
            )
        elif do == "close":
            queues.close(by=by, queue_id=pk)
        elif do == "reopen":
            queues.reopen(by=by, queue_id=pk)
        else:
            raise InvalidValueError("do", do, "is none of refill, close, reopen")
    except InvalidValueError as refused:
        messages.error(request, str(refused))
    return redirect("queue", pk=pk) if Queue.objects.filter(pk=pk).exists() else redirect("annotate")


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.ANNOTATOR)
def label_keys_page(request: HttpRequest) -> HttpResponse:
    """The keys of the labelling page, each person's own."""
    person, errors = signed_in(request), {}
    typed: Mapping[str, str] = label_keys.keys_of(person)
    if request.method == "POST":
        typed = {action: request.POST.get(action, "") for action in label_keys.ACTIONS}
        try:
            label_keys.change(by=person, keys=typed)
        except FieldErrors as wrong:
            errors = wrong.errors
        else:
            messages.success(request, "Your keys are stored.")
            return redirect("label_keys")
    rows = [
        (action, words, default, typed.get(action, ""), errors.get(action, ""))
        for action, (default, words) in label_keys.ACTIONS.items()
    ]
    context = {"place": "annotate", "tab": "keys", "rows": rows}
    return render(request, "annotations/keys.html", context, status=422 if errors else 200)


urlpatterns = [
    path("annotate/", annotate, name="annotate"),
    path("annotate/queues/new", queue_new, name="queue_new"),
    path("annotate/queues/preview", queue_preview, name="queue_preview"),
    path("annotate/queues/<int:pk>/", queue, name="queue"),
    path("annotate/queues/<int:pk>/next", queue_next, name="queue_next"),
    path("annotate/queues/<int:pk>/change", queue_change, name="queue_change"),
    path("annotate/keys/", label_keys_page, name="label_keys"),
]
