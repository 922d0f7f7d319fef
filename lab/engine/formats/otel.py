"""Runs out of spans by OpenTelemetry's conventions for generative AI: a trace is a run.

Each model call is a step; tools that ran after it belong to it. Spans may come in any order. Contents are
there only where the program was told to record them: otherwise steps have usage and times and no words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, Probe, json_lines, load_json
from lab.engine.formats.chat_messages import calls_in, observed, read_arguments, tool_message
from lab.engine.formats.otel_spans import (
    AGENT_OPERATIONS,
    EVALUATION_EVENT,
    Contents,
    Event,
    GenAISpan,
    contents_of,
    read_span,
)
from lab.engine.formats.otlp_wire import span_bodies
from lab.engine.formats.reading import count, items, number, plain_text, text
from lab.engine.formats.trajectory import (
    Aside,
    Call,
    FailedRequest,
    Found,
    Grading,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    Origin,
    Problem,
    Rewritten,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.verify.base import Outcome

NAME = "opentelemetry"
_RESOURCES = "resourceSpans"


class OpenTelemetry:
    """Files of OTLP's JSON: one request, or one a line as the collector's file exporter writes them."""

    name = NAME
    title = "OpenTelemetry GenAI spans (OTLP JSON)"

    def recognises(self, probe: Probe) -> bool:
        return _RESOURCES in probe.root or any(_RESOURCES in line for line in probe.objects[:1])

    def grouping(self, document: Document, probe: Probe) -> str:
        # A trace may go on in the next file of a rotation.
        return document.folder or document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """A trajectory a trace that has a model call, in the order in which the traces began."""
        traces: dict[str, list[GenAISpan]] = {}
        files: dict[str, str] = {}
        for document in documents:
            for place, value in _requests(document):
                if isinstance(value, Problem):
                    yield value
                    continue
                spans = [span for span in map(read_span, span_bodies(value)) if span is not None]
                if not spans:
                    yield Problem(file=document.path, place=place, message="holds no span with ids")
                for span in spans:
                    traces.setdefault(span.trace_id, []).append(span)
                    files.setdefault(span.trace_id, document.path)
        for trace_id, spans in sorted(traces.items(), key=lambda pair: min(one.order for one in pair[1])):
            made = trajectory_of(spans, file=files[trace_id])
            yield made or _no_call(files[trace_id], trace_id)


def _no_call(file: str, trace_id: str) -> Problem:
    message = "holds no span of a model call"
    return Problem(file=file, place=f"trace {trace_id}", message=message)


def _requests(document: Document) -> Iterator[tuple[str, Any]]:
    """The requests of a file, each with its place; a `Problem` in place of one that is broken."""
    lines = list(json_lines(document)) if document.size() else []
    if len(lines) < 2 or lines[0].problem:
        yield "", load_json(document)
        return
    for line in lines:
        broken = line.problem or ("" if isinstance(line.value, dict) else "is no object")
        problem = Problem(file=document.path, place=line.place, message=broken)
        yield line.place, problem if broken else line.value


def trajectory_of(spans: Iterable[GenAISpan], *, file: str) -> Trajectory | None:
    """The run that a trace's spans tell, None where none of them is a model call. Any order will do."""
    unique = {span.span_id: span for span in spans}
    ordered = sorted(unique.values(), key=lambda span: span.order)
    return _Trace(ordered, file).trajectory() if any(span.is_model_call for span in ordered) else None


