"""Runs side by side: three lights that say whether they can be compared, and everything that differs.

Harness, limits and task set have a light each: same, different or unknown. Model, sampling, endpoint and seed
are what one compares, so their differences are facts without a light.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from django.db.models import QuerySet

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.difference import content_differences
from lab.engine.limits import as_typed
from lab.models import Run, RunFacts
from lab.render.differences import value_text
from lab.render.numbers import UNKNOWN, clock, size
from lab.render.sandboxes import short_hash
from lab.services import limits as limit_words
from lab.services.compared_runs import OTHER_SANDBOX, LimitChange, MadeWith, Unreadable, made_with
from lab.services.facts import agent_seconds, facts_of
from lab.services.harness_differences import ShownDifference, shown_differences
from lab.services.run_pages import Panel, panel

MOST_RUNS = 6
_SHOWN = 12
# More than any run has, and few enough for every database.
_DIGITS = 18
LIMIT_NAMES = {
    "max_steps": "steps",
    "max_context_tokens": "context",
    "max_tokens_per_turn": "tokens a turn",
    "max_total_time_sec": "time",
    "max_tokens_total": "tokens in all",
    "max_cost_usd": "cost",
    "max_format_errors": "malformed replies in a row",
}
State = Literal["same", "different", "unknown"]
_SIGNS: dict[State, str] = {"same": "=", "different": "≠", "unknown": "?"}


class Light(NamedTuple):
    """Whether one thing is the same on all sides. `detail` says what differs, or of whom it is not known.

    `brief` is a long `detail` in a few words, "" where there is nothing shorter to say.
    """

    name: str
    state: State
    detail: str = ""
    brief: str = ""

    @property
    def sign(self) -> str:
        return _SIGNS[self.state]


class Cell(NamedTuple):
    """One side's value in words. `known` is false where nobody knows it.

    `note` says more of it; it leads to the event `seq` of `run` where that is set.
    """

    words: str
    known: bool = True
    note: str = ""
    run: int | None = None
    seq: int | None = None


NOBODY_KNOWS = Cell("unknown", known=False)
NOT_SET = Cell("not set")
_NOTHING: tuple[object, ...] = (None, "", [], {})


class Row(NamedTuple):
    """Something that is not the same on all sides: its name, and a value for each side in order."""

    name: str
    cells: list[Cell]


@dataclass(frozen=True)
class HarnessPair:
    """The harness of the first run against another one. `problem` says why nothing can be listed."""

    left: str
    right: str
    left_runs: str
    right_runs: str
    right_version: int
    differences: list[ShownDifference]
    problem: str = ""


@dataclass(frozen=True)
class Side:
    """One of the runs. `asked`: a model was asked at all, so there is something to count.

    `first` and `without` are the runs of a comparison that begins with it, or lacks it.
    """

    panel: Panel
    tokens: Cell
    cost: Cell
    time: Cell
    peak_memory: Cell
    asked: bool
    first: str
    without: str


@dataclass(frozen=True)
class Comparison:
    """Runs side by side, everything in the order of `sides`. `tasks` holds a run of each task."""

    sides: list[Side]
    tasks: list[Run]
    lights: list[Light]
    harnesses: list[HarnessPair]
    limits: list[Row]
    limits_alike: str
    task_set: list[Row]
    task_set_alike: str
    sandbox: list[Row]
    sandbox_state: Light
    sandbox_alike: str
    other: list[Row]
    other_alike: str
    goes_on: bool

    @property
    def several(self) -> bool:
        """Whether one of them can be left out."""
        return len(self.sides) > 2


class Signals(NamedTuple):
    """What a comparison begins with: its lights, and how the models were sampled, names with their values.

    `differs`: "top_k 20 and 40". `alike`: "temperature 0.6".
    """

    lights: list[Light]
    differs: list[str]
    alike: list[str]


def signals(runs: Sequence[Run]) -> Signals:
    """The lights and the sampling of two or more runs (see `find_runs`), in three queries."""
    sides = made_with(runs)
    lights = [_harness_light(sides), _limits_light(sides), _task_set_light(runs), _sandboxes(sides)[1]]
    differs: list[str] = []
    alike: list[str] = []
    for path in dict.fromkeys(path for side in sides for path in side.settings):
        if not path.startswith("sampling."):
            continue
        values = list(dict.fromkeys(_setting(side, path).words for side in sides))
        (differs if len(values) > 1 else alike).append(
            f"{path.removeprefix('sampling.')} {' and '.join(values)}"
        )
    return Signals(lights, differs, alike)


class Named(NamedTuple):
    """What an address or a person names as runs: each text as it was written, and its number if it is one."""

    parts: list[tuple[str, int | None]]

    @property
    def numbers(self) -> list[int]:
        """Each number once, in order."""
        return list(dict.fromkeys(number for _, number in self.parts if number is not None))

    @property
    def wrong(self) -> list[str]:
        return [text for text, number in self.parts if number is None]


def read_numbers(texts: Iterable[str]) -> Named:
    """Numbers of runs, parted by commas or spaces, with or without "#". Nothing that was written is lost."""
    found: list[tuple[str, int | None]] = []
    for part in ",".join(texts).replace(",", " ").split():
        plain = part.removeprefix("#")
        is_number = plain.isascii() and plain.isdigit() and len(plain) <= _DIGITS
        found.append((part, int(plain) if is_number else None))
    return Named(found)


def asked_numbers(texts: Iterable[str]) -> list[int]:
    """Numbers of runs as an address or a person gives them, parted by commas or spaces, each once, in order.

    Raises:
        InvalidValueError: something that is no number, or more runs than fit; says what to write instead.
    """
    named = read_numbers(texts)
    if named.wrong:
        raise no_numbers(named.wrong)
    if len(named.numbers) > MOST_RUNS:
        raise too_many(named.numbers)
    return named.numbers


def no_numbers(wrong: Sequence[str]) -> InvalidValueError:
    """What to say of `wrong`, one or more texts that are no numbers of runs."""
    said = "is no number of a run" if len(wrong) == 1 else "are no numbers of runs"
    return InvalidValueError("runs", _shown(wrong), f"{said}; write numbers as in 12,15")


def too_many(numbers: Sequence[int]) -> InvalidValueError:
    """What to say of more runs than fit side by side."""
    return InvalidValueError(
        "runs",
        _shown(numbers),
        f"are {len(numbers)} runs; {MOST_RUNS} fit side by side, so leave {len(numbers) - MOST_RUNS} out",
    )


def absent(numbers: Sequence[int]) -> InvalidValueError:
    """What to say of numbers that no run has, or none has any more."""
    said = "is no run" if len(numbers) == 1 else "are no runs"
    return InvalidValueError(
        "runs",
        _shown(numbers),
        f"{said} of this lab: mistyped, or removed since; leave out what is not there, or choose from a list",
    )


def _shown(values: Sequence[object]) -> str:
    """The first of them as they were typed, and how many more."""
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ",".join(as_typed(str(value)) for value in values[:_SHOWN]) + more


def find_runs(numbers: Sequence[int]) -> list[Run]:
    """The runs of these numbers, in this order, with all that a comparison names.

    Raises:
        InvalidValueError: a number that no run has.
    """
    found = found_runs(numbers)
    missing = [number for number in numbers if number not in found]
    if missing:
        raise absent(missing)
    return [found[number] for number in numbers]


def found_runs(numbers: Iterable[int]) -> dict[int, Run]:
    """Those of these numbers that are runs, in this order, with all that a comparison names; in one query."""
    numbers = list(numbers)
    runs = {run.pk: run for run in _with_everything(Run.objects.filter(pk__in=numbers))}
    return {number: runs[number] for number in numbers if number in runs}


def _with_everything(runs: QuerySet[Run]) -> QuerySet[Run]:
    return runs.select_related(
        "facts", "task__task_set", "experiment", "arm__harness_version__harness", "arm__model__endpoint"
    )


def compare(runs: Sequence[Run]) -> Comparison:
    """Two or more runs (see `find_runs`) side by side. The first one is what the others are held against."""
    sides = made_with(runs)
    harness, limits, task_set = _harness_light(sides), _limits_light(sides), _task_set_light(runs)
    limit_rows, limits_alike = _limits(sides)
    task_rows, tasks_alike = _task_set(runs)
    sandbox, sandbox_state, sandbox_alike = _sandboxes(sides)
    other, other_alike = _other(sides)
    return Comparison(
        sides=[_side(run, runs) for run in runs],
        tasks=list({run.task_id: run for run in runs}.values()),
        lights=[harness, limits, task_set],
        harnesses=_harness_pairs(sides),
        limits=limit_rows,
        limits_alike=limits_alike,
        task_set=task_rows,
        task_set_alike=tasks_alike,
        sandbox=sandbox,
        sandbox_state=sandbox_state,
        sandbox_alike=sandbox_alike,
        other=other,
        other_alike=other_alike,
        goes_on=any(run.status != Run.Status.ENDED for run in runs),
    )


def _side(run: Run, runs: Sequence[Run]) -> Side:
    whole, facts = panel(run), facts_of(run)
    others = [str(other.pk) for other in runs if other.pk != run.pk]
    seconds = agent_seconds(facts, until=None)
    # The table of a run's page says it once, in front of both.
    tokens, cost = _cell(whole.total.tokens), _cell(whole.total.cost.removeprefix("at least "))
    return Side(
        panel=whole,
        tokens=_at_least(tokens, facts.usage_unknown)._replace(
            note=_token_parts(facts) if tokens.known else ""
        ),
        cost=_at_least(cost, facts.cost_unknown)._replace(note=whole.basis),
        time=_cell(UNKNOWN if seconds is None else clock(seconds)),
        peak_memory=_cell(size(facts.peak_memory_bytes)),
        asked=bool(facts.calls or facts.steps),
        first=",".join([str(run.pk), *others]),
        without=",".join(others),
    )


def _at_least(cell: Cell, missing: int) -> Cell:
    """A sum of which some parts are unknown."""
    return cell._replace(words=f"at least {cell.words}") if cell.known and missing else cell


def _cell(words: str) -> Cell:
    return NOBODY_KNOWS if words == UNKNOWN else Cell(words)


def _token_parts(facts: RunFacts) -> str:
    parts = [("in", facts.input_total), ("of it cached", facts.cache_read), ("out", facts.output_total)]
    return ", ".join(f"{'unknown' if number is None else f'{number:,}'} {word}" for word, number in parts)


def state_of(values: Sequence[str | None]) -> State:
    """Of values, None for an unknown one: two known ones that differ decide, whatever else is unknown."""
    if len({value for value in values if value is not None}) > 1:
        return "different"
    return "unknown" if None in values else "same"


# ---- harness -----------------------------------------------------------------------------------------------


def _harness_light(sides: Sequence[MadeWith]) -> Light:
    state = state_of([side.harness_digest for side in sides])
    if state == "unknown":
        unknown = [side.run for side in sides if side.harness_digest is None]
        return Light("harness", state, f"not known of {named_runs(unknown)}")
    return Light("harness", state, ", ".join(dict.fromkeys(side.harness for side in sides)))


def _harness_pairs(sides: Sequence[MadeWith]) -> list[HarnessPair]:
    """The first run's harness against each other one among the runs."""
    groups: dict[object, list[MadeWith]] = {}
    for side in sides:
        groups.setdefault(side.harness_digest or ("unknown", side.run.arm.harness_version_id), []).append(
            side
        )
    first, *others = groups.values()
    return [_harness_pair(first, other) for other in others]


