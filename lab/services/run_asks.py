"""What people may ask of a run right now, what they have asked and waits, and the marks it has of them."""

from __future__ import annotations

from typing import NamedTuple

from lab.models import Control, Run, RunFacts
from lab.services import controls, limits

Kind = Control.Kind


class Actions(NamedTuple):
    """Which buttons the page of a run shows. `reopens`: it has ended and may yet be made to go on."""

    pause: bool = False
    resume: bool = False
    message: bool = False
    limit: bool = False
    cancel: bool = False
    cancelling: bool = False
    again: bool = False
    attempt: bool = False

    @property
    def reopens(self) -> bool:
        return self.attempt


class Asks(NamedTuple):
    """Buttons, and one sentence for each thing that was asked and has not come about yet."""

    actions: Actions
    waiting: list[str]


def asks_of(run: Run) -> Asks:
    """For a run as `find_run` reads it."""
    if run.status == Run.Status.ENDED:
        again = controls.may_run_again(run)
        return Asks(Actions(again=again, attempt=controls.may_have_another_attempt(run)), [])
    if controls.is_followed(run):
        return Asks(Actions(), [])
    if run.cancel_asked:
        return Asks(Actions(cancel=True, cancelling=True), [])
    if controls.agent_has_ended(run):
        return Asks(Actions(cancel=True), [])
    paused = controls.standing_pause(run) is not None or run.status == Run.Status.PAUSED
    actions = Actions(pause=not paused, resume=paused, message=True, limit=True, cancel=True)
    return Asks(actions, _waiting(run))


def _waiting(run: Run) -> list[str]:
    newest = Control.objects.filter(run=run).select_related("asked_by").last()
    if newest is None:
        return []
    sentences = []
    pause = controls.standing_pause(run)
    if pause is not None and run.status != Run.Status.PAUSED:
        sentences.append(f"{_name(pause)} asked to pause: it stops after the current event")
    if run.status == Run.Status.PAUSED and pause is None and newest.kind == Kind.RESUME:
        sentences.append(f"{_name(newest)} asked to go on")
    return sentences + [_sentence(control) for control in controls.waiting(run)]


def _sentence(control: Control) -> str:
    if control.kind == Kind.MESSAGE:
        return f"A message of {_name(control)} waits for the next model call"
    value = control.value
    words = limits.said(value["limit"], value.get("after"))
    return f"{_name(control)} asked for {words}: it holds from the agent's next event on"


def _name(control: Control) -> str:
    return control.asked_by.get_username()


def marks_of(run: Run, facts: RunFacts) -> list[str]:
    """What sets a run apart, in words: a recording to look at, people stepped in, calls were not parsed.

    The last is known of runs that were read by `for_rows`.

    Rates leave a run out that people changed something about, and count it beside.
    """
    marks = {
        "demo": run.experiment.demo,
        "limits changed": facts.limits_changed,
        "got a message": facts.got_message,
        "parser problem?": getattr(run, "looks_like_a_parser_problem", False),
    }
    return [mark for mark, holds in marks.items() if holds]
