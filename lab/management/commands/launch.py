"""Launches an experiment from a YAML file, and follows it to its end."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from lab.engine.llm.base import JSONObject
from lab.models import Experiment, Role
from lab.services import experiment_plans, overview
from lab.services.errors import AccessDeniedError, FieldErrors
from lab.services.lab import workers_alive
from lab.services.plan_files import LARGEST_PLAN

STOPPED, CANCELLED, LEFT = 2, 3, 130
_LOOK_SECONDS, _TELL_SECONDS = 0.5, 5.0


class Standing(NamedTuple):
    """How far the experiment is; `code` is None while it goes on."""

    sentence: str
    code: int | None
    ended: int
    total: int
    resolved: int
    graded: int


class Command(BaseCommand):
    help = (
        "Launch an experiment from a YAML file, such as the page New experiment writes. "
        "With --wait it exits with 0 when every run has ended, with 2 when a budget or a person paused the "
        "experiment, with 3 when it was cancelled."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="a YAML file, or - for standard input")
        parser.add_argument("--wait", action="store_true", help="follow it until every run has ended")
        parser.add_argument(
            "--json", action="store_true", help="print what came of it as JSON, and nothing else"
        )
        parser.add_argument(
            "--despite",
            type=int,
            nargs="+",
            default=[],
            metavar="N",
            help="numbers of failing preflights to go on in spite of",
        )
        parser.add_argument(
            "--person", default="", metavar="NAME", help="who launches it (default: an admin)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self._quiet = options["json"]
        text = _text(options["file"])
        try:
            plan = experiment_plans.read(text)
            experiment = experiment_plans.launch(
                by=_person(options["person"]), plan=plan, despite=options["despite"]
            )
        except FieldErrors as error:
            raise CommandError("Nothing was launched.\n" + "\n".join(error.errors.values())) from error
        except AccessDeniedError as error:
            raise CommandError(f"--person: {error}; name an operator or an admin") from error
        runs = experiment.runs.count()
        page = reverse("experiment", args=[experiment.pk])
        self._say(f"Experiment {experiment.pk}: {runs:,} run{'' if runs == 1 else 's'} queued, at {page}")
        standing = self._follow(experiment) if options["wait"] else _standing(experiment)
        if options["json"]:
            facts = _facts(experiment, standing, page)
            self.stdout.write(json.dumps(facts, indent=2, ensure_ascii=False))
        if options["wait"] and standing.code:
            sys.exit(standing.code)

    def _say(self, line: str) -> None:
        if not self._quiet:
            self.stdout.write(line)
            self.stdout.flush()

    def _follow(self, experiment: Experiment) -> Standing:
        """Wait for the end; Ctrl-C leaves the experiment as it is."""
        told, at, warned = "", 0.0, False
        try:
            while True:
                standing = _standing(experiment)
                over = standing.code is not None
                if standing.sentence != told and (over or time.monotonic() - at > _TELL_SECONDS):
                    told, at = standing.sentence, time.monotonic()
                    self._say(told)
                if over:
                    return standing
                if not warned and not workers_alive():
                    warned = True
                    self.stderr.write("Runs wait: no worker takes them; start the lab with `manage.py up`.")
                time.sleep(_LOOK_SECONDS)
        except KeyboardInterrupt:
            self.stderr.write(f"Experiment {experiment.pk} goes on; nothing was cancelled.")
            sys.exit(LEFT)


def _standing(experiment: Experiment) -> Standing:
    experiment.refresh_from_db(fields=["state", "paused_because", "paused_by_budget"])
    counts = overview.experiment_counts(experiment.pk)
    rate = counts.rate
    graded = f"{rate.resolved:,} of {rate.graded:,} graded resolved"
    so_far = f"{counts.ended:,} of {counts.total:,} runs have ended, {graded}"
    code: int | None = None
    if experiment.state == Experiment.State.CANCELLED:
        code, sentence = CANCELLED, f"The experiment was cancelled: {so_far}."
    elif counts.ended == counts.total:
        code, sentence = 0, f"Every run has ended: {so_far}."
    elif experiment.state == Experiment.State.PAUSED:
        why = experiment.paused_because or "nobody wrote down why"
        code, sentence = STOPPED, f"The experiment is paused ({why}): {so_far}."
    else:
        sentence = f"{so_far}."
    return Standing(sentence, code, counts.ended, counts.total, rate.resolved, rate.graded)


def _facts(experiment: Experiment, standing: Standing, page: str) -> JSONObject:
    return {
        "experiment": experiment.pk,
        "name": experiment.name,
        "page": page,
        "state": experiment.state,
        "paused_because": experiment.paused_because,
        "paused_by_budget": experiment.paused_by_budget,
        "runs": standing.total,
        "ended": standing.ended,
        "graded": standing.graded,
        "resolved": standing.resolved,
        "said": standing.sentence,
    }


def _text(file: str) -> str:
    """The text of the file, or of standard input."""
    try:
        data = sys.stdin.buffer.read(LARGEST_PLAN + 1) if file == "-" else Path(file).read_bytes()
        return data.decode()
    except OSError as error:
        reason = f"{file!r} cannot be read ({error.strerror}); name a YAML file, or - for standard input"
        raise CommandError(f"FILE: {reason}") from None
    except UnicodeDecodeError:
        raise CommandError(f"FILE: {file!r} is no text in UTF-8; name a YAML file") from None


def _person(name: str) -> User:
    people = User.objects.filter(is_active=True, membership__isnull=False).order_by("pk")
    found = people.filter(username=name) if name else people.filter(membership__role=Role.ADMIN)
    person = found.first()
    if person is None:
        known = ", ".join(people.values_list("username", flat=True)[:8]) or "nobody; run `manage.py up` first"
        raise CommandError(f"--person: {name or 'an admin'!r} is not here; choose one of {known}")
    return person
