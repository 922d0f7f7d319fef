"""What the labelling page shows beside the steps: the label in the making, ready to be shown."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.utils import timezone

from lab.engine.labels.label import ErrorEvent, Label, Owner, Phase, Severity
from lab.engine.labels.taxonomy import Code
from lab.models import Annotation, HiddenTaskPart, Role, Run, Verification
from lab.render.numbers import clock
from lab.services import claims, evidence, known_facts, label_rows, labels, queues
from lab.services.access import holds
from lab.services.claims import Held
from lab.services.facts import facts_of
from lab.services.gradings import Badge, Verdict, verdict_of
from lab.services.known_facts import Known
from lab.services.label_visibility import hidden_runs
from lab.services.run_pages import badge_of, patch_event
from lab.services.taxonomies import content_of

OWNERS: dict[Owner, str] = {
    Owner.AGENT: "agent",
    Owner.TASK_DEFECT: "task defect",
    Owner.ENVIRONMENT: "environment",
    Owner.HARNESS_LIMIT: "harness limit",
    Owner.GRADER: "grader",
    Owner.INCONCLUSIVE: "inconclusive",
}
PHASES: dict[Phase, str] = {phase: phase.value for phase in Phase}


class Quote(NamedTuple):
    """A quote of an event. `place`: where it stands, in words; `holds`: the log still says it there."""

    text: str
    place: str
    holds: bool


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """An error event with the words of its code; `open`: it is the one being edited."""

    event: ErrorEvent
    code: Code | None
    quotes: list[Quote]
    root: bool
    open: bool

    @property
    def name(self) -> str:
        return self.code.name if self.code else self.event.native_category or self.event.category


@dataclass(frozen=True, slots=True)
class Page:
    """A label as its page shows it. `earlier`: how often undo goes back."""

    annotation: Annotation
    label: Label
    events: list[ShownEvent]
    codes: list[Code]
    known: list[Known]
    held: Held
    place: tuple[int, int] | None
    worked: str
    saved_at: dt.datetime | None
    may_undo: bool
    may_redo: bool

    @property
    def open_event(self) -> ShownEvent | None:
        return next((shown for shown in self.events if shown.open), None)

    @property
    def alternatives_words(self) -> str:
        """The steps that would do as well, as one types them."""
        steps = self.label.alternatives
        return ", ".join(f"{one.attempt}.{one.step}" if one.attempt > 1 else str(one.step) for one in steps)

    @property
    def marks(self) -> list[dict[str, Any]]:
        """What the script marks in steps and minimap."""
        return [
            {
                "key": shown.event.key,
                "step": shown.event.step,
                "attempt": shown.event.attempt,
                "seq": shown.event.seq,
                "root": shown.root,
                "quotes": [{"text": one.quote, "seq": one.seq} for one in shown.event.evidence if one.quote],
            }
            for shown in self.events
        ]


def page(annotation: Annotation, *, open_key: int | None = None) -> Page:
    """The label with everything its panel shows; the event `open_key`, else the newest, is open."""
    label = label_rows.read(annotation)
    content = content_of(annotation.guideline.taxonomy_version)
    used = {event.category for event in label.events}
    keys = [event.key for event in label.events]
    opened = open_key if open_key in keys or open_key == 0 else (keys[-1] if keys else None)
    root = label.root_cause.event if label.root_cause else None
    below = foot(annotation)
    return Page(
        annotation=annotation,
        label=label,
        events=[
            ShownEvent(
                event=event,
                code=content.code(event.category),
                quotes=_quotes(annotation.run_id, event),
                root=event.key == root,
                open=event.key == opened,
            )
            for event in label.events
        ],
        codes=[code for code in content.codes if not code.retired or code.id in used],
        known=known_facts.of(annotation.run),
        held=below.held,
        place=queues.place_of(annotation),
        worked=below.worked,
        saved_at=below.saved_at,
        may_undo=bool(annotation.earlier),
        may_redo=bool(annotation.later),
    )


class Foot(NamedTuple):
    """The line below a draft: since when it is stored, how long it took, until when it is held."""

    saved_at: dt.datetime | None
    worked: str
    held: Held


def foot(annotation: Annotation) -> Foot:
    """What a sign of life changes of the page, without the rest of it."""
    saved_at = annotation.touched_at if annotation.revision else None
    return Foot(saved_at, clock(_worked(annotation)), claims.held(annotation))


def _worked(annotation: Annotation) -> float:
    if annotation.state == Annotation.State.DRAFT:
        return labels.worked_seconds(annotation, timezone.now())
    return annotation.lead_seconds or 0.0


def _quotes(run_id: int, event: ErrorEvent) -> list[Quote]:
    shown = []
    for one in event.evidence:
        if one.seq is None or one.part is None or one.start is None:
            shown.append(Quote(one.quote, "as the file quotes it", holds=True))
            continue
        words = one.part.rpartition(".")[2] if one.part != "reply.content" else "reply"
        kept = evidence.holds(run_id=run_id, evidence=one)
        shown.append(Quote(one.quote, f"{words}, characters {one.start} to {one.end}", holds=kept))
    return shown


@dataclass(frozen=True, slots=True)
class Head:
    """The run above a blind page: what it came to, and nothing of where it comes from."""

    run: Run
    badge: Badge
    verdict: Verdict | None
    has_patch: bool
    steps: int
    took: str
    gold: str


def head(person: User, annotation: Annotation) -> Head:
    """What the label's page says of its run. The gold patch is "" for whoever may not see it."""
    run = annotation.run
    facts = facts_of(run)
    verification = Verification.objects.filter(run=run).order_by("-n").first() if facts.verdict else None
    return Head(
        run=run,
        badge=badge_of(run),
        verdict=verdict_of(verification, facts) if verification else None,
        has_patch=patch_event(run) is not None and bool(facts.changed_files),
        steps=facts.steps,
        took=clock(facts.agent_seconds) if facts.agent_seconds is not None else "",
        gold=_gold(person, annotation),
    )


def _gold(person: User, annotation: Annotation) -> str:
    shows = annotation.item is not None and annotation.item.queue.show_hidden
    if not shows and not holds(person, Role.OPERATOR):
        return ""
    hidden = HiddenTaskPart.objects.filter(task_id=annotation.run.task_id).first()
    return hidden.gold_patch if hidden else ""


def parents_of(annotation: Annotation) -> list[Annotation]:
    """The labels that an adjudication settles, as they were submitted."""
    parents = annotation.parents.select_related(
        "annotator", "guideline__guideline", "guideline__taxonomy_version", "run"
    )
    return list(parents.prefetch_related("events").order_by("pk"))


def visible_annotations(person: User, run_id: int) -> tuple[list[Annotation], int]:
    """The submitted readings of a run that the person may see, and how many are hidden from them.

    Their own are always among them; one that was corrected is not.
    """
    rows = Annotation.objects.filter(run_id=run_id, state=Annotation.State.SUBMITTED)
    rows = rows.select_related("annotator", "guideline__guideline", "guideline__taxonomy_version", "run")
    found = label_rows.current(rows.prefetch_related("events").order_by("pk"))
    if not found or run_id not in hidden_runs(person, [run_id]):
        return found, 0
    own = [one for one in found if one.annotator.person_id == person.pk]
    return own, len(found) - len(own)


def severity_words() -> Mapping[Severity, str]:
    return {severity: severity.value for severity in Severity}
