"""The labelling page: a run without its arm, and beside it the label in the making."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_POST, require_safe

from lab.engine.errors import InvalidValueError
from lab.models import Annotation, Role, Run, Skip
from lab.render.diff import unified
from lab.render.events import minimap
from lab.render.markdown import render_markdown
from lab.services import claims, evidence, guidelines, known_facts, label_pages, labels, trajectories
from lab.services.annotators import known_annotator
from lab.services.errors import FieldErrors
from lab.services.label_keys import keys_of
from lab.services.label_visibility import hidden_runs
from lab.web.http import for_role, is_script, signed_in

_LONGEST_OPERATION = 100_000
STALE = 409
REFUSED = 422


@require_safe
@for_role(Role.VIEWER)
def label(request: HttpRequest, pk: int) -> HttpResponse:
    """A draft of one's own to work on, or a submitted label to read."""
    annotation = _found(pk)
    own = annotation.annotator.person_id == signed_in(request).pk
    if annotation.state != Annotation.State.DRAFT:
        return _read(request, annotation, own=own)
    if not own:
        raise Http404(f"Label {pk} is a draft of somebody else.")
    at = _number(request, "at")
    window = _window(annotation, at=at, after=None if at else 0)
    context = _context(request, annotation) | {
        "at": at,
        "window": window,
        "head": label_pages.head(signed_in(request), annotation),
        "statement": render_markdown(annotation.run.task.statement),
        "minimap": minimap(trajectories.outline(run_id=annotation.run_id)),
        "keys": keys_of(signed_in(request)),
        "keys_json": json.dumps(keys_of(signed_in(request))),
        "skip_to": Skip.To.choices,
    }
    if annotation.kind == Annotation.Kind.ADJUDICATION:
        context |= _adjudicated(request, annotation)
    if context["head"].gold:
        context["gold"] = unified(context["head"].gold)
    return render(request, "annotations/label.html", context)


def _adjudicated(request: HttpRequest, annotation: Annotation) -> dict[str, Any]:
    """The labels that this third record settles."""
    parents = label_pages.parents_of(annotation)
    return {
        "readings": [label_pages.page(one, open_key=0) for one in parents],
        "owners_words": dict(label_pages.OWNERS),
        "own_among": any(one.annotator.person_id == signed_in(request).pk for one in parents),
    }


def _found(pk: int) -> Annotation:
    annotation = labels.find(pk)
    if annotation is None:
        raise Http404(f"There is no label {pk}; its run may have been removed.")
    return annotation


def _window(annotation: Annotation, **bounds: int | None) -> trajectories.Window:
    return trajectories.window(run_id=annotation.run_id, blind=True, **bounds)  # type: ignore[arg-type]


def _number(request: HttpRequest, name: str, method: str = "GET") -> int | None:
    text = getattr(request, method).get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _context(
    request: HttpRequest, annotation: Annotation, errors: Mapping[str, str] | None = None
) -> dict[str, Any]:
    source = request.POST if request.method == "POST" else request.GET
    open_key = source.get("open", "")
    # 0: no event is open, because there was none.
    known = int(open_key) or None if open_key.isdecimal() and len(open_key) < 10 else None
    page = label_pages.page(annotation, open_key=known)
    return {
        "place": "annotate",
        "page": page,
        "annotation": annotation,
        "errors": errors or {},
        "owners": label_pages.OWNERS.items(),
        "phases": label_pages.PHASES.items(),
        "severities": label_pages.severity_words(),
        "marks": json.dumps(page.marks),
    }