def _harness_pair(left: Sequence[MadeWith], right: Sequence[MadeWith]) -> HarnessPair:
    before, after = left[0].harness_config, right[0].harness_config
    problem, found = "", []
    if isinstance(before, Unreadable):
        problem = f"What differs cannot be listed: of {left[0].harness} {before.reason}."
    elif isinstance(after, Unreadable):
        problem = f"What differs cannot be listed: of {right[0].harness} {after.reason}."
    else:
        found = content_differences(before, after)
        if not found and left[0].harness_digest and right[0].harness_digest:
            problem = "The digests differ, and no recorded field does."
        elif not found:
            problem = "No recorded field differs; the rest is unknown."
    return HarnessPair(
        left=left[0].harness,
        right=right[0].harness,
        left_runs=named_runs([side.run for side in left]),
        right_runs=named_runs([side.run for side in right]),
        right_version=right[0].run.arm.harness_version_id,
        differences=shown_differences(found),
        problem=problem,
    )


def named_runs(runs: Sequence[Run]) -> str:
    """ "run 12", "runs 12 and 15"."""
    numbers = [str(run.pk) for run in runs]
    if len(numbers) == 1:
        return f"run {numbers[0]}"
    return f"runs {', '.join(numbers[:-1])} and {numbers[-1]}"


