"""Requests of a judge: each try is a row with its usage, price and cost as those of runs have."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from lab.engine.errors import EndpointError, LabError
from lab.engine.events import ModelCallFailed, ModelCallInterrupted, ModelCallStarted
from lab.engine.llm.base import Cost, JSONObject, ModelConfig, Usage
from lab.engine.llm.client import ModelClient
from lab.engine.llm.reading import no_draft
from lab.engine.redact import Redactor
from lab.engine.stop import StopSignal
from lab.models import JudgeCall, JudgeRun
from lab.services import blobs, endpoints, judging
from lab.services.facts import USAGE_PARTS

RETRY_SECONDS = 180.0
# What servers answer to a parameter they do not know.
_NO_SUCH_PARAMETER = {400, 404, 415, 422, 501}
_WORDS = ("response_format", "json_schema", "schema", "grammar", "guided", "structured", "unsupported")


class LostLeaseError(LabError):
    """Another worker reads on, or the reading was ended: this one writes nothing more."""


class Answered(NamedTuple):
    """The text of a reply, whether it ended at its limit, and the number of its call."""

    text: str
    cut: bool
    n: int


class Calls:
    """Asks the model of a reading. `structured` tells whether the server takes a schema; None: not known."""

    def __init__(self, reading: JudgeRun, *, stop: StopSignal, redactor: Redactor) -> None:
        self._reading = reading
        self._redactor = redactor
        endpoint = reading.model.endpoint
        self.config: ModelConfig = endpoints.model_config(reading.model)
        self._client = ModelClient(
            self.config,
            api_key=endpoints.key_for(endpoint),
            emit=self._hear,
            draft=no_draft,
            stop=stop,
            retry_seconds=RETRY_SECONDS,
            redact=redactor,
            key_variable=endpoint.key_variable,
        )
        self.structured: bool | None = reading.report.get("structured")
        self._n = JudgeCall.objects.filter(judge_run=reading).aggregate(n=Max("n"))["n"] or 0
        self._chunk = 0
        self._started = timezone.now()
        self._request = ""
        self._last_failure: ModelCallFailed | None = None

    def close(self) -> None:
        self._client.close()

    def ask(self, *, chunk: int, messages: list[JSONObject], schema: JSONObject, most: int) -> Answered:
        """One reply. `chunk` 0 is the request at the end, `most` the tokens of the answer.

        Raises:
            ContextOverflowError, EndpointError, AttemptStoppedError: as `ModelClient.ask`.
            LostLeaseError: the reading is not this worker's any more.
        """
        self._chunk = chunk
        if self.structured is not False:
            try:
                answered = self._once(messages, most, _response_format(schema))
            except EndpointError:
                if not self._refuses_schemas():
                    raise
                self.structured = False
            else:
                self.structured = True
                return answered
        return self._once(messages, most, {})

    def _refuses_schemas(self) -> bool:
        failed = self._last_failure
        if failed is None or failed.status not in _NO_SUCH_PARAMETER:
            return False
        said = f"{failed.message} {failed.raw}".lower()
        return failed.status in {400, 422} or any(word in said for word in _WORDS)

    def _once(self, messages: list[JSONObject], most: int, more: JSONObject) -> Answered:
        # What the lab asks for wins over the model's own settings, which may hold a format, too.
        settings = {**self.config.sampling, **self.config.extra_body}
        settings.pop("max_completion_tokens", None)
        body: JSONObject = {
            "model": self.config.model_id,
            "messages": messages,
            **settings,
            "max_tokens": most,
            **more,
        }
        self._request = json.dumps(body, ensure_ascii=False)
        self._last_failure = None
        answer = self._client.ask(step=self._n + 1, body=body, message_count=len(messages))
        reply = answer.reply
        # Models that think aloud may put the answer there when they run into their limit.
        text = reply.content or reply.reasoning or reply.refusal
        self._store("finished", reply.usage, answer.cost, model=reply.model, text=text, seconds=reply.seconds)
        return Answered(text, reply.cut_by_length, self._n)

    def note_problem(self, n: int, problem: str) -> None:
        """What was wrong with the answer of a call."""
        JudgeCall.objects.filter(judge_run=self._reading, n=n).update(problem=self._redactor.text(problem))

    def _hear(self, *events: Any) -> None:
        for event in events:
            self._heard(event)

    def _heard(self, event: Any) -> None:
        if isinstance(event, ModelCallStarted):
            self._started = timezone.now()
            if not judging.held_by(self._reading).exists():
                raise LostLeaseError(f"reading {self._reading.pk} is read by another worker, or has ended")
        elif isinstance(event, ModelCallFailed):
            self._last_failure = event
            self._store(
                "failed",
                event.usage,
                event.cost,
                text=event.partial or event.raw,
                seconds=event.seconds,
                problem=event.message,
            )
        elif isinstance(event, ModelCallInterrupted):
            self._store(
                "interrupted", event.usage, event.cost, text=event.partial, seconds=event.seconds, problem=""
            )

    def _store(
        self,
        state: str,
        usage: Usage,
        cost: Cost,
        *,
        text: str,
        seconds: float | None,
        model: str = "",
        problem: str = "",
    ) -> None:
        """What was paid is written down, even by a worker that has lost the reading meanwhile."""
        columns = {
            "judge_run": self._reading,
            "chunk": self._chunk,
            "state": state,
            "model": model[:200],
            "usage_source": usage.source,
            "cost": cost.amount,
            "cost_basis": cost.basis,
            "price": cost.model_dump(mode="json"),
            "started_at": self._started,
            "seconds": seconds,
            "request_blob": _kept(self._redactor.text(self._request)),
            "reply_blob": _kept(self._redactor.text(text)),
            "problem": problem,
        }
        for part in USAGE_PARTS:
            columns[part] = getattr(usage, part)
        with transaction.atomic():
            # Holders write one after the other, so that numbers are given once.
            JudgeRun.objects.select_for_update().get(pk=self._reading.pk)
            newest = JudgeCall.objects.filter(judge_run=self._reading).aggregate(n=Max("n"))["n"] or 0
            self._n = newest + 1
            JudgeCall.objects.create(n=self._n, **columns)


def _kept(text: str) -> str:
    return blobs.put(data=text.encode("utf-8", "surrogatepass")) if text else ""


def _response_format(schema: JSONObject) -> JSONObject:
    shape = {"name": "answer", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": shape}}


def elapsed(since: dt.datetime) -> float:
    """Seconds."""
    return (timezone.now() - since).total_seconds()