def _read(request: HttpRequest, annotation: Annotation, *, own: bool) -> HttpResponse:
    """A submitted label with the others of its run, as far as the person may see them."""
    person = signed_in(request)
    shown, hidden = label_pages.visible_annotations(person, annotation.run_id)
    if not own and (
        annotation.state == Annotation.State.DISCARDED
        or annotation.run_id in hidden_runs(person, [annotation.run_id])
    ):
        raise Http404(f"Label {annotation.pk} is shown when you have submitted your own of its run.")
    replaced = Annotation.objects.filter(replaces=annotation, state=Annotation.State.SUBMITTED).first()
    first = [annotation, *(one for one in shown if one.pk != annotation.pk)]
    context = {
        "place": "annotate",
        "annotation": annotation,
        "own": own,
        "replaced": replaced,
        "pages": [label_pages.page(one, open_key=0) for one in first],
        "hidden": hidden,
        "owners": dict(label_pages.OWNERS),
    }
    return render(request, "annotations/label_read.html", context)


@require_safe
@for_role(Role.ANNOTATOR)
def label_steps(request: HttpRequest, pk: int) -> HttpResponse:
    """About 50 blind steps before or after an event, with a link to what lies beyond them."""
    annotation = _own_draft(request, pk)
    before, after = _number(request, "before"), _number(request, "after")
    window = _window(annotation, before=before, after=after if before is None else None)
    edge = "before" if before is not None else "after"
    return render(
        request, "annotations/_steps.html", {"annotation": annotation, "window": window, "edge": edge}
    )


def _own_draft(request: HttpRequest, pk: int) -> Annotation:
    try:
        return labels.own_draft(signed_in(request), pk)
    except labels.NoDraftError as gone:
        raise Http404(str(gone)) from gone


Change = Callable[[], Annotation]


@require_POST
@for_role(Role.ANNOTATOR)
def label_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """One operation on the draft; the panel as it is then, or with what was wrong."""
    by = signed_in(request)

    def change() -> Annotation:
        return labels.edit(
            by=by, annotation_id=pk, revision=revision_of(request), operation=_operation(request, pk)
        )

    return changed(request, pk, change)


def _operation(request: HttpRequest, pk: int) -> dict[str, Any]:
    """What the form asks for. Marked words come as words and are looked up in the step's log."""
    text = request.POST.get("operation", "")
    try:
        operation = json.loads(text[:_LONGEST_OPERATION])
    except (ValueError, RecursionError):
        raise InvalidValueError("operation", text[:40], "is no JSON; load the page again") from None
    if not isinstance(operation, dict):
        raise InvalidValueError("operation", text[:40], "is no JSON object; load the page again")
    if "value" in request.POST:
        operation["value"] = request.POST["value"]
    if operation.get("do") == "set_alternatives":
        operation["value"] = _steps_of(operation.get("value"))
    if operation.get("do") == "change_event" and operation.get("field") == "caused_by":
        value = str(operation.get("value") or "").lstrip("Ee")
        operation["value"] = int(value) if value.isdecimal() and len(value) < 6 else None
    if operation.get("do") == "mark":
        return _marked(request, pk, operation)
    return operation


def _steps_of(value: Any) -> list[dict[str, int]]:
    """ "4, 7" as steps; in a run of several attempts "2.4" is step 4 of the second."""
    steps = []
    for word in str(value or "").replace(";", ",").split(","):
        if not (word := word.strip().lower().removeprefix("step").strip()):
            continue
        attempt, _, step = word.rpartition(".")
        if not step.isdecimal() or (attempt and not attempt.isdecimal()) or len(word) > 12:
            raise InvalidValueError("alternatives", word, "is no step; write numbers such as 4, 7")
        steps.append({"step": int(step), "attempt": int(attempt or 1)})
    return steps


def _marked(request: HttpRequest, pk: int, operation: Mapping[str, Any]) -> dict[str, Any]:
    draft = labels.own_draft(signed_in(request), pk)
    step = operation.get("step")
    if not isinstance(step, dict) or not all(isinstance(step.get(name), int) for name in ("step", "attempt")):
        raise InvalidValueError("step", str(step)[:40], "is no step; mark words inside of a step")
    found = evidence.find(
        run_id=draft.run_id,
        attempt=step["attempt"],
        step=step["step"],
        quote=str(operation.get("value") or operation.get("quote") or ""),
        prefix=str(operation.get("prefix") or ""),
        suffix=str(operation.get("suffix") or ""),
    )
    return {
        "do": "mark_evidence",
        "step": step,
        "key": operation.get("key"),
        "evidence": found.model_dump(mode="json"),
    }


