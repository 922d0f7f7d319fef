"""Pages of annotation: models that read runs, what each reading came to, and how they compare with people."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_POST, require_safe

from lab.analysis.estimates import Unknown
from lab.analysis.judge_scoring import FieldScore, Scores
from lab.models import JudgeCall, JudgeRun, Model, Role
from lab.render.numbers import dollars
from lab.services import blobs, guidelines, judge_costs, judge_scores, judging, preflights
from lab.services.blobs import BodyMissingError
from lab.services.errors import FieldErrors
from lab.services.judge_costs import Paid
from lab.services.label_visibility import hidden_runs
from lab.web.http import for_role, holds, signed_in

PAGE = 50
_REPLY_CHARACTERS = 20_000
# State -> word, icon, class.
_STATES = {
    JudgeRun.State.QUEUED: ("waits for a worker", "queued", "queued"),
    JudgeRun.State.RUNNING: ("reading", "running", "running"),
    JudgeRun.State.ENDED: ("read", "ok", "passed"),
    JudgeRun.State.FAILED: ("failed", "cross", "failed"),
    JudgeRun.State.CANCELLED: ("cancelled", "cancelled", "queued"),
}
_RANGE = re.compile(r"(\d{1,18})(?:\s*[-–]\s*(\d{1,18}))?")
_FIELDS = {"owner": "Whose fault", "phase": "Phase", "root_category": "Category of the root", "sure": "Sure"}


class Row(NamedTuple):
    """A reading as lists show it."""

    reading: JudgeRun
    word: str
    icon: str
    tone: str
    cost: str
    calls: int
    goes_on: bool


class ScoreRow(NamedTuple):
    """One field of a judge's record in words."""

    name: str
    right: str
    share: str
    kappa: str


class CallRow(NamedTuple):
    """A request with what came of it; `reply` is its text, or why it is not shown."""

    call: JudgeCall
    about: str
    cost: str
    reply: str


@require_safe
@for_role(Role.VIEWER)
def judge_list(request: HttpRequest) -> HttpResponse:
    """All readings, the form for new ones, and how judges compare with people."""
    return render(request, "annotations/judges.html", _list_context(request))


def _list_context(request: HttpRequest) -> dict[str, Any]:
    rows = JudgeRun.objects.select_related("model", "guideline__guideline", "asked_by", "run__task")
    page = Paginator(rows, PAGE).get_page(request.GET.get("page"))
    paid = judge_costs.paid(row.pk for row in page)
    models = [model for model in Model.objects.in_use().order_by("name") if preflights.can_be_examined(model)]
    return {
        "place": "annotate",
        "tab": "judges",
        "page": page,
        "rows": [_row(row, paid.get(row.pk)) for row in page],
        "models": models,
        "guidelines": guidelines.all_newest(),
        "runs": request.GET.get("runs", ""),
        "may_ask": holds(request, Role.OPERATOR),
        "records": [
            (record, _score_rows(record.scores.fields), _steps_words(record.scores))
            for record in judge_scores.records(by=signed_in(request))
        ],
    }


def _steps_words(scores: Scores) -> str:
    """How near the judge's step of the root cause is to that of people."""
    silent = f"; on {scores.steps_silent} only people point at one" if scores.steps_silent else ""
    steps = scores.steps
    if isinstance(steps, Unknown):
        return f"not estimable: on no run do both point at a step{silent}"
    near = [
        f"{'exact' if not reach else f'within {reach}'} {part:.0%}" for reach, part in steps.within.items()
    ]
    return f"{', '.join(near)}, median distance {steps.median:g} (n = {steps.n}){silent}"


def _score_rows(fields: list[FieldScore]) -> list[ScoreRow]:
    rows = []
    for one in fields:
        interval = one.interval
        between = "" if isinstance(interval, Unknown) else _between(interval.low, interval.high)
        share = f"{one.right / one.n:.0%}{between}" if one.n else "not estimable: nothing is settled"
        kappa = one.kappa
        said = f"not estimable: {kappa.why}" if isinstance(kappa, Unknown) else f"{kappa.kappa:.2f}"
        silent = f", {one.silent} without an answer" if one.silent else ""
        rows.append(ScoreRow(_FIELDS[one.field], f"{one.right} of {one.n}{silent}", share, said))
    return rows


def _between(low: float | None, high: float | None) -> str:
    return f" ({low or 0:.0%} to {1 if high is None else high:.0%})"


def _row(reading: JudgeRun, paid: Paid | None) -> Row:
    word, icon, tone = _STATES[JudgeRun.State(reading.state)]
    goes_on = reading.state in (JudgeRun.State.QUEUED, JudgeRun.State.RUNNING)
    return Row(reading, word, icon, tone, _cost(paid), paid.calls if paid else 0, goes_on)


