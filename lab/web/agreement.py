"""How far people agree on why runs failed: by field, by pair, by step, and the runs behind each number."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from lab.analysis import label_agreement
from lab.analysis.agreement import Alpha, Kappa, Steps
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.label_agreement import Confusion, Field, Gate, Pair, RootSteps
from lab.models import GuidelineVersion, Queue, Role, Run
from lab.services import agreements
from lab.services.agreements import Compared
from lab.web.http import for_role, signed_in

WORDS = {
    "owner": "whose fault",
    "phase": "phase",
    "category": "category of the root cause",
    "agent": "agent of the root cause",
    "sure": "sure or unsure",
    "categories": "categories of all error events",
    "severity": "severity of events at the same step",
}


class FieldRow(NamedTuple):
    """One field in words and numbers ready to be shown; "not estimable, because …" where there is none."""

    name: str
    words: str
    coefficient: str
    interval: str
    raw: str
    n: int
    gate: Gate


class PairRow(NamedTuple):
    """Two people: names, items in common, coefficients of fault and category, and steps."""

    one: str
    other: str
    common: int
    address: str
    owner: str
    category: str
    steps: str


class Matrix(NamedTuple):
    """A confusion matrix with a link behind each number that is not 0."""

    name: str
    words: str
    rows_of: str
    columns_of: str
    labels: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[int, str, bool]]]]


@require_safe
@for_role(Role.VIEWER)
def agreement(request: HttpRequest) -> HttpResponse:
    """`?guideline=`, `?queue=`, `?annotator=` (several) narrow it; `?cell=field:row:column` lists runs."""
    queue = Queue.objects.select_related("guideline").filter(pk=_number(request, "queue")).first()
    guideline = _guideline(request, queue)
    chosen = {int(one) for one in request.GET.getlist("annotator") if one.isdecimal() and len(one) < 10}
    found = agreements.compared(by=signed_in(request), guideline=guideline, queue=queue, annotators=chosen)
    fields = label_agreement.fields(found.readings)
    raters = list(dict.fromkeys(one.rater for one in found.readings))
    context = {
        "place": "annotate",
        "tab": "agreement",
        "found": found,
        "guidelines": GuidelineVersion.objects.filter(annotations__isnull=False).distinct(),
        "queues": Queue.objects.all(),
        "guideline": guideline,
        "queue": queue,
        "chosen": chosen,
        "raters": [found.annotators[int(str(pk))].name for pk in raters],
        "rows": [_row(field) for field in fields.values()],
        "steps": _steps(label_agreement.root_steps(found.readings)),
        "pairs": [_pair(pair, found, request) for pair in label_agreement.pairs(found.readings)],
        "matrices": _matrices(fields, found, raters, request),
        "cell": _cell(request, fields),
    }
    return render(request, "annotations/agreement.html", context)


def _guideline(request: HttpRequest, queue: Queue | None) -> GuidelineVersion | None:
    """The one that is asked for; where none is, the queue's or the one with most labels. None: `any`."""
    if request.GET.get("guideline"):
        return GuidelineVersion.objects.filter(pk=_number(request, "guideline")).first()
    if queue is not None:
        return queue.guideline
    labels = Q(annotations__state="submitted", annotations__kind="label", annotations__replaced_by=None)
    counted = GuidelineVersion.objects.annotate(labels=Count("annotations", filter=labels)).filter(
        labels__gt=0
    )
    return counted.order_by("-labels", "-pk").first()


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _row(field: Field) -> FieldRow:
    return FieldRow(
        name=field.name,
        words=WORDS[field.name],
        coefficient=_coefficient(field),
        interval=_interval(field),
        raw=str(field.raw) if isinstance(field.raw, Unknown) else f"{field.raw:.1%}".replace("%", " %"),
        n=field.n,
        gate=label_agreement.gate(field),
    )


def _coefficient(field: Field) -> str:
    if isinstance(field.kappa, Kappa):
        return f"κ {field.kappa.kappa:.3f}"
    return f"α {field.alpha.alpha:.3f}" if isinstance(field.alpha, Alpha) else str(field.alpha)