def revision_of(request: HttpRequest) -> int:
    """The revision of the draft that the person saw."""
    return _number(request, "revision", "POST") or 0


@require_POST
@for_role(Role.ANNOTATOR)
def label_undo(request: HttpRequest, pk: int) -> HttpResponse:
    by = signed_in(request)
    return changed(request, pk, lambda: labels.undo(by=by, annotation_id=pk, revision=revision_of(request)))


@require_POST
@for_role(Role.ANNOTATOR)
def label_redo(request: HttpRequest, pk: int) -> HttpResponse:
    by = signed_in(request)
    return changed(request, pk, lambda: labels.redo(by=by, annotation_id=pk, revision=revision_of(request)))


def changed(request: HttpRequest, pk: int, change: Change) -> HttpResponse:
    """The panel after a change. Refused or stale, it shows what is stored, and says what was wrong where."""
    status, errors = 200, {}
    try:
        annotation = change()
    except labels.NoDraftError as gone:
        return _gone(request, gone)
    except labels.StaleDraftError as stale:
        annotation, status, errors = stale.newest, STALE, {"draft": str(stale)}
    except InvalidValueError as invalid:
        annotation, status, errors = _own_draft(request, pk), REFUSED, {invalid.field: str(invalid)}
    return _panel(request, annotation, errors, status)


def _panel(
    request: HttpRequest, annotation: Annotation, errors: Mapping[str, str], status: int
) -> HttpResponse:
    if is_script(request):
        context = _context(request, annotation, errors)
        return render(request, "annotations/_panel.html", context, status=status)
    for text in errors.values():
        messages.error(request, text)
    return redirect("label", pk=annotation.pk)


def _gone(request: HttpRequest, gone: labels.NoDraftError) -> HttpResponse:
    """The draft was submitted or discarded, perhaps in another tab: what became of it is one link away."""
    address = f"/annotate/labels/{gone.found.pk}/" if gone.found is not None else "/annotate/"
    if is_script(request):
        return JsonResponse({"why": str(gone), "go": address}, status=410)
    messages.error(request, str(gone))
    return redirect(address)


@require_POST
@for_role(Role.ANNOTATOR)
def label_submit(request: HttpRequest, pk: int) -> HttpResponse:
    """Submits, and goes on to the next run of the queue."""
    by = signed_in(request)
    try:
        done = labels.submit(
            by=by, annotation_id=pk, revision=revision_of(request), known=known_facts.as_json
        )
    except labels.NoDraftError as gone:
        return _gone(request, gone)
    except labels.StaleDraftError as stale:
        return _panel(request, stale.newest, {"draft": str(stale)}, STALE)
    except FieldErrors as missing:
        return _panel(request, _own_draft(request, pk), missing.errors, REFUSED)
    messages.success(request, f"{done.get_kind_display().capitalize()} of {done.run.task.slug} submitted.")
    return _go(request, _next_after(request, done))


def _next_after(request: HttpRequest, done: Annotation) -> str:
    """Where one goes on: to the next run of the queue, back to a queue that is done, or to the label."""
    if done.kind == Annotation.Kind.ADJUDICATION:
        return "/annotate/adjudications/"
    if done.item is None or done.item.queue.closed_at is not None:
        return f"/annotate/labels/{done.pk}/"
    draft = _claimed(request, done.item.queue_id)
    if draft is not None:
        return f"/annotate/labels/{draft.pk}/"
    messages.info(request, "This queue has nothing more for you right now.")
    return f"/annotate/queues/{done.item.queue_id}/"


def _claimed(request: HttpRequest, queue_id: int) -> Annotation | None:
    """The next run of a queue; None also when somebody has closed it meanwhile."""
    try:
        return claims.claim_next(by=signed_in(request), queue_id=queue_id)
    except InvalidValueError:
        return None


def _go(request: HttpRequest, address: str) -> HttpResponse:
    return JsonResponse({"go": address}) if is_script(request) else HttpResponseRedirect(address)


