"""What an experiment has spent, against its budgets, and the stop near one that is reached.

A budget counts every request of every run, failed and retried ones too. It is looked at in the transaction
that appends a request's end, and by the tick, which is how hours are noticed. An experiment that reaches one
is paused: no new request starts, what is in flight ends, and nobody has failed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from lab.engine.errors import InvalidValueError
from lab.engine.limits import LARGEST, SMALLEST, as_typed, is_amount, without_grouping
from lab.models import Experiment, Model, RunFacts
from lab.services import doorbell

# In the order in which they are looked at and shown.
LABELS = {"max_cost_usd": "Cost", "max_tokens": "Tokens", "max_hours": "Time"}
UNITS = {"max_cost_usd": "dollars", "max_tokens": "tokens", "max_hours": "hours"}
# So many answers tell whether a server reports what a budget counts.
_FEWEST_REQUESTS = 20
# The tick keeps an experiment's time this often; while it does not come, the lab is off or stands.
_BANK_SECONDS, _LONGEST_GAP_SECONDS = 20.0, 60.0
_DONE = {"max_cost_usd": "spent by then", "max_tokens": "used by then", "max_hours": "worked by then"}


class Spent(NamedTuple):
    """What the runs of an experiment have used by now.

    `usd` and `tokens` are what is known; `usd_unknown` and `tokens_unknown` count the requests without a
    figure, which make the sums "at least". `seconds` is the experiment's own time, from its first started
    run on, without its pauses. `budgets` maps a name of `LABELS` to how much there may be, in its unit.
    `unkept` names the first budget that cannot be kept, "" where all can: of more than half (`missing`) of
    the requests that were `answered` nobody knows what counts for it.
    """

    usd: Decimal
    usd_unknown: int
    tokens: int
    tokens_unknown: int
    seconds: float
    budgets: Mapping[str, Decimal]
    unkept: str = ""
    missing: int = 0
    answered: int = 0

    def used(self, name: str) -> Decimal:
        """How much counts against a budget, in its unit."""
        if name == "max_cost_usd":
            return self.usd
        return Decimal(self.tokens) if name == "max_tokens" else Decimal(self.seconds) / 3600

    def unknown(self, name: str) -> int:
        """How many requests have no figure for it."""
        return {"max_cost_usd": self.usd_unknown, "max_tokens": self.tokens_unknown}.get(name, 0)

    def said(self, name: str) -> str:
        """How much is used, in words: "$3.20", "at least 1,200 tokens", "1.5 hours"."""
        return f"{'at least ' if self.unknown(name) else ''}{said(name, self.used(name))}"

    @property
    def reached(self) -> str:
        """The name of the first budget that is used up, "" while there is none."""
        return next((name for name in LABELS if self._is_reached(name)), "")

    @property
    def stopping(self) -> str:
        """The name of the budget because of which nothing may go on, "" while there is none."""
        return self.reached or self.unkept

    def _is_reached(self, name: str) -> bool:
        budget = self.budgets.get(name)
        return budget is not None and self.used(name) >= budget


class BudgetLine(NamedTuple):
    """One budget as pages show it. `percent` is from 0 to 100, None without a budget."""

    name: str
    label: str
    used: str
    budget: str
    percent: int | None
    unknown: int


def spent(experiment: Experiment) -> Spent:
    """What the experiment has used by now, in one query over the roll-ups of its runs."""
    sums = RunFacts.objects.filter(run__experiment=experiment.pk).aggregate(
        usd=Sum("cost"),
        usd_unknown=Sum("cost_unknown"),
        read=Sum("input_total"),
        written=Sum("output_total"),
        tokens_unknown=Sum("usage_unknown"),
    )
    return _looked_at(
        experiment,
        Spent(
            usd=(sums["usd"] or Decimal(0)).quantize(Decimal("1E-10")),
            usd_unknown=sums["usd_unknown"] or 0,
            tokens=(sums["read"] or 0) + (sums["written"] or 0),
            tokens_unknown=sums["tokens_unknown"] or 0,
            seconds=seconds_worked(experiment),
            budgets=budgets_of(experiment),
        ),
    )


def _looked_at(experiment: Experiment, used: Spent) -> Spent:
    """With the budget that cannot be kept, if there is one."""
    for name in ("max_cost_usd", "max_tokens"):
        if name not in used.budgets or used.unknown(name) < _FEWEST_REQUESTS / 2:
            continue
        missing, answered = _missing(experiment, name)
        if answered >= _FEWEST_REQUESTS and missing * 2 > answered:
            return used._replace(unkept=name, missing=missing, answered=answered)
    return used


def _missing(experiment: Experiment, name: str) -> tuple[int, int]:
    """How many requests that were answered have no figure for a budget, of how many.

    Failed requests, which seldom have one, are counted as if none had: rather too few than too many.
    """
    facts = RunFacts.objects.filter(run__experiment=experiment.pk)
    column = "usage_unknown"
    if name == "max_cost_usd":
        # Imported late: it brings the prices along.
        from lab.services.endpoints import price_is_known

        column = "cost_unknown"
        models = Model.objects.filter(pk__in=experiment.arms.values("model_id")).select_related("endpoint")
        facts = facts.filter(run__arm__model__in=[model.pk for model in models if price_is_known(model)])
    sums = facts.aggregate(all=Sum("calls"), failed=Sum("failed_calls"), unknown=Sum(column))
    failed = sums["failed"] or 0
    return max(0, (sums["unknown"] or 0) - failed), (sums["all"] or 0) - failed


def lines(used: Spent) -> list[BudgetLine]:
    """Cost, tokens and time, each with what is used of it and its budget, for pages."""
    return [
        BudgetLine(
            name,
            label,
            used.said(name),
            said(name, budget) if (budget := used.budgets.get(name)) is not None else "",
            None if budget is None else _percent(used.used(name), budget),
            used.unknown(name),
        )
        for name, label in LABELS.items()
    ]


def _percent(used: Decimal, budget: Decimal) -> int:
    return 100 if used >= budget else int(used * 100 / budget)


def budgets_of(experiment: Experiment) -> dict[str, Decimal]:
    """The experiment's budgets by name, those it has."""
    found = experiment.budgets or {}
    return {name: Decimal(str(found[name])) for name in LABELS if found.get(name) is not None}