# ---- limits ------------------------------------------------------------------------------------------------


def _limits_light(sides: Sequence[MadeWith]) -> Light:
    """A run whose limits people changed while it went on had no one set of them: it differs from each."""
    changed = [side.run for side in sides if side.limit_changes]
    digests = [side.limits_digest for side in sides]
    differing = [name for name in LIMIT_NAMES if _limit_state(sides, name) == "different"]
    parts = [
        f"{LIMIT_NAMES[name]} {said_of_each(name, [side.limits for side in sides])}" for name in differing
    ]
    if changed:
        parts.append(f"changed while {named_runs(changed)} went on")
    if parts:
        return Light("limits", "different", "; ".join(parts))
    if state_of(digests) == "same":
        return Light("limits", "same")
    unknown = [side.run for side in sides if any(name not in side.limits for name in LIMIT_NAMES)]
    if unknown:
        return Light("limits", "unknown", f"not all known of {named_runs(unknown)}")
    return Light("limits", "same")


def _limit_value(side: MadeWith, name: str) -> str | None:
    """A limit to be compared: 10800 and 10800.0 are one. None: unknown."""
    if name not in side.limits:
        return None
    value = side.limits[name]
    return "no limit" if value is None else str(Decimal(str(value)).normalize())


def _limit_state(sides: Sequence[MadeWith], name: str) -> State:
    return state_of([_limit_value(side, name) for side in sides])