class _Trace:
    """One trace while its run is made of it."""

    def __init__(self, spans: list[GenAISpan], file: str) -> None:
        self._spans = spans
        self._file = file
        self._by_id = {span.span_id: span for span in spans}
        self._calls = [span for span in spans if span.is_model_call]
        self._tools = [span for span in spans if span.operation == "execute_tool"]
        self._contents = {span.span_id: contents_of(span) for span in self._calls}
        self._agents = [span for span in spans if span.operation in AGENT_OPERATIONS]
        roots = [span for span in spans if span.parent_id not in self._by_id]
        self._root = roots[0] if roots else spans[0]
        self._main = self._agents[0] if self._agents else self._root
        self._notes: list[Note] = []
        self._used: set[str] = set()
        # What had been said to the main agent when it was asked last, answers and results left out.
        self._said: list[str] = []
        self._step = 0

    def trajectory(self) -> Trajectory:
        main = [span for span in self._calls if not self._agent_of(span)] or self._calls
        first = self._contents[main[0].span_id]
        self._said = [plain_text(one.get("content")) for one in first.before if _is_said(one)]
        people = (one for one in first.before if one.get("role") == "user")
        statement = next((plain_text(one.get("content")) for one in people), "")
        parts = list(self._items(main[0]))
        if not any(contents.answer for contents in self._contents.values()):
            self._note("missing", "gen_ai.output.messages", "the program was not told to record contents")
        last = next((item for item in reversed(parts) if isinstance(item, Turn)), None)
        reason, native = self._ending(last)
        return Trajectory(
            origin=Origin(
                format=NAME,
                file=self._file,
                place=f"trace {self._root.trace_id}",
                sha256=hashlib.sha256(f"{NAME} trace {self._root.trace_id}".encode()).hexdigest(),
            ),
            harness=self._harness(),
            model=_model(main[0]),
            statement=statement,
            opening=first.before,
            tools=first.tools,
            items=tuple(parts),
            exit_reason=reason,
            native_reason=native,
            error=self._root.error,
            final_message="" if last is None or last.calls else plain_text(last.message.get("content")),
            started_at=self._root.start,
            ended_at=self._root.end,
            totals=Totals(seconds=self._root.seconds),
            gradings=tuple(self._gradings()),
            notes=tuple(self._notes),
            kept=self._kept(),
        )

    def _note(self, kind: Any, field: str, detail: str) -> None:
        if all(one.field != field for one in self._notes):
            self._notes.append(Note(kind=kind, field=field, detail=detail))

    def _harness(self) -> HarnessUsed:
        agent = self._main.attributes
        return HarnessUsed(
            name=text(agent.get("gen_ai.agent.name"))
            or text(self._root.resource.get("service.name"))
            or "unknown",
            version=text(agent.get("gen_ai.agent.version"))
            or text(self._root.resource.get("service.version")),
        )

    def _kept(self) -> JSONObject:
        root = {"name": self._root.name, **self._root.attributes}
        found = {"root_span": root, "resource": self._root.resource, "scope": self._root.scope}
        return {name: value for name, value in found.items() if value}

    def _agent_of(self, span: GenAISpan) -> str:
        """The subagent that asked, "" for the agent that the whole trace is about."""
        seen: set[str] = set()
        parent = self._by_id.get(span.parent_id)
        while parent is not None and parent.span_id not in seen:
            if parent.operation in AGENT_OPERATIONS:
                name = text(parent.attributes.get("gen_ai.agent.name")) or parent.name
                return "" if parent is self._main else name
            seen.add(parent.span_id)
            parent = self._by_id.get(parent.parent_id)
        return ""

    def _items(self, first: GenAISpan) -> Iterator[Item]:
        for place, span in enumerate(self._calls):
            contents = self._contents[span.span_id]
            agent = self._agent_of(span)
            if span is not first and not agent:
                yield from self._between(span, contents)
            if span.error and contents.answer is None:
                yield _failed(span)
                continue
            following = self._calls[place + 1] if place + 1 < len(self._calls) else None
            yield self._turn(span, contents, agent, following)
        for tool in self._tools:
            if tool.span_id not in self._used:
                self._note(
                    "guessed", "execute_tool", "a tool that ran before any model call stands by itself"
                )
                yield Aside(name=tool.name or "execute_tool", kept=_raw(tool), at=tool.start)

    def _between(self, span: GenAISpan, contents: Contents) -> Iterator[Item]:
        """What was said to the model since it was asked last, or that its conversation was replaced."""
        said = [one for one in contents.before if _is_said(one)]
        words = [plain_text(one.get("content")) for one in said]
        if not said:
            return
        if words[: len(self._said)] == self._said:
            for one in said[len(self._said) :]:
                yield Message(message=one, by="person", at=span.start)
        else:
            yield Rewritten(reason="other messages were sent", messages=contents.before, at=span.start)
        self._said = words

    def _turn(self, span: GenAISpan, contents: Contents, agent: str, following: GenAISpan | None) -> Turn:
        self._step += 1
        message = contents.answer or {"role": "assistant", "content": ""}
        calls = calls_in(message, self._step)
        if not calls and not message.get("tool_calls"):
            message = {name: value for name, value in message.items() if name != "tool_calls"}
        ran = self._ran_between(span, following)
        results = {
            text(one.get("tool_call_id")): one
            for one in (self._contents[following.span_id].before if following else ())
            if one.get("role") == "tool"
        }
        finish = items(span.attribute("gen_ai.response.finish_reasons"))
        return Turn(
            message=message,
            reasoning=contents.reasoning,
            calls=tuple(self._answered(calls, ran, results)),
            finish_reason=contents.finish_reason or (text(finish[0]) if finish else ""),
            model=text(span.attribute("gen_ai.response.model", "gen_ai.request.model")),
            response_id=text(span.attribute("gen_ai.response.id")),
            usage=usage_of(span),
            started_at=span.start,
            ended_at=span.end,
            seconds=span.seconds,
            first_token_seconds=number(span.attribute("gen_ai.response.time_to_first_chunk")),
            agent=agent,
            kept=_left(span, contents),
        )

    def _ran_between(self, span: GenAISpan, following: GenAISpan | None) -> list[GenAISpan]:
        """Tools that ran after this call and before the next one began, and belong to no other yet."""
        until = following.order if following is not None else None
        found = [
            tool
            for tool in self._tools
            if tool.span_id not in self._used
            and tool.order >= span.order
            and (until is None or tool.order < until)
        ]
        self._used |= {tool.span_id for tool in found}
        return found

    def _answered(
        self, calls: list[Call], ran: list[GenAISpan], results: dict[str, JSONObject]
    ) -> Iterator[Call]:
        """The announced calls with what came of them, then those that ran and were not announced."""
        left = list(ran)
        for call in calls:
            tool = _taken(left, lambda one, of=call: one.attribute("gen_ai.tool.call.id") == of.id)
            tool = tool or _taken(left, lambda one, of=call: one.attribute("gen_ai.tool.name") == of.name)
            yield _with_result(call, tool, results.get(call.id))
        for index, tool in enumerate(left, start=len(calls)):
            self._note("guessed", "gen_ai.tool.call.id", "a tool that ran belongs to the call before it")
            yield _with_result(_call_of(tool, self._step, index), tool, None)

    def _ending(self, last: Turn | None) -> tuple[ExitReason | None, str]:
        if self._root.error or last is None:
            return None, self._root.error
        if not last.calls and last.finish_reason in ("stop", "end_turn"):
            self._note("guessed", "exit_reason", "the last answer called no tool and was whole")
            return ExitReason.AGENT, last.finish_reason
        return None, last.finish_reason

    def _gradings(self) -> Iterator[Grading]:
        for span in self._spans:
            for event in span.events:
                if event.name == EVALUATION_EVENT:
                    yield _grading(event)