def parse(name: str, text: str) -> Decimal:
    """A budget as a person wrote it: a positive number of its unit, tokens whole.

    Raises:
        InvalidValueError: names the field, the value and what to write instead.
    """
    if name not in LABELS:
        raise InvalidValueError("budgets", name, f"is no budget; known are {', '.join(LABELS)}")
    unit, shown, plain = UNITS[name], as_typed(text.strip()), without_grouping(text)
    example = {"max_cost_usd": "10.50", "max_tokens": "2000000", "max_hours": "1.5"}[name]
    try:
        number = Decimal("" if "_" in plain else plain)
    except InvalidOperation:
        raise InvalidValueError(name, shown, f"is not a number of {unit}; write it like {example}") from None
    if not is_amount(number):
        reason = f"is no number of {unit} from {SMALLEST} to {LARGEST:,}; write it like {example}"
        raise InvalidValueError(name, shown, reason)
    if name == "max_tokens" and number != int(number):
        raise InvalidValueError(name, shown, f"is no whole number of tokens; write {int(number) + 1}")
    return number


def stored(name: str, amount: Decimal) -> str | int | float:
    """A budget as `Experiment.budgets` holds it: dollars as text, tokens whole, hours as a number."""
    if name == "max_cost_usd":
        return f"{amount.normalize():f}"
    return int(amount) if amount == int(amount) else float(amount)


def said(name: str, amount: Decimal) -> str:
    """An amount of what a budget counts, in words."""
    if name == "max_cost_usd":
        cents = amount.quantize(Decimal("0.01"))
        if amount >= 1 or amount == cents:
            return f"${cents:,}"
        return f"${amount.quantize(SMALLEST).normalize():f}"
    if name == "max_tokens":
        return f"{int(amount):,} token{'' if amount == 1 else 's'}"
    seconds = float(amount) * 3600
    if 0 < seconds < 3600:
        return f"{seconds:.3g} seconds" if seconds < 60 else f"{seconds / 60:.3g} minutes"
    hours = f"{float(amount):,.3g}" if amount < 100 else f"{float(amount):,.0f}"
    return f"{hours} hour{'' if hours == '1' else 's'}"


def because_stopped(used: Spent) -> str:
    """Why an experiment stands for a budget: "the budget of $10.00 is reached: $10.03 spent by then"."""
    name = used.reached
    if not name:
        what = "price" if used.unkept == "max_cost_usd" else "usage"
        of_what = f"the budget of {said(used.unkept, used.budgets[used.unkept])}"
        return f"{used.missing:,} of {used.answered:,} requests have no {what}: {of_what} cannot be kept"
    return f"the budget of {said(name, used.budgets[name])} is reached: {used.said(name)} {_DONE[name]}"


