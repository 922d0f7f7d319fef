"""What an address asks of the page of runs side by side, and the addresses that ask for something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from lab.engine.errors import InvalidValueError
from lab.engine.limits import as_typed

VIEWS = ("steps", "patches", "tests", "files", "cost", "setup")
# Name of a choice -> its values, that which stands for "nothing said" first.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "view": VIEWS,
    "by": ("action", "number"),
    "scroll": ("together", "apart"),
    "fold": ("equal", "none"),
}
PLACES = ("at", "open")


class Place(NamedTuple):
    """A step of one of the runs, written 12.7. Steps count from 1."""

    run: int
    step: int

    def __str__(self) -> str:
        return f"{self.run}.{self.step}"


@dataclass(frozen=True, slots=True)
class Asked:
    """How runs are shown side by side. `runs` in the order of their letters.

    `by`: rows by what the steps do ("action") or by equal numbers ("number"). `scroll`: "together", or
    "apart", each run in a pane of its own without gaps. `fold`: whether equal stretches are folded ("equal",
    "none"). `at`: the step around which the page opens, None: where the runs part. `open`: the step whose row
    is open. `first`: the two runs that stand first and are held against each other where only two have room,
    () for the order of letters. `problems`: what of the address cannot be used; something else is shown.
    """

    runs: tuple[int, ...]
    view: str = "steps"
    by: str = "action"
    scroll: str = "together"
    fold: str = "equal"
    at: Place | None = None
    open: Place | None = None
    first: tuple[int, ...] = ()
    problems: tuple[InvalidValueError, ...] = ()

    @property
    def order(self) -> tuple[int, ...]:
        """The runs as the columns stand."""
        return (*self.first, *(run for run in self.runs if run not in self.first))

    def without(self, run: int) -> str:
        """The runs without one of them, "" where fewer than two are left."""
        rest = [str(other) for other in self.runs if other != run]
        return ",".join(rest) if len(rest) > 1 else ""

    def address(self, **changed: Any) -> str:
        """The query that asks for the same with something changed, such as `fold="none"`."""
        other = replace(self, **changed)
        said: dict[str, str] = {"runs": ",".join(map(str, other.runs))}
        if other.first:
            said["first"] = ",".join(map(str, other.first))
        for name, values in CHOICES.items():
            value = getattr(other, name)
            if value != values[0]:
                said[name] = value
        for name in PLACES:
            place = getattr(other, name)
            if place is not None:
                said[name] = str(place)
        return f"?{urlencode(said, safe=',.')}"


def asked(runs: Sequence[int], query: Mapping[str, str]) -> Asked:
    """What the query asks for these runs. What cannot be used is left out, and told in `problems`."""
    problems: list[InvalidValueError] = []
    found: dict[str, Any] = {}
    for name, values in CHOICES.items():
        value = query.get(name, "")
        if value in values:
            found[name] = value
        elif value:
            ways = ", ".join(values[:-1])
            problems.append(
                InvalidValueError(
                    name, as_typed(value), f"is none of its values; write {ways} or {values[-1]}"
                )
            )
    for name in PLACES:
        if query.get(name):
            try:
                found[name] = place(name, query[name], runs)
            except InvalidValueError as error:
                problems.append(error)
    try:
        found["first"] = _first(query.get("first", ""), runs)
    except InvalidValueError as error:
        problems.append(error)
    return Asked(runs=tuple(runs), problems=tuple(problems), **found)


def place(name: str, text: str, runs: Sequence[int]) -> Place:
    """The step that a text such as "12.7" names.

    Raises:
        InvalidValueError: it names none, or one of a run that is not among these.
    """
    run, dot, step = text.strip().partition(".")
    if not (dot and _is_number(run) and _is_number(step) and int(step)):
        raise InvalidValueError(
            name, as_typed(text), f"is no step; write run and step with a dot, as in {runs[0]}.1"
        )
    if int(run) not in runs:
        raise InvalidValueError(
            name, as_typed(text), f"is of a run that is not shown; these are {', '.join(map(str, runs))}"
        )
    return Place(int(run), int(step))


def _first(text: str, runs: Sequence[int]) -> tuple[int, ...]:
    if not text:
        return ()
    parts = text.split(",")
    found = tuple(int(part) for part in parts if _is_number(part))
    if not len(parts) == len(found) == len(set(found)) == 2 or not set(found) <= set(runs):
        raise InvalidValueError(
            "first",
            as_typed(text),
            f"are not two of the runs shown; choose two of {', '.join(map(str, runs))}",
        )
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
