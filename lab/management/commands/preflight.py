"""Examines a model as its server answers it, here and now."""

from __future__ import annotations

import json
import signal
import sys
import textwrap
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import ExitReason
from lab.engine.key_shapes import masked
from lab.engine.llm.base import JSONObject
from lab.engine.stop import StopSignal
from lab.models import Model, Preflight
from lab.render.text import one_line, visible_text
from lab.services import preflight_shown, preflight_work, preflights
from lab.services.errors import FieldErrors
from lab.services.processes import is_dead, process_identity

FAILING, NOT_FINISHED = 1, 2
_WIDTH = 100


class Command(BaseCommand):
    help = (
        "Examine a model as its server answers it, and say what is wrong and what mends it. Exits with 0, "
        "with 1 when runs would be worthless, with 2 when it could not be finished."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="its name in the lab")
        parser.add_argument(
            "--over-limit",
            action="store_true",
            help="also send one token more than fits, which costs a whole context of input",
        )
        parser.add_argument(
            "--timeout",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="for each request (default: the endpoint's, at most 300)",
        )
        parser.add_argument("--json", action="store_true", help="print what was found as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        self._quiet = options["json"]
        preflight = _begun(options["model"], over_limit=options["over_limit"])
        if options["over_limit"]:
            self._say(preflight_shown.over_limit_words(preflights.over_limit_cost(preflight.model)))
        stop = StopSignal()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set(ExitReason.CANCELLED))
        ended = preflight_work.conduct(
            preflight=preflight, stop=stop, seconds=max(0.0, options["timeout"]), on_probe=self._tell
        )
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(ended), indent=2, ensure_ascii=False))
        else:
            self._report(ended)
        if ended.error:
            sys.exit(NOT_FINISHED)
        if ended.outcome == Preflight.Outcome.FAILING:
            sys.exit(FAILING)

    def _say(self, line: str) -> None:
        if not self._quiet:
            self.stdout.write(line)
            self.stdout.flush()

    def _tell(self, shown: JSONObject) -> None:
        if shown["state"] == "running":
            return
        seconds = f" ({shown['seconds']:.1f} s)" if "seconds" in shown else ""
        said = one_line(visible_text(masked(shown["said"])), 90)
        self._say(f"{preflight_shown.STATE_WORDS[shown['state']]:<9} {shown['title']}{seconds}: {said}")

    def _report(self, preflight: Preflight) -> None:
        if preflight.error:
            self.stderr.write(f"Not finished: {preflight.error}")
            return
        shown = preflight_shown.shown(preflight)
        self.stdout.write("")
        for finding in shown.findings:
            self.stdout.write(f"{finding.word.upper()}: {finding.title}")
            for label, text in (("seen", finding.detail), ("effect", finding.effect)):
                self._paragraph(label, text)
            for evidence in finding.evidence:
                self._paragraph(f"in “{evidence.title}”", one_line(evidence.excerpt, 300))
            for mend in finding.mends:
                self._paragraph(mend.server, mend.text)
        for figure in shown.measured:
            self.stdout.write(f"{figure.label}: {figure.text}")
        self.stdout.write(f"\n{preflight.model.name}: {shown.outcome.word}. {shown.sentence}")

    def _paragraph(self, label: str, text: str) -> None:
        if text:
            body = textwrap.fill(visible_text(text), _WIDTH - 4)
            self.stdout.write(f"  {label}:\n{textwrap.indent(body, '    ')}")


def _begun(name: str, *, over_limit: bool) -> Preflight:
    model = Model.objects.in_use().filter(name=name).first()
    if model is None:
        known = ", ".join(
            Model.objects.in_use().filter(endpoint__scripted=False).values_list("name", flat=True)
        )
        way_out = f"choose one of {known}" if known else "connect one on the page Endpoints first"
        raise CommandError(f"model: {name!r} is not known; {way_out}", returncode=NOT_FINISHED)
    # The tick does this while the lab is up.
    preflights.settle_abandoned(is_dead=is_dead)
    try:
        return preflights.begin(model=model, worker=process_identity(), over_limit=over_limit)
    except FieldErrors as error:
        raise CommandError(str(error), returncode=NOT_FINISHED) from error


def _as_json(preflight: Preflight) -> JSONObject:
    return {
        "preflight": preflight.pk,
        "model": preflight.model.name,
        "outcome": preflight.outcome or None,
        "error": preflight.error,
        "findings": masked(preflight.findings),
        "measured": masked(preflight.measured),
        "probes": masked(preflight.probes),
    }