def _interval(field: Field) -> str:
    if isinstance(field.kappa, Kappa) and isinstance(field.kappa.interval, Interval):
        return f"{field.kappa.interval.low:.3f} to {field.kappa.interval.high:.3f}"
    return "no interval"


def _steps(root: RootSteps) -> dict[str, Any]:
    """Shares within some steps in words; the coefficient stands last, for it says little."""
    if not isinstance(root.steps, Steps):
        return {"why": str(root.steps), "elsewhere": root.elsewhere}
    shares = [
        (reach, round(share * root.steps.n), f"{share:.1%}".replace("%", " %"))
        for reach, share in root.steps.within.items()
    ]
    alpha = f"{root.alpha.alpha:.3f}" if isinstance(root.alpha, Alpha) else str(root.alpha)
    return {
        "shares": shares,
        "n": root.steps.n,
        "median": f"{root.steps.median:g}",
        "alpha": alpha,
        "elsewhere": root.elsewhere,
    }


def _pair(pair: Pair, found: Compared, request: HttpRequest) -> PairRow:
    one, other = (found.annotators[int(str(pk))] for pk in (pair.one, pair.other))
    steps = pair.root.steps
    words = (
        f"{round(steps.within[0] * steps.n)} exact, {round(steps.within[3] * steps.n)} within 3, of {steps.n}"
        if isinstance(steps, Steps)
        else str(steps)
    )
    return PairRow(
        one=one.name,
        other=other.name,
        common=pair.common,
        address="?" + urlencode([*_kept(request), ("annotator", one.pk), ("annotator", other.pk)]),
        owner=_coefficient(pair.fields["owner"]),
        category=_coefficient(pair.fields["category"]),
        steps=words,
    )


def _kept(request: HttpRequest, *, annotators: bool = False) -> list[tuple[str, Any]]:
    """What narrows the page, for links that keep it."""
    names = ("guideline", "queue", *(("annotator",) if annotators else ()))
    return [(name, value) for name in names for value in request.GET.getlist(name) if value]


def _matrices(
    fields: Mapping[str, Field], found: Compared, raters: Sequence[Hashable], request: HttpRequest
) -> list[Matrix]:
    names = [found.annotators[int(str(pk))].name for pk in raters]
    rows_of, columns_of = names if len(names) == 2 else ("one", "another")
    return [
        _matrix(field, field.confusion, request, (rows_of, columns_of))
        for field in fields.values()
        if field.confusion is not None
    ]


def _matrix(field: Field, confusion: Confusion, request: HttpRequest, of: tuple[str, str]) -> Matrix:
    kept = _kept(request, annotators=True)

    def address(row: str, column: str) -> str:
        return "?" + urlencode([*kept, ("cell", f"{field.name}:{row}:{column}")]) + "#cell"

    rows = [
        (
            row,
            [
                (cell.number, address(row, column) if cell.number else "", row == column)
                for column, cell in zip(confusion.labels, cells, strict=True)
            ],
        )
        for row, cells in zip(confusion.labels, confusion.cells, strict=True)
    ]
    return Matrix(field.name, WORDS[field.name], *of, confusion.labels, rows)


def _run_of(item: Hashable) -> int:
    """The run of an item: itself, or the first part of a step."""
    return int(str(item[0] if isinstance(item, tuple) else item))


def _cell(request: HttpRequest, fields: Mapping[str, Field]) -> dict[str, Any] | None:
    """The runs behind one number of a matrix; None where none is asked for."""
    name, _, labels = request.GET.get("cell", "").partition(":")
    row, _, column = labels.partition(":")
    field = fields.get(name)
    if field is None or field.confusion is None:
        return None
    places = {label: place for place, label in enumerate(field.confusion.labels)}
    if row not in places or column not in places:
        return None
    items = {_run_of(item) for item in field.confusion.cells[places[row]][places[column]].items}
    runs = Run.objects.filter(pk__in=items).select_related("task").order_by("pk")
    return {"words": WORDS[name], "row": row, "column": column, "runs": runs}


urlpatterns = [path("annotate/agreement/", agreement, name="agreement")]