def said_of_each(name: str, limits: Sequence[Mapping[str, Any]]) -> str:
    """What is known of one limit on all sides, each value once and without its unit: "150 and 100"."""
    return " and ".join(dict.fromkeys(_without_unit(name, side[name]) for side in limits if name in side))


def _without_unit(name: str, value: Any) -> str:
    words = limit_words.said(name, value)
    if value is None or words.endswith(" seconds"):
        return words
    return words.split()[0]


def _limits(sides: Sequence[MadeWith]) -> tuple[list[Row], str]:
    """The limits that differ or that somebody changed, and the others in a sentence."""
    rows, alike, none = [], [], []
    for name, words in LIMIT_NAMES.items():
        changed = any(change.limit == name for side in sides for change in side.limit_changes)
        state = _limit_state(sides, name)
        if changed or state == "different" or (state == "unknown" and any(name in s.limits for s in sides)):
            rows.append(Row(words, [_limit_cell(side, name) for side in sides]))
        elif state == "unknown":
            alike.append(f"{words} unknown")
        elif sides[0].limits[name] is None:
            none.append(words)
        else:
            alike.append(f"{words} {_without_unit(name, sides[0].limits[name])}")
    return rows, ", ".join([*alike, f"no limit of {', '.join(none)}"] if none else alike)


def _limit_cell(side: MadeWith, name: str) -> Cell:
    changes = [change for change in side.limit_changes if change.limit == name]
    if name not in side.limits:
        return _with_changes(NOBODY_KNOWS, side.run.pk, changes)
    return _with_changes(Cell(limit_words.said(name, side.limits[name])), side.run.pk, changes)


def _with_changes(cell: Cell, run: int, changes: Sequence[LimitChange]) -> Cell:
    if not changes:
        return cell
    steps = " → ".join(limit_words.said(change.limit, change.after) for change in changes)
    return cell._replace(note=f"→ {steps}, changed while running", run=run, seq=changes[0].seq)