@require_POST
@for_role(Role.ANNOTATOR)
def label_skip(request: HttpRequest, pk: int) -> HttpResponse:
    """Passes the run on with a reason, and goes on to the next one."""
    by = signed_in(request)
    try:
        skip = claims.skip(
            by=by,
            annotation_id=pk,
            to=request.POST.get("to", ""),
            reason=request.POST.get("reason", ""),
        )
    except labels.NoDraftError as gone:
        return _gone(request, gone)
    except InvalidValueError as invalid:
        return _panel(request, _own_draft(request, pk), {"skip": str(invalid)}, REFUSED)
    messages.success(request, f"{skip.item.run.task.slug} skipped: {skip.get_to_display()}.")
    draft = _claimed(request, skip.item.queue_id)
    if draft is None or draft.pk == pk:
        return _go(request, f"/annotate/queues/{skip.item.queue_id}/")
    return _go(request, f"/annotate/labels/{draft.pk}/")


@require_POST
@for_role(Role.ANNOTATOR)
def label_discard(request: HttpRequest, pk: int) -> HttpResponse:
    try:
        labels.discard(by=signed_in(request), annotation_id=pk)
    except labels.NoDraftError as gone:
        return _gone(request, gone)
    messages.success(request, "The draft is discarded.")
    return redirect("/annotate/")


@require_POST
@for_role(Role.ANNOTATOR)
def label_alive(request: HttpRequest, pk: int) -> HttpResponse:
    """A sign of life: time of work counts, and the claim holds on."""
    try:
        claims.renew(by=signed_in(request), annotation_id=pk)
    except labels.NoDraftError as gone:
        return _gone(request, gone)
    draft = _own_draft(request, pk)
    context = {"annotation": draft, "page": label_pages.foot(draft)}
    return render(request, "annotations/_panel_foot.html", context)


@require_POST
@for_role(Role.ANNOTATOR)
def label_correct(request: HttpRequest, pk: int) -> HttpResponse:
    """A draft that says what one's submitted label says, to be changed."""
    try:
        draft = labels.correct(by=signed_in(request), annotation_id=pk)
    except InvalidValueError as invalid:
        messages.error(request, str(invalid))
        return redirect("label", pk=pk)
    return redirect("label", pk=draft.pk)


@require_POST
@for_role(Role.ANNOTATOR)
def label_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Starts a label of a run outside any queue, or goes on with one's draft of it."""
    by = signed_in(request)
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise Http404(f"There is no run {run_id}.")
    known = known_annotator(by)
    own = labels.own_submitted(known, run_id) if known is not None else None
    if own is not None and own.guideline == guidelines.default():
        messages.info(request, "You have labelled this run; this is your label, which you can correct.")
        return redirect("label", pk=own.pk)
    try:
        draft = labels.open_draft(by=by, run_id=run_id, guideline=guidelines.default())
    except InvalidValueError as invalid:
        messages.error(request, str(invalid))
        return redirect("run", run_id=run_id)
    return redirect("label", pk=draft.pk)


urlpatterns = [
    path("annotate/labels/<int:pk>/", label, name="label"),
    path("annotate/labels/<int:pk>/steps", label_steps, name="label_steps"),
    path("annotate/labels/<int:pk>/edit", label_edit, name="label_edit"),
    path("annotate/labels/<int:pk>/undo", label_undo, name="label_undo"),
    path("annotate/labels/<int:pk>/redo", label_redo, name="label_redo"),
    path("annotate/labels/<int:pk>/submit", label_submit, name="label_submit"),
    path("annotate/labels/<int:pk>/skip", label_skip, name="label_skip"),
    path("annotate/labels/<int:pk>/discard", label_discard, name="label_discard"),
    path("annotate/labels/<int:pk>/alive", label_alive, name="label_alive"),
    path("annotate/labels/<int:pk>/correct", label_correct, name="label_correct"),
    path("runs/<int:run_id>/label", label_run, name="label_run"),
]
