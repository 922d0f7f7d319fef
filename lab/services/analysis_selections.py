"""Which runs an analysis is of, as a link says it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from lab.analysis.counting import Switches
from lab.engine.errors import InvalidValueError
from lab.services.errors import FieldErrorCollector

Origin = Literal["launched", "imported", "demo"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)
_ARM_KEY = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}\.[0-9a-f]{0,12}")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """What a link to an analysis says. Empty parts ask for everything.

    `arms` are keys (see `Observation.arm`), `tasks` slugs or keys, `pair` two arms' keys in order. Without
    `origins` demo runs are left out, unless their experiment is named. `costs` are what the lab reckons by
    its prices, or what providers reported with each answer. Use `dataclasses.replace` for the same selection
    with something else.
    """

    experiments: tuple[int, ...] = ()
    arms: tuple[str, ...] = ()
    task_sets: tuple[int, ...] = ()
    tasks: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    invalid: Literal["out", "failures"] = "out"
    flagged: Literal["in", "out"] = "in"
    stepped_in: Literal["out", "in"] = "out"
    pair: tuple[str, str] | None = None
    costs: Literal["priced", "reported"] = "priced"

    @property
    def switches(self) -> Switches:
        return Switches(self.invalid == "failures", self.flagged == "out", self.stepped_in == "in")

    @property
    def asks_for_runs(self) -> bool:
        """Whether it says which runs at all; switches and a pair do not."""
        return any((self.experiments, self.arms, self.task_sets, self.tasks)) or any(
            (self.repositories, self.seeds, self.origins)
        )

    @classmethod
    def from_query(cls, query: Mapping[str, Any]) -> Selection:
        """The selection that a link's parameters say; others than its own are nobody's business here.

        `query` maps names to lists of values, or is a `QueryDict`.

        Raises:
            FieldErrors: values that cannot be read, each under its parameter's name.
        """
        lists: Mapping[str, Sequence[str]] = dict(query.lists()) if hasattr(query, "lists") else query
        return _Reader(lists).selection()

    def query(self) -> str:
        """The parameters of a link to it, without what is the default: the inverse of `from_query`."""
        parts: list[tuple[str, str]] = []
        for name, field in _PARAMETERS.items():
            parts += [(name, str(value)) for value in getattr(self, field)]
        for name, (field, default) in _SWITCHES.items():
            value = getattr(self, field)
            parts += [(name, value)] if value != default else []
        return urlencode([*parts, *(("pair", key) for key in self.pair or ())])


_PARAMETERS = {
    "experiment": "experiments",
    "arm": "arms",
    "task_set": "task_sets",
    "task": "tasks",
    "repository": "repositories",
    "seed": "seeds",
    "origin": "origins",
}
_SWITCHES = {
    "invalid": ("invalid", "out"),
    "flagged": ("flagged", "in"),
    "stepped_in": ("stepped_in", "out"),
    "costs": ("costs", "priced"),
}


class _Reader:
    """Reads a link's parameters and gathers what is wrong with each."""

    def __init__(self, lists: Mapping[str, Sequence[str]]) -> None:
        self._lists = lists
        self._wrong = FieldErrorCollector()

    def selection(self) -> Selection:
        """Raises: FieldErrors."""
        found = Selection(
            experiments=self._numbers("experiment", "the number of an experiment"),
            arms=self._keys("arm"),
            task_sets=self._numbers("task_set", "the number of a task set"),
            tasks=self._texts("task"),
            repositories=self._texts("repository"),
            seeds=self._numbers("seed", "a seed, from 1"),
            origins=self._origins(),
            invalid="failures" if self._switch("invalid", ("out", "failures")) == "failures" else "out",
            flagged="out" if self._switch("flagged", ("in", "out")) == "out" else "in",
            stepped_in="in" if self._switch("stepped_in", ("out", "in")) == "in" else "out",
            pair=self._pair(),
            costs="reported" if self._switch("costs", ("priced", "reported")) == "reported" else "priced",
        )
        self._wrong.raise_if_any()
        return found

    def _texts(self, name: str) -> tuple[str, ...]:
        """Each value once. An empty one comes from a form's field that was left empty."""
        return tuple(dict.fromkeys(value for value in self._lists.get(name, ()) if value))

    def _refuse(self, name: str, value: str, reason: str) -> None:
        self._wrong.add(InvalidValueError(name, value, reason))

    def _numbers(self, name: str, what: str) -> tuple[int, ...]:
        numbers = []
        for value in self._texts(name):
            if _NUMBER.fullmatch(value) and int(value) > 0:
                numbers.append(int(value))
            else:
                self._refuse(name, value, f"is not {what}; write one in digits")
        return tuple(dict.fromkeys(numbers))

    def _keys(self, name: str) -> tuple[str, ...]:
        for value in self._texts(name):
            if not _ARM_KEY.fullmatch(value):
                reason = "is no arm's key; choose an arm on the analysis page and take its link"
                self._refuse(name, value, reason)
        return self._texts(name)

    def _origins(self) -> tuple[Origin, ...]:
        for value in self._texts("origin"):
            if value not in ORIGINS:
                self._refuse("origin", value, f"is none; use {', '.join(ORIGINS)}")
        asked = self._texts("origin")
        return tuple(sorted((one for one in ORIGINS if one in asked), key=asked.index))

    def _switch(self, name: str, allowed: tuple[str, str]) -> str:
        given = self._texts(name)
        if not given:
            return allowed[0]
        if len(given) > 1:
            self._refuse(name, " and ".join(given), f"is said twice; leave one of {' and '.join(allowed)}")
        elif given[0] not in allowed:
            self._refuse(name, given[0], f"is not understood; use {' or '.join(allowed)}")
        return given[0]

    def _pair(self) -> tuple[str, str] | None:
        keys = self._keys("pair")
        if not keys:
            return None
        if len(keys) != 2:
            reason = "is no pair; name two different arms, pair=… twice"
            self._refuse("pair", " and ".join(self._lists["pair"]), reason)
            return None
        return keys[0], keys[1]
