"""A judge at work: reads a run piece by piece, asks once more where an answer is nonsense, keeps the end.

What was read is stored after each piece, so that another worker goes on where this one was killed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.utils import timezone

from lab.engine.errors import AttemptStoppedError, EndpointError, ExitReason, InvalidValueError
from lab.engine.judge import answers, chunks, reading
from lab.engine.judge.answers import UnusableAnswerError
from lab.engine.judge.chunks import Chunk
from lab.engine.judge.rubric import LABEL, Rubric
from lab.engine.labels.label import Evidence
from lab.engine.llm.base import JSONObject
from lab.engine.llm.failures import ContextOverflowError
from lab.engine.stop import StopSignal
from lab.models import Annotation, GuidelineVersion, JudgeRun
from lab.services import evidence, judged_texts, judging, known_facts, label_rows, taxonomies
from lab.services.annotators import judge_annotator
from lab.services.judge_calls import Calls, LostLeaseError
from lab.services.known_secrets import redactor

LOOK_SECONDS = 0.5
# Where nobody has said how much context a model has.
ASSUMED_WINDOW = 16_384
MOST_ANSWER = 4_096
# A server counts tokens otherwise than the lab guesses them: pieces get smaller so often.
_SMALLER_TRIES = 3
_SMALLER = 0.6
UNUSABLE = "unusable answer"

_log = logging.getLogger(__name__)
Tell = Callable[[str], None]


def conduct(*, reading: JudgeRun, stop: StopSignal | None = None, tell: Tell = lambda line: None) -> JudgeRun:
    """Read the run of a reading that this process holds, and store what came of it; returns the row anew.

    `stop` breaks off, `tell` hears of each piece. Whatever goes wrong is the row's `problem`.
    """
    with _Work(reading, stop or StopSignal(), tell) as work:
        work.read()
    return JudgeRun.objects.select_related("model", "run", "guideline").get(pk=reading.pk)


class _TooSmallError(Exception):
    """The model's context holds no useful piece."""