def _is_said(message: JSONObject) -> bool:
    return message.get("role") not in ("assistant", "tool")


def _taken(left: list[GenAISpan], wanted: Any) -> GenAISpan | None:
    found = next((one for one in left if wanted(one)), None)
    if found is not None:
        left.remove(found)
    return found


def _with_result(call: Call, tool: GenAISpan | None, message: JSONObject | None) -> Call:
    observation = observed(message) if message is not None else None
    if tool is None:
        return replace(call, observation=observation, message=message or {})
    result = tool.attribute("gen_ai.tool.call.result")
    written = result if isinstance(result, str) or result is None else json.dumps(result, ensure_ascii=False)
    seen = observation if observation is not None else written
    if seen is None and tool.error:
        seen = tool.error
    return replace(
        call,
        observation=seen,
        message=message or ({} if seen is None else tool_message(call.id, seen)),
        output=written if observation is not None and written != observation else None,
        failed=bool(tool.error),
        started_at=tool.start,
        ended_at=tool.end,
        seconds=tool.seconds,
        kept=_raw(tool),
    )


def _call_of(tool: GenAISpan, step: int, index: int) -> Call:
    read = read_arguments(tool.attribute("gen_ai.tool.call.arguments"))
    known = text(tool.attribute("gen_ai.tool.call.id"))
    return Call(
        id=known or f"call_{step}_{index}",
        name=text(tool.attribute("gen_ai.tool.name")) or tool.name,
        arguments=read.arguments,
        raw_arguments=read.raw,
        malformed=read.malformed,
        synthesised_id=not known,
    )