def enforce(*, experiment_id: int) -> bool:
    """Pause the experiment if a budget of it is reached or cannot be kept; True when this call did.

    Under the row's lock: of two requests that end at once the second sees what the first has cost.
    """
    with transaction.atomic():
        experiment = Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)
        if experiment.state != Experiment.State.ACTIVE or not experiment.budgets:
            return False
        used = spent(experiment)
        if not used.stopping:
            return False
        stop(experiment, because=because_stopped(used), budget=used.stopping)
    return True


def count_request(*, run_id: int) -> None:
    """After the end of a request was appended, in the same transaction."""
    active = Experiment.objects.filter(runs=run_id, state=Experiment.State.ACTIVE)
    found = active.values_list("pk", "budgets").first()
    if found is not None and found[1]:
        enforce(experiment_id=found[0])


def enforce_all() -> list[int]:
    """For the tick: keep the time that experiments have worked, and pause what has used up its own.

    Returns the experiments that it paused.
    """
    active = Experiment.objects.filter(state=Experiment.State.ACTIVE).order_by("pk")
    stopped_ones = []
    for pk, budgets, clock in active.values_list("pk", "budgets", "clock"):
        if clock and clock.get("since") and _seconds_since(clock["since"]) > _BANK_SECONDS:
            _bank(pk)
        if budgets and enforce(experiment_id=pk):
            stopped_ones.append(pk)
    return stopped_ones


def _bank(experiment_id: int) -> None:
    """Add the time since the clock was looked at last to what is kept."""
    with transaction.atomic():
        experiment = Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)
        if experiment.state == Experiment.State.ACTIVE:
            experiment.clock = started(stopped(experiment.clock))
            experiment.save(update_fields=["clock"])


def stop(experiment: Experiment, *, because: str, budget: str = "") -> None:
    """Pause an experiment whose row is locked: its clock stands, and no run of it starts."""
    experiment.state = Experiment.State.PAUSED
    experiment.paused_because, experiment.paused_by_budget = because[:300], budget
    experiment.clock = stopped(experiment.clock)
    experiment.save(update_fields=["state", "paused_because", "paused_by_budget", "clock"])
    doorbell.ring()


def go_on(experiment: Experiment) -> None:
    """Let an experiment go on whose row is locked; its clock does, if it had begun."""
    experiment.state, experiment.ended_at = Experiment.State.ACTIVE, None
    experiment.paused_because = experiment.paused_by_budget = ""
    if experiment.clock:
        experiment.clock = started(experiment.clock)
    experiment.save(update_fields=["state", "ended_at", "paused_because", "paused_by_budget", "clock"])
    doorbell.ring()


def seconds_worked(experiment: Experiment) -> float:
    """The experiment's own time so far, in seconds.

    While the lab is off nobody banks it: of a longer gap `_LONGEST_GAP_SECONDS` count.
    """
    clock = experiment.clock or {}
    since = clock.get("since")
    more = min(_seconds_since(since), _LONGEST_GAP_SECONDS) if since else 0.0
    return float(clock.get("seconds", 0.0)) + max(0.0, more)


def _seconds_since(moment: str) -> float:
    return (timezone.now() - dt.datetime.fromisoformat(moment)).total_seconds()


def start_clock(*, experiment_id: int) -> None:
    """A run of the experiment starts; one that does so first starts its clock."""
    clock = Experiment.objects.values_list("clock", flat=True).get(pk=experiment_id)
    if clock and clock.get("since"):
        return
    with transaction.atomic():
        experiment = Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)
        if experiment.state == Experiment.State.ACTIVE:
            experiment.clock = started(experiment.clock)
            experiment.save(update_fields=["clock"])


def started(clock: Mapping[str, object]) -> dict[str, object]:
    """The clock as it is once it goes on."""
    since = clock.get("since") or timezone.now().isoformat()
    return {"seconds": clock.get("seconds", 0.0), "since": since}


def stopped(clock: Mapping[str, object]) -> dict[str, object]:
    """The clock as it is once it stands."""
    if not clock:
        return {}
    return {"seconds": seconds_worked(Experiment(clock=dict(clock))), "since": None}
