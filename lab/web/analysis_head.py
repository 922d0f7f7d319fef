"""What stands above an analysis: of which runs it is, in words, and the switches."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from django.urls import reverse

from lab.analysis import counting
from lab.models import Experiment
from lab.render import numbers
from lab.services.analysis import Observed, Selection
from lab.web.analysis_parts import Shown

# So many experiments are named; of more their number alone is.
MOST_NAMED = 6


class Part(NamedTuple):
    """Some of the runs: how many, in words, and where they are. `state` and `icon` where they stand apart."""

    words: str
    url: str
    state: str = ""
    icon: str = ""


class Choice(NamedTuple):
    """One position of a switch."""

    word: str
    url: str
    chosen: bool


class Switch(NamedTuple):
    """A question with two answers, each an address."""

    key: str
    label: str
    choices: tuple[Choice, Choice]


class Head(NamedTuple):
    """The head of the page. `experiments`: names and addresses."""

    words: str
    experiments: list[tuple[str, str]]
    runs: str
    parts: list[Part]
    switches: list[Switch]


def head(observed: Observed) -> Head:
    shown = Shown(observed)
    seeds = len({run.seed for run in observed.observations})
    words = " × ".join(
        f"{number:,} {word}{'' if number == 1 else 's'}"
        for number, word in ((len(observed.arms), "arm"), (len(observed.tasks), "task"), (seeds, "seed"))
    )
    chosen = observed.selection.experiments
    if len(chosen) > MOST_NAMED:
        words += f" from {len(chosen):,} experiments"
    return Head(
        words,
        _experiments(chosen) if len(chosen) <= MOST_NAMED else [],
        numbers.plural(len(observed.observations), "run"),
        _parts(shown),
        _switches(shown),
    )


def _experiments(chosen: tuple[int, ...]) -> list[tuple[str, str]]:
    names = Experiment.objects.filter(pk__in=chosen).order_by("pk").values_list("pk", "name")
    return [(name or f"experiment {number}", reverse("experiment", args=[number])) for number, name in names]


def _parts(shown: Shown) -> list[Part]:
    """The denominators: what counts, and what stands apart from it."""
    found = counting.tally(shown.observed.observations, shown.selection.switches)
    valid = dataclasses.replace(shown.selection, invalid="out")
    parts = [Part(f"{found.valid:,} valid", address_of(valid, "counted"))]
    counts_as = "counted as failures" if shown.selection.invalid == "failures" else "shown apart"
    apart = (
        (found.invalid, f"invalid, {counts_as}", "invalid", "invalid", "bolt"),
        (found.not_graded, "not graded", "not_graded", "queued", "queued"),
        (found.cancelled, "cancelled", "cancelled", "cancelled", "cancelled"),
        (found.open, "open, so all of this is preliminary", "open", "running", "running"),
        (found.flagged, "flagged", "flagged", "flagged", "flag"),
        (found.stepped_in, f"stepped into, {_stepped(shown.selection)}", "stepped_in", "paused", "warning"),
    )
    parts += [
        Part(f"{number:,} {words}", shown.behind(outcome=outcome), state, icon)
        for number, words, outcome, state, icon in apart
        if number
    ]
    return parts


def _stepped(selection: Selection) -> str:
    return "counted" if selection.stepped_in == "in" else "left out"


def address_of(selection: Selection, outcome: str) -> str:
    query = dataclasses.replace(selection, pair=None).query()
    return f"{reverse('analysis_runs')}?{query}{'&' if query else ''}outcome={outcome}"


def _switches(shown: Shown) -> list[Switch]:
    selection = shown.selection
    found = [
        Switch(
            "invalid",
            "Invalid runs",
            (
                Choice("left out", shown.page(invalid="out"), selection.invalid == "out"),
                Choice("count as failures", shown.page(invalid="failures"), selection.invalid == "failures"),
            ),
        ),
        Switch(
            "flagged",
            "Flagged runs",
            (
                Choice("in", shown.page(flagged="in"), selection.flagged == "in"),
                Choice("out", shown.page(flagged="out"), selection.flagged == "out"),
            ),
        ),
    ]
    if any(run.stepped_in for run in shown.observed.observations):
        choices = (
            Choice("out", shown.page(stepped_in="out"), selection.stepped_in == "out"),
            Choice("in", shown.page(stepped_in="in"), selection.stepped_in == "in"),
        )
        found.append(Switch("stepped_in", "Stepped into", choices))
    return found