_SAMPLING = {
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.top_k": "top_k",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
}


def _model(span: GenAISpan) -> ModelUsed:
    address = text(span.attribute("server.address"))
    port = count(span.attribute("server.port"))
    sampling = {short: span.attributes[name] for name, short in _SAMPLING.items() if name in span.attributes}
    return ModelUsed(
        name=text(span.attribute("gen_ai.request.model", "gen_ai.response.model")),
        provider=text(span.attribute("gen_ai.provider.name", "gen_ai.system")),
        base_url=f"{address}:{port}" if address and port else address,
        sampling=sampling,
    )


_USAGE = {
    "input_total": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_total": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "cache_read": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
    "cache_write": ("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
    "reasoning": ("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
}


def usage_of(span: GenAISpan) -> Usage:
    """Tokens of a call. By the convention cached ones are among the input, reasoning among the output."""
    raw = {name: value for name, value in span.attributes.items() if name.startswith("gen_ai.usage.")}
    counts = {part: count(span.attribute(*names)) for part, names in _USAGE.items()}
    if all(value is None for value in counts.values()):
        return Usage(raw=raw or None)
    total, read, written = counts["input_total"], counts["cache_read"], counts["cache_write"]
    uncached = None if total is None else total - (read or 0) - (written or 0)
    notes = (
        () if uncached is None or uncached >= 0 else ("more cached tokens than input tokens are recorded",)
    )
    return Usage(
        **counts,
        input_uncached=None if notes or (read is None and written is None) else uncached,
        source="provider",
        raw=raw,
        notes=notes,
    )


def _left(span: GenAISpan, contents: Contents) -> JSONObject:
    """What of a model call's span stands nowhere else."""
    taken = {*contents.taken, *_SAMPLING, *(name for names in _USAGE.values() for name in names)}
    attributes = {name: value for name, value in span.attributes.items() if name not in taken}
    events = [
        {"name": one.name, **one.attributes}
        for one in span.events
        if one.name not in contents.taken and one.name != EVALUATION_EVENT
    ]
    return {"span": span.raw, "attributes": attributes, **({"events": events} if events else {})}


def _raw(span: GenAISpan) -> JSONObject:
    taken = ("gen_ai.tool.call.result", "gen_ai.tool.call.arguments")
    left = {name: value for name, value in span.attributes.items() if name not in taken}
    return {"span": span.raw, "attributes": left}


def _failed(span: GenAISpan) -> FailedRequest:
    kind = text(span.attributes.get("error.type")).lower()
    error = "timeout" if "timeout" in kind else "rate_limit" if kind in ("429", "rate_limit") else "server"
    return FailedRequest(
        error=error,
        message=span.error,
        status=int(kind) if kind.isdecimal() and len(kind) == 3 else None,
        usage=usage_of(span),
        at=span.end,
        seconds=span.seconds,
        kept={"span": span.raw, "attributes": span.attributes},
    )


_GOOD = frozenset({"pass", "passed", "resolved", "correct", "success", "true"})
_BAD = frozenset({"fail", "failed", "unresolved", "incorrect", "failure", "false"})


def _grading(event: Event) -> Grading:
    name = text(event.attributes.get("gen_ai.evaluation.name")) or "evaluation"
    label = text(event.attributes.get("gen_ai.evaluation.score.label"))
    value = number(event.attributes.get("gen_ai.evaluation.score.value"))
    outcome = Outcome.UNPARSED
    if label.lower() in _GOOD | _BAD:
        outcome = Outcome.RESOLVED if label.lower() in _GOOD else Outcome.UNRESOLVED
    detail = text(event.attributes.get("gen_ai.evaluation.explanation"))
    return Grading(
        rule=f"otel:{name}"[:32],
        outcome=outcome,
        rewards={} if value is None else {name: value},
        detail=": ".join(filter(None, [label, detail])),
        at=event.at,
        kept=event.attributes,
    )