def _cost(paid: Paid | None) -> str:
    if paid is None:
        return "–"
    if paid.dollars is None:
        return "unknown"
    return f"{'at least ' if paid.unknown else ''}{dollars(paid.dollars)}"


@require_POST
@for_role(Role.OPERATOR)
def judge_ask(request: HttpRequest) -> HttpResponse:
    """Queue readings; what cannot be is said beside the form, and what was typed stays."""
    typed = request.POST
    errors: dict[str, str] = {}
    model = _chosen(typed.get("model", ""), {row.pk: row for row in Model.objects.in_use()})
    guideline = _chosen(typed.get("guideline", ""), {row.pk: row for row in guidelines.all_newest()})
    if model is None:
        errors["model"] = "model: none is chosen; choose one of the list"
    if guideline is None:
        errors["guideline"] = "guideline: none is chosen; choose one of the list"
    numbers, wrong = _numbers(typed.get("runs", ""))
    if wrong:
        errors["runs"] = wrong
    if not errors and model is not None and guideline is not None:
        try:
            asked = judging.ask(by=signed_in(request), model=model, run_ids=numbers, guideline=guideline)
            return redirect("judge", asked[0].pk) if len(asked) == 1 else redirect("judges")
        except FieldErrors as error:
            errors = error.errors
    chosen = {name: typed.get(name, "") for name in ("runs", "model", "guideline")}
    context = _list_context(request) | {"errors": errors, "runs": chosen["runs"], "chosen": chosen}
    return render(request, "annotations/judges.html", context, status=400)


def _chosen(text: str, rows: dict[int, Any]) -> Any:
    return rows.get(int(text)) if text.isdecimal() and len(text) < 19 else None


def _numbers(text: str) -> tuple[list[int], str]:
    """The numbers that “12, 15-20” means, or what is wrong with it."""
    found: list[int] = []
    for part in filter(None, re.split(r"[\s,;]+", re.sub(r"\s*[-–]\s*", "-", text.strip()))):
        match = _RANGE.fullmatch(part)
        if match is None:
            return [], f"runs: “{part[:40]}” is no number of a run; write numbers, as in 12, 15-20"
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= judging.MOST_RUNS:
            return [], f"runs: “{part[:40]}” names none or more than {judging.MOST_RUNS} runs; write fewer"
        found += range(first, last + 1)
    return found, ""


@require_safe
@for_role(Role.VIEWER)
def judge_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One reading; what it answered is kept back from whoever may still label the run blind."""
    rows = JudgeRun.objects.select_related("model", "guideline__guideline", "asked_by", "run__task")
    reading = get_object_or_404(rows, pk=pk)
    hidden = bool(hidden_runs(signed_in(request), [reading.run_id]))
    context: dict[str, Any] = {
        "place": "annotate",
        "tab": "judges",
        "row": _row(reading, judge_costs.paid([pk]).get(pk)),
        "reading": reading,
        "hidden": hidden,
        "may_ask": holds(request, Role.OPERATOR),
    }
    if not hidden:
        context |= {
            "calls": [_call_row(call) for call in reading.calls.all()],
            "pieces": reading.report.get("pieces", []),
            "refused": reading.report.get("refused", []),
            "things": _things(reading),
            "answers": _answers(reading),
        }
    return render(request, "annotations/judge.html", context)


def _things(reading: JudgeRun) -> list[dict[str, Any]]:
    name = reading.rubric.get("collected")
    found = reading.result.get(name, []) if name else []
    return [one for one in found if isinstance(one, dict)]


def _answers(reading: JudgeRun) -> list[tuple[str, str]]:
    collected = reading.rubric.get("collected")
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in reading.result.items()
        if name != collected
    ]


def _call_row(call: JudgeCall) -> CallRow:
    about = f"piece {call.chunk}" if call.chunk else "the questions at the end"
    cost = "unknown" if call.cost is None else str(dollars(call.cost))
    return CallRow(call, about, cost, _reply(call))


def _reply(call: JudgeCall) -> str:
    if not call.reply_blob:
        return ""
    try:
        text = blobs.blob_text(call.reply_blob)
    except BodyMissingError as error:
        return f"[{error}]"
    more = len(text) - _REPLY_CHARACTERS
    return text if more <= 0 else f"{text[:_REPLY_CHARACTERS]}\n[{more} characters more]"


@require_POST
@for_role(Role.OPERATOR)
def judge_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    judging.cancel(by=signed_in(request), reading=get_object_or_404(JudgeRun, pk=pk))
    return redirect("judge", pk)


urlpatterns = [
    path("annotate/judges/", judge_list, name="judges"),
    path("annotate/judges/ask", judge_ask, name="judge_ask"),
    path("annotate/judges/<int:pk>/", judge_detail, name="judge"),
    path("annotate/judges/<int:pk>/cancel", judge_cancel, name="judge_cancel"),
]