class _Work:
    """One reading, with a thread that keeps its lease and looks for a cancel."""

    def __init__(self, row: JudgeRun, stop: StopSignal, tell: Tell) -> None:
        self._row, self._stop, self._tell = row, stop, tell
        self._rubric = Rubric.model_validate(row.rubric)
        self._redactor = redactor()
        self._report: JSONObject = dict(row.report)
        self._lost = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"judge-{row.pk}", daemon=True)

    def __enter__(self) -> _Work:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def read(self) -> None:
        try:
            calls = Calls(self._row, stop=self._stop, redactor=self._redactor)
            try:
                self._read_with(calls)
            finally:
                calls.close()
        except AttemptStoppedError as stopped:
            self._stopped(stopped.reason)
        except LostLeaseError as error:
            _log.info("%s", error)
        except (ContextOverflowError, EndpointError, InvalidValueError, _TooSmallError) as error:
            self._fail(str(error))
        except UnusableAnswerError as error:
            self._fail(f"{UNUSABLE}: {error}")
        except DatabaseError as error:
            # Left to the tick: it takes back what nobody keeps.
            _log.warning("reading %s cannot be stored (%s)", self._row.pk, error)
        except Exception as error:
            _log.exception("reading %s broke off", self._row.pk)
            self._fail(f"the lab made a mistake ({type(error).__name__}); its log says more")

    def _read_with(self, calls: Calls) -> None:
        run = self._row.run
        attempt = judged_texts.newest_attempt(run)
        steps = judged_texts.steps_of(run, attempt=attempt, redactor=self._redactor)
        if not steps:
            raise InvalidValueError("runs", run.pk, "has no step that could be read")
        window = calls.config.context_window or ASSUMED_WINDOW
        most = min(calls.config.max_tokens_per_turn or MOST_ANSWER, MOST_ANSWER, window // 4)
        about = judged_texts.about(
            run, attempt=attempt, redactor=self._redactor, most=min(6_000, window * 3 // 8)
        )
        empty = reading.piece_messages(self._rubric, about=about, chunk=Chunk(1, 1, 1, ""), of=1)
        prompt = sum(len(message["content"]) for message in empty)
        room = chunks.room_of(window=window, answer=most, prompt_characters=prompt)
        room = min(room, self._report.get("room", room))
        self._report |= {
            "attempt": attempt,
            "steps": len(steps),
            "window": window,
            "window_known": calls.config.context_window is not None,
        }
        for smaller in range(_SMALLER_TRIES + 1):
            try:
                self._pieces(calls, steps, room, about, most)
                break
            except ContextOverflowError as error:
                if smaller == _SMALLER_TRIES:
                    raise _TooSmallError(
                        f"pieces of {room} characters are too long still: {error}"
                    ) from error
                room = int(room * _SMALLER)
                self._tell(f"the pieces are too long for the model; they get smaller ({room} characters)")
        self._finish(calls, about, room, most)

    def _pieces(self, calls: Calls, steps: list[chunks.StepText], room: int, about: str, most: int) -> None:
        if room < chunks.SMALLEST_ROOM:
            raise _TooSmallError(
                f"model: its context of {self._report['window']} tokens leaves {max(room, 0)} characters for "
                f"a piece of the run, and {chunks.SMALLEST_ROOM} are the least; choose one with more context"
            )
        split = chunks.split(steps, room=room)
        if self._report.get("room") != room:
            self._report |= {"room": room, "pieces": [], "refused": []}
        self._report["of"] = len(split)
        done = {piece["n"] for piece in self._report["pieces"]}
        for chunk in split:
            if chunk.n in done:
                continue
            messages = reading.piece_messages(self._rubric, about=about, chunk=chunk, of=len(split))
            piece: JSONObject = {"n": chunk.n, "first": chunk.first, "last": chunk.last}
            try:
                schema = self._rubric.piece_schema()
                piece["answer"] = self._answer(calls, chunk.n, messages, schema, most)
                self._tell(f"piece {chunk.n} of {len(split)}, steps {chunk.first} to {chunk.last}: read")
            except UnusableAnswerError as error:
                piece["problem"] = f"{UNUSABLE}: {error}"
                self._tell(f"piece {chunk.n} of {len(split)}: {piece['problem']}")
            self._report["pieces"].append(piece)
            self._keep_report(calls)

    def _answer(
        self, calls: Calls, chunk: int, messages: list[JSONObject], schema: JSONObject, most: int
    ) -> JSONObject:
        """The answer, asked for twice at most.

        Raises:
            UnusableAnswerError: neither has the form.
        """
        collected = self._rubric.collected if chunk else ""
        asked = messages
        for last in (False, True):
            answered = calls.ask(chunk=chunk, messages=asked, schema=schema, most=most)
            try:
                return answers.parsed(answered.text, schema=schema, collected=collected, cut=answered.cut)
            except UnusableAnswerError as error:
                calls.note_problem(answered.n, f"{UNUSABLE}: {error}")
                if last:
                    raise
                asked = reading.asked_again(messages, answered.text, str(error))
        raise AssertionError("the loop returns or raises")

    def _finish(self, calls: Calls, about: str, room: int, most: int) -> None:
        pieces = [
            (Chunk(piece["n"], piece["first"], piece["last"], ""), piece["answer"])
            for piece in self._report["pieces"]
            if "answer" in piece
        ]
        if not pieces:
            problems = {piece["problem"] for piece in self._report["pieces"]}
            raise UnusableAnswerError("; ".join(sorted(problems)).removeprefix(f"{UNUSABLE}: "))
        gathered = reading.gather(self._rubric, pieces=pieces, find_quote=self._find_quote)
        notes = [answer.get("notes", "") for _, answer in pieces]
        asked = [
            {name: value for name, value in thing.items() if name != "evidence"} for thing in gathered.things
        ]
        messages = reading.final_messages(self._rubric, about=about, things=asked, notes=notes, room=room)
        final = self._answer(calls, 0, messages, self._rubric.final_schema(), most)
        refused = list(gathered.refused)
        result = dict(final)
        if self._rubric.collected:
            result[self._rubric.collected] = gathered.things
        label = None
        if self._row.guideline is not None and self._rubric.name == LABEL:
            label = self._label(self._row.guideline, gathered.things, final, refused)
        self._report |= {"refused": refused, "structured": calls.structured}
        self._store(result, label)

    def _label(
        self, guideline: GuidelineVersion, things: list[JSONObject], final: JSONObject, refused: list[str]
    ) -> Any:
        version = guideline.taxonomy_version
        return reading.as_label(
            things=things,
            final=final,
            attempt=self._report["attempt"],
            find_code=lambda words: taxonomies.find_code(version, words),
            refused=refused,
        )

    def _find_quote(self, step: int, quote: str) -> Evidence:
        return evidence.find(run_id=self._row.run_id, attempt=self._report["attempt"], step=step, quote=quote)

    def _keep_report(self, calls: Calls) -> None:
        self._report["structured"] = calls.structured
        clean = self._redactor.json(self._report)
        if not judging.held_by(self._row).update(report=clean, lease_until=judging.lease_end()):
            raise LostLeaseError(f"reading {self._row.pk} is read by another worker, or has ended")

    @transaction.atomic
    def _store(self, result: JSONObject, label: Any) -> None:
        held = judging.held_by(self._row).select_for_update().first()
        if held is None:
            raise LostLeaseError(f"reading {self._row.pk} was ended meanwhile")
        if held.cancel_asked:
            raise AttemptStoppedError(ExitReason.CANCELLED)
        annotation = self._judgement(label) if label is not None else None
        judging.held_by(self._row).update(
            state=JudgeRun.State.ENDED,
            result=self._redactor.json(result),
            report=self._redactor.json(self._report),
            annotation=annotation,
            ended_at=timezone.now(),
        )

    def _judgement(self, label: Any) -> Annotation:
        """The label as a record of its own; the same model's last one of this run does not count any more."""
        annotator = judge_annotator(self._row.model)
        mine = Annotation.objects.filter(
            run=self._row.run,
            guideline=self._row.guideline,
            annotator=annotator,
            kind=Annotation.Kind.JUDGEMENT,
            state=Annotation.State.SUBMITTED,
            replaced_by=None,
        )
        annotation = Annotation(
            run=self._row.run,
            guideline=self._row.guideline,
            annotator=annotator,
            kind=Annotation.Kind.JUDGEMENT,
            replaces=mine.order_by("-pk").first(),
            known=known_facts.as_json(self._row.run),
            started_at=self._row.asked_at,
        )
        label_rows.write(annotation, label)
        return annotation

    def _fail(self, problem: str) -> None:
        judging.held_by(self._row).update(
            state=JudgeRun.State.FAILED,
            problem=self._redactor.text(problem),
            report=self._redactor.json(self._report),
            ended_at=timezone.now(),
        )

    def _stopped(self, reason: ExitReason) -> None:
        if self._lost:
            return
        if reason == ExitReason.CANCELLED:
            judging.held_by(self._row).filter(problem="").update(problem="it was cancelled before its end")
            judging.held_by(self._row).update(state=JudgeRun.State.CANCELLED, ended_at=timezone.now())
        else:
            judging.hand_back(self._row)

    def _keep(self) -> None:
        renew_every = settings.LAB_LEASE_SECONDS / 5
        waited = 0.0
        try:
            while not self._done.wait(LOOK_SECONDS):
                waited += LOOK_SECONDS
                try:
                    self._look(renew=waited >= renew_every)
                except DatabaseError as error:
                    connections.close_all()
                    _log.warning("reading %s: its lease cannot be kept yet (%s)", self._row.pk, error)
                    continue
                if waited >= renew_every:
                    waited = 0.0
        finally:
            connections.close_all()

    def _look(self, *, renew: bool) -> None:
        held = judging.held_by(self._row)
        if renew:
            held.update(lease_until=judging.lease_end())
        asked = held.values_list("cancel_asked", flat=True).first()
        if asked is None:
            self._lost = not self._done.is_set()
            self._stop.set(ExitReason.INFRASTRUCTURE_ERROR)
        elif asked:
            self._stop.set(ExitReason.CANCELLED)
