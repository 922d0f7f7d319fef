"""Spans as OpenTelemetry's own SDK makes them, for the agent runs that tests tell with it.

The SDK writes the protobuf of its OTLP exporter; times are chosen, so that the same run is the same bytes but
for its ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, Tracer

BEGAN = 1_760_000_000 * 10**9
SECOND = 10**9


class Told:
    """One agent run, told span by span: `step` is the clock in seconds."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.now = BEGAN

    def span(
        self,
        name: str,
        attributes: dict[str, Any],
        seconds: float,
        *,
        inside: Callable[[], None] | None = None,
        ending: Callable[[Span], None] | None = None,
    ) -> None:
        span = self._tracer.start_span(name, attributes=attributes, start_time=self.now)
        with trace.use_span(span, end_on_exit=False):
            if inside is not None:
                inside()
            self.now += int(seconds * SECOND)
            if ending is not None:
                ending(span)
        span.end(end_time=self.now)

    def chat(self, before: list[Any], parts: list[Any], finish: str, **more: Any) -> None:
        output = [{"role": "assistant", "parts": parts, "finish_reason": finish}]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.request.temperature": 0.2,
            "gen_ai.response.model": "gpt-4o-2024-08-06",
            "gen_ai.response.id": "resp",
            "gen_ai.response.finish_reasons": [finish],
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.cache_read.input_tokens": 40,
            "gen_ai.usage.output_tokens": 10,
            "gen_ai.input.messages": json.dumps(before),
            "gen_ai.output.messages": json.dumps(output),
            **more,
        }
        self.span("chat gpt-4o", attributes, 2)

    def agent(self, work: Callable[[], None], name: str = "mender") -> None:
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        self.span(f"invoke_agent {name}", attributes, 0, inside=work)

    def tool(self, call: str, command: str, result: str) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "bash",
            "gen_ai.tool.call.id": call,
            "gen_ai.tool.call.arguments": json.dumps({"command": command}),
            "gen_ai.tool.call.result": result,
        }
        self.span("execute_tool bash", attributes, 1)


def told(tell: Callable[[Told], None]) -> Sequence[ReadableSpan]:
    """The finished spans, in the order in which they ended."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "mender", "service.version": "3"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tell(Told(provider.get_tracer("tests", "1")))
    return kept.get_finished_spans()


def as_protobuf(spans: Sequence[ReadableSpan]) -> bytes:
    data: bytes = encode_spans(spans).SerializeToString()
    return data


TASK = {"role": "user", "parts": [{"type": "text", "content": "mend the parser"}]}
CALL = {"type": "tool_call", "id": "c1", "name": "bash", "arguments": {"command": "pytest -q"}}
ANSWER = {"type": "tool_call_response", "id": "c1", "response": "1 failed"}


def two_steps(agent: Told) -> None:
    """Ask, run a command, answer: the least that is a run, inside an agent's span."""

    def work() -> None:
        agent.chat([TASK], [{"type": "reasoning", "content": "hm"}, CALL], "tool_call")
        agent.tool("c1", "pytest -q", "1 failed in 0.1s")
        asked = {"role": "assistant", "parts": [CALL]}
        result = {"role": "tool", "parts": [ANSWER]}
        agent.chat([TASK, asked, result], [{"type": "text", "content": "done"}], "stop")

    def graded(span: Span) -> None:
        span.add_event(
            "gen_ai.evaluation.result",
            {"gen_ai.evaluation.name": "tests", "gen_ai.evaluation.score.label": "pass"},
        )

    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "mender"}
    agent.span("invoke_agent mender", attributes, 0, inside=work, ending=graded)