# ---- task set ----------------------------------------------------------------------------------------------


def _task_set_light(runs: Sequence[Run]) -> Light:
    sets = [run.task.task_set for run in runs]
    state = state_of([task_set.digest or None for task_set in sets])
    other_tasks = len({run.task.digest or run.task_id for run in runs}) > 1
    names = ", ".join(dict.fromkeys(str(task_set) for task_set in sets))
    return Light(
        "task set", state, f"{names}, other tasks of it" if other_tasks and state == "same" else names
    )


def _task_set(runs: Sequence[Run]) -> tuple[list[Row], str]:
    """What differs in set and task, and the rest in a sentence. A digest that differs is shown whole."""
    facts = {
        "task set": [run.task.task_set.name for run in runs],
        "version": [run.task.task_set.version for run in runs],
        "digest of the set": [run.task.task_set.digest for run in runs],
        "task": [run.task.slug for run in runs],
        "digest of the task": [run.task.digest for run in runs],
    }
    rows, alike = [], []
    for name, texts in facts.items():
        if state_of([text or None for text in texts]) == "same":
            shown = texts[0][:16] if name.startswith("digest") else texts[0]
            alike.append(f"{name} {value_text(shown)}")
        else:
            rows.append(Row(name, [Cell(value_text(text)) if text else NOBODY_KNOWS for text in texts]))
    return rows, ", ".join(alike)


# ---- sandbox -----------------------------------------------------------------------------------------------


def _sandboxes(sides: Sequence[MadeWith]) -> tuple[list[Row], Light, str]:
    """What differs between the sandboxes, whether anything does, and the rest in a sentence."""
    rows, alike = [], []
    states: set[State] = {"unknown"} if any(not side.sandbox for side in sides) else set()
    for name in dict.fromkeys(name for side in sides for name in side.sandbox):
        # It is recorded only where there was another one.
        values = [side.sandbox.get(name, "no" if name == OTHER_SANDBOX else None) for side in sides]
        state = state_of(values)
        states.add("different" if name == OTHER_SANDBOX else state)
        if state == "same" and name != OTHER_SANDBOX:
            value = sides[0].sandbox[name]
            alike.append(f"{name} {short_hash(value) if value.startswith('sha256:') else value}")
        else:
            rows.append(Row(name, [NOBODY_KNOWS if value is None else Cell(value) for value in values]))
    order: tuple[State, ...] = ("different", "unknown", "same")
    worst: State = next((state for state in order if state in states), "unknown")
    # Some of them are told with commas of their own.
    differing = ", ".join(row.name for row in rows[:_SANDBOX_SHOWN]) if worst == "different" else ""
    more = ", …" if len(rows) > _SANDBOX_SHOWN else ""
    return rows, Light("sandbox", worst, f"{differing}{more}" if differing else ""), "; ".join(alike)


# So many of the facts that differ are named where the page begins.
_SANDBOX_SHOWN = 3


# ---- everything else ---------------------------------------------------------------------------------------


def _other(sides: Sequence[MadeWith]) -> tuple[list[Row], str]:
    """What else differs, and the names of what does not."""
    paths = dict.fromkeys(path for side in sides for path in side.settings)
    rows, alike = [], []
    for path in paths:
        cells = [_setting(side, path) for side in sides]
        if len({cell.words for cell in cells}) > 1:
            rows.append(Row(path, cells))
        elif cells[0] != NOT_SET:
            alike.append(f"{path} {cells[0].words}")
    told = [facts_of(side.run).got_message for side in sides]
    if any(told):
        rows.append(Row("messages from people", [Cell("yes" if one else "none") for one in told]))
    return rows, ", ".join(alike)


def _setting(side: MadeWith, path: str) -> Cell:
    if path in side.settings:
        value = side.settings[path]
        return NOT_SET if value in _NOTHING else Cell(value_text(value))
    if side.sampling_known and path.split(".")[0] in {"sampling", "extra_body"}:
        return NOT_SET
    return NOBODY_KNOWS
