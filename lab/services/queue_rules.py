"""Which runs belong into a queue: rules as data, and the runs they choose.

All rules that are given hold together; of one that lists several values any will do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from django.db.models import F, Q
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lab.engine.errors import ExitReason, InvalidValueError
from lab.models import Run
from lab.render.moments import OUTCOMES

MOST_LABELS = 9
NOT_GRADED: Final = "not_graded"
VERDICTS: Final = (*OUTCOMES, NOT_GRADED)
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
Behaviour = Literal["empty_patch", "never_ran", "both", "regression", "never_fixed"]


class Rules(BaseModel):
    """What a run must be. Empty lists ask for nothing; `sample` takes so many at random, None all.

    `behaviours` are the answers of the tests of unresolved runs (see `lab.analysis.run_traits`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiments: tuple[Number, ...] = ()
    arms: tuple[Number, ...] = ()
    verdicts: tuple[str, ...] = ()
    exit_reasons: tuple[str, ...] = ()
    behaviours: tuple[Behaviour, ...] = ()
    runs: tuple[Number, ...] = ()
    sample: Number | None = None


class Chosen(NamedTuple):
    """A run for a queue, and by how many people it is to be labelled."""

    run_id: int
    wanted: int


def rules_of(data: Mapping[str, Any]) -> Rules:
    """Raises: InvalidValueError, which names the rule and the value."""
    try:
        rules = Rules.model_validate(dict(data))
    except ValidationError as invalid:
        first = invalid.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "rules"
        raise InvalidValueError(field, first.get("input"), f"cannot be used: {first['msg']}") from None
    _known("verdicts", rules.verdicts, VERDICTS)
    _known("exit_reasons", rules.exit_reasons, tuple(ExitReason))
    return rules


def _known(field: str, values: Iterable[str], allowed: tuple[str, ...]) -> None:
    for value in values:
        if value not in allowed:
            raise InvalidValueError(field, value, f"does not exist; choose of {', '.join(allowed)}")


def matching(rules: Rules) -> list[int]:
    """The numbers of the ended runs that the rules describe, without sampling, in their order."""
    runs = Run.objects.filter(status=Run.Status.ENDED)
    if rules.experiments:
        runs = runs.filter(experiment_id__in=rules.experiments)
    if rules.arms:
        runs = runs.filter(arm_id__in=rules.arms)
    if rules.runs:
        runs = runs.filter(pk__in=rules.runs)
    if rules.verdicts:
        wanted = ["" if verdict == NOT_GRADED else verdict for verdict in rules.verdicts]
        missing = Q(facts=None) if "" in wanted else Q()
        runs = runs.filter(
            Q(facts__verdict__in=wanted) | missing if missing else Q(facts__verdict__in=wanted)
        )
    if rules.exit_reasons:
        runs = runs.filter(exit_reason__in=rules.exit_reasons)
    if rules.behaviours:
        either = Q()
        for behaviour in rules.behaviours:
            either |= _BEHAVIOURS[behaviour]
        runs = runs.filter(either, facts__verdict__in=("unresolved", "unparsed"))
    return list(runs.order_by("pk").values_list("pk", flat=True))


_EMPTY = Q(facts__changed_files=[])
_UNPARSED = Q(facts__verdict="unparsed")
_KNOWN = Q(facts__fail_to_pass_total__isnull=False, facts__pass_to_pass_total__isnull=False)
_NONE_PASSES = _KNOWN & Q(
    facts__pass_to_pass_total__gt=0, facts__fail_to_pass_passed=0, facts__pass_to_pass_passed=0
)
_RAN = ~_EMPTY & Q(facts__verdict="unresolved") & _KNOWN & ~_NONE_PASSES
_FAILS = Q(facts__fail_to_pass_passed__lt=F("facts__fail_to_pass_total"))
_BREAKS = Q(facts__pass_to_pass_passed__lt=F("facts__pass_to_pass_total"))
_BEHAVIOURS: dict[Behaviour, Q] = {
    "empty_patch": _EMPTY,
    "never_ran": ~_EMPTY & (_UNPARSED | _NONE_PASSES),
    "both": _RAN & _FAILS & _BREAKS,
    "regression": _RAN & ~_FAILS & _BREAKS,
    "never_fixed": _RAN & _FAILS & ~_BREAKS,
}


def chosen(
    run_ids: Iterable[int], *, sample: int | None, seed: int, overlap: int, wanted: int
) -> list[Chosen]:
    """Of these runs a random sample, those that several people label first.

    `overlap`: the share of them, in percent, that `wanted` people label; the others one person. The same seed
    chooses the same, and a larger sample holds the smaller one.
    """
    shuffled = sorted(run_ids, key=lambda run_id: _rank("order", seed, run_id))[:sample]
    several = -(-len(shuffled) * overlap // 100)
    doubled = set(sorted(shuffled, key=lambda run_id: _rank("overlap", seed, run_id))[:several])
    picked = [Chosen(run_id, wanted if run_id in doubled else 1) for run_id in shuffled]
    return sorted(picked, key=lambda one: one.run_id not in doubled)


def _rank(purpose: str, seed: int, run_id: int) -> bytes:
    return hashlib.sha256(f"{purpose}:{seed}:{run_id}".encode()).digest()
