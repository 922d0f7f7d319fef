"""Lets a model read runs, here and now."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import ExitReason, InvalidValueError
from lab.engine.judge import rubric as rubrics
from lab.engine.judge.rubric import Rubric
from lab.engine.llm.base import JSONObject
from lab.engine.stop import StopSignal
from lab.models import GuidelineVersion, JudgeRun, Model, Role
from lab.render.text import visible_text
from lab.services import guidelines, judge_work, judging
from lab.services.errors import FieldErrors
from lab.services.judge_costs import words_of

NOT_ALL = 2


class Command(BaseCommand):
    help = (
        "Let a model read runs by a guideline's questions or by a rubric of a YAML file (name, version, "
        "instructions, fields as JSON schemas, collected). Exits with 0, with 2 when a run could not be read."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="its name in the lab")
        parser.add_argument("runs", nargs="+", type=int, help="numbers of runs that have ended")
        parser.add_argument("--guideline", default="", metavar="NAME", help="default: the lab's own")
        parser.add_argument("--rubric", default="", metavar="FILE", help="other questions than a guideline's")
        parser.add_argument("--person", default="", metavar="NAME", help="who asks (default: an admin)")
        parser.add_argument("--json", action="store_true", help="print what was answered as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        stop = StopSignal()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set(ExitReason.CANCELLED))
        try:
            asked = judging.ask(
                by=_person(options["person"]),
                model=_model(options["model"]),
                run_ids=options["runs"],
                guideline=None if options["rubric"] else _guideline(options["guideline"]),
                rubric=_rubric(options["rubric"]),
                ring=False,
            )
        except (FieldErrors, InvalidValueError) as error:
            raise CommandError(str(error), returncode=NOT_ALL) from error
        ended = [self._read(row, stop, quiet=options["json"]) for row in asked]
        if options["json"]:
            self.stdout.write(json.dumps([_as_json(row) for row in ended], indent=2, ensure_ascii=False))
        if any(row.state != JudgeRun.State.ENDED for row in ended):
            sys.exit(NOT_ALL)

    def _read(self, row: JudgeRun, stop: StopSignal, *, quiet: bool) -> JudgeRun:
        def tell(line: str) -> None:
            if not quiet:
                self.stdout.write(f"run {row.run_id}: {visible_text(line)}")
                self.stdout.flush()

        claimed = judging.claim_next(only=row.pk)
        if claimed is None:
            row.refresh_from_db()
            tell(f"reading {row.pk} is {row.state} elsewhere")
            return row
        ended = judge_work.conduct(reading=claimed, stop=stop, tell=tell)
        tell(
            f"{ended.get_state_display()}, {words_of([ended])}"
            + (f": {ended.problem}" if ended.problem else "")
        )
        for line in ended.report.get("refused", ()):
            tell(f"refused: {line}")
        if ended.state == JudgeRun.State.ENDED and not quiet:
            self.stdout.write(visible_text(json.dumps(ended.result, indent=2, ensure_ascii=False)))
        return ended


def _model(name: str) -> Model:
    model = Model.objects.in_use().filter(name=name).first()
    if model is None:
        known = ", ".join(
            Model.objects.in_use().filter(endpoint__scripted=False).values_list("name", flat=True)
        )
        way_out = f"choose one of {known}" if known else "connect one on the page Endpoints first"
        raise CommandError(f"model: {name!r} is not known; {way_out}", returncode=NOT_ALL)
    return model


def _guideline(name: str) -> GuidelineVersion:
    if not name:
        return guidelines.default()
    found = {row.guideline.name: row for row in guidelines.all_newest()}
    if name not in found:
        raise CommandError(f"--guideline: {name!r} is none of {', '.join(found)}", returncode=NOT_ALL)
    return found[name]


def _rubric(file: str) -> Rubric | None:
    if not file:
        return None
    try:
        return rubrics.from_yaml(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"--rubric: {file!r} cannot be read ({error}); name a YAML file", returncode=NOT_ALL
        ) from None


def _person(name: str) -> User:
    people = User.objects.filter(is_active=True, membership__isnull=False).order_by("pk")
    found = people.filter(username=name) if name else people.filter(membership__role=Role.ADMIN)
    person = found.first()
    if person is None:
        known = ", ".join(people.values_list("username", flat=True)[:8]) or "nobody; run `manage.py up` first"
        raise CommandError(f"--person: {name or 'an admin'!r} is not here; choose one of {known}")
    return person


def _as_json(row: JudgeRun) -> JSONObject:
    return {
        "reading": row.pk,
        "run": row.run_id,
        "state": row.state,
        "problem": row.problem,
        "result": row.result,
        "refused": row.report.get("refused", []),
        "cost": words_of([row]),
    }
