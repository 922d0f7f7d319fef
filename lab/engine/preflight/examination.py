"""One preflight of one model: asks the probes in order and says what they showed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.arguments import parse_arguments
from lab.engine.llm.base import JSONObject, ModelConfig, Reply
from lab.engine.llm.endpoint import ListedModel, NoModelListError, list_models
from lab.engine.llm.failures import is_context_overflow
from lab.engine.preflight import probes
from lab.engine.preflight.diagnosis import answers_in_words, diagnose, streams_lack_calls
from lab.engine.preflight.exchange import EXCERPT_CHARACTERS, Asking, Exchange
from lab.engine.preflight.findings import Evidence, Finding, Report, diagnoses
from lab.engine.preflight.probes import PROBES, REPEATED
from lab.engine.preflight.refusals import is_passing
from lab.engine.preflight.seen import Seen
from lab.engine.preflight.wire import may_be_buffered
from lab.engine.stop import StopSignal

State = Literal["running", "answered", "failed", "left_out"]
# What the common servers call the owner of their models -> the name under which the catalogue mends them.
_SERVERS = {"sglang": "sglang", "vllm": "vllm", "llamacpp": "llamacpp", "llama.cpp": "llamacpp"}
# A server that let so many requests in a row run out of time is not asked on.
_MOST_TIMEOUTS = 2
_THINKING_TOKENS = 1_024
# Nor is one that refused so many different requests and answered none.
_MOST_REFUSALS = 3
# The most seconds that are waited before a request is asked once more.
_LONGEST_PAUSE = 5.0


class OnProbe(Protocol):
    """Hears of each probe as it begins and ends; `shown` is what is stored of it."""

    def __call__(self, shown: JSONObject) -> None: ...


@dataclass
class Examination:
    """`wanted_windows` is the context that each harness allows, in tokens by name. `over_limit` asks one
    request more, which costs a whole context of input. `seconds` bounds each request; `pause` in
    seconds is waited before one that failed is asked once more."""

    model: ModelConfig
    api_key: str = ""
    key_variable: str = ""
    wanted_windows: Mapping[str, int] = field(default_factory=dict)
    over_limit: bool = False
    seconds: float = 120.0
    pause: float = 1.0
    stop: StopSignal = field(default_factory=StopSignal)
    on_probe: OnProbe = lambda shown: None

    def run(self) -> Report:
        """Ask everything and judge it.

        Raises:
            CallInterrupted: `stop` was set.
        """
        self._asking = Asking(self.model, self.api_key, self.key_variable, self.seconds, self.stop)
        self._exchanges: dict[str, Exchange] = {}
        self._window: int | None = None
        self._call_tokens = probes.CALL_TOKENS
        self._is_limited = False
        listed, refused = self._list_models()
        if refused is not None:
            return Report([refused])
        window = (listed.context_window if listed else None) or self.model.context_window
        self._window = window
        for _ in self._ask_all(window):
            if self._is_hopeless():
                break
        return Report(diagnose(self._seen()), self._measured(window, listed))

    def _list_models(self) -> tuple[ListedModel | None, Finding | None]:
        self._tell("models", "running")
        try:
            models = list_models(
                self.model.base_url, self.api_key, self.model.headers, key_variable=self.key_variable
            )
        except NoModelListError as none:
            self._tell("models", "left_out", str(none))
            return None, None
        except InvalidValueError as refused:
            self._tell("models", "failed", str(refused))
            evidence = Evidence("models", str(refused))
            return None, Finding(diagnoses()["cannot_ask"], (evidence,), str(refused))
        found = next((listed for listed in models if listed.id == self.model.model_id), None)
        says = "1 model" if len(models) == 1 else f"{len(models)} models"
        says += "" if found else f"; {self.model.model_id} is not among them"
        self._tell("models", "answered", says)
        return found, None

    def _ask_all(self, window: int | None) -> Iterator[None]:
        self._ask("plain", probes.plain())
        yield
        self._ask("auto", probes.call())
        yield
        self._ask("required", probes.call(required=True))
        yield
        self._ask("streamed", probes.call(), streamed=True)
        yield
        yield from self._ask_again()
        self._ask("parallel", probes.parallel())
        yield
        self._ask_result()
        yield
        self._ask("thinking", probes.thinking(self._cap()), streamed=True)
        yield
        if may_be_buffered(self._seen()):
            self._ask("long", probes.long(), streamed=True)
            yield
        if self.over_limit and window is not None:
            self._ask("over_limit", probes.over_limit(window + 1))
            yield

    def _ask_again(self) -> Iterator[None]:
        """What may be chance is asked up to three times, until it shows that it was."""
        for whole, streamed in (("again", "streamed_again"), ("third", "streamed_third")):
            if answers_in_words(self._seen()):
                self._ask(whole, probes.call())
                yield
            elif streams_lack_calls(self._seen()):
                self._ask(whole, probes.call())
                yield
                self._ask(streamed, probes.call(), streamed=True)
                yield

    def _ask(self, name: str, body: JSONObject, *, streamed: bool = False) -> None:
        self._tell(name, "running")
        if "tools" in body:
            body = {**body, "max_tokens": self._call_tokens}
        exchange = self._ask_patiently(name, body, streamed=streamed)
        if self._is_cut_by_us(exchange):
            exchange = self._ask_with_room(exchange, body)
        self._exchanges[name] = exchange
        self._tell(name, "answered" if exchange.reply is not None else "failed", _said(exchange), exchange)

    def _ask_patiently(self, name: str, body: JSONObject, *, streamed: bool) -> Exchange:
        """Ask, and once more where what went wrong may be over at once."""
        first = self._asking.ask(name, body, streamed=streamed)
        has_answered = any(one.reply is not None for one in self._exchanges.values())
        if not is_passing(first, has_answered=has_answered) or (self._is_limited and first.status == 429):
            return first
        self.stop.wait(
            min(first.retry_after if first.retry_after is not None else self.pause, _LONGEST_PAUSE)
        )
        second = self._asking.ask(name, body, streamed=streamed)
        self._is_limited = self._is_limited or second.status == 429
        happened = f"{(PROBES | REPEATED)[name].title}: {first.said}"
        status = f" (status {first.status})" if first.status else ""
        return replace(second, hiccup=happened + status)

    def _is_cut_by_us(self, exchange: Exchange) -> bool:
        """Whether the examination's own cap cut a reply before its call."""
        reply = exchange.reply
        if reply is None or "tools" not in exchange.body or reply.tool_calls or not reply.cut_by_length:
            return False
        written = reply.usage.output_total
        return written is None or written >= self._call_tokens - 1

    def _ask_with_room(self, cut: Exchange, body: JSONObject) -> Exchange:
        """The same with the larger cap, as far as the model's own settings and its context allow it."""
        most = [probes.MOST_CALL_TOKENS, *filter(None, [self.model.max_tokens_per_turn])]
        if self._window is not None:
            most.append(self._window // 2)
        if min(most) <= self._call_tokens:
            return cut
        exchange = self._asking.ask(cut.probe, {**body, "max_tokens": min(most)}, streamed=cut.streamed)
        if exchange.reply is None:
            return cut
        self._call_tokens = min(most)
        return replace(exchange, hiccup=cut.hiccup)

    def _ask_result(self) -> None:
        """The turn after a call: the model's own, or one it might have made."""
        reply = next((found for name in ("auto", "required") if (found := self._reply_with_call(name))), None)
        call_id = reply.tool_calls[0].id if reply else "call_0123456789abcdef01234567"
        arguments = reply.tool_calls[0].arguments if reply else json.dumps(probes.ARGUMENTS)
        if parse_arguments(arguments).malformed:
            # What runs send back in its place.
            arguments = "{}"
        function = {"name": probes.TOOL, "arguments": arguments}
        calls = [{"id": call_id, "type": "function", "function": function}]
        message = {"role": "assistant", "content": reply.content if reply else "", "tool_calls": calls}
        self._ask("result", probes.result(message, call_id))

    def _reply_with_call(self, name: str) -> Reply | None:
        exchange = self._exchanges.get(name)
        reply = exchange.reply if exchange is not None else None
        return reply if reply is not None and reply.tool_calls else None

    def _seen(self) -> Seen:
        return Seen(self.model, self._exchanges, self._window, self.wanted_windows)

    def _cap(self) -> int:
        return min(self.model.max_tokens_per_turn or _THINKING_TOKENS, _THINKING_TOKENS)

    def _is_hopeless(self) -> bool:
        """Nobody answers, or the key is refused: more questions show nothing new."""
        asked = list(self._exchanges.values())
        last = asked[-1]
        if [one.failure for one in asked[-_MOST_TIMEOUTS:]] == ["timeout"] * _MOST_TIMEOUTS:
            return True
        if len(asked) >= _MOST_REFUSALS and all(one.reply is None for one in asked):
            return True
        if last.status == 429 and all(one.reply is None for one in asked):
            return True
        unreachable = last.failure in {"connection", "not_json"} or last.status in {401, 403, 404}
        return last.reply is None and unreachable

    def _measured(
        self, window: int | None, listed: ListedModel | None
    ) -> dict[str, float | int | str | None]:
        speed = self._exchanges.get("thinking") or self._exchanges.get("streamed")
        reply = speed.reply if speed is not None else None
        replies = [exchange.reply for exchange in self._exchanges.values() if exchange.reply is not None]
        fields = sorted({reply.reasoning_field for reply in replies if reply.reasoning_field})
        return {
            "context_window_tokens": window,
            "context_window_source": "server"
            if listed and listed.context_window
            else ("model" if window else None),
            "tokens_per_second": _speed(reply),
            "first_token_seconds": reply.first_token_seconds if reply else None,
            "reasoning_field": ", ".join(fields) or None,
            "cached_tokens": max((reply.usage.cache_read or 0 for reply in replies), default=None)
            if any(reply.usage.cache_read is not None for reply in replies)
            else None,
            "input_tokens": sum(reply.usage.input_total or 0 for reply in replies),
            "output_tokens": sum(reply.usage.output_total or 0 for reply in replies),
            "calls_in_parallel": self._parallel(),
            "server": _SERVERS.get(listed.owned_by.lower()) if listed else None,
            "answered_model": next((reply.model for reply in replies if reply.model), None),
            "over_limit": self._over_limit(),
        }

    def _parallel(self) -> int | None:
        reply = self._exchanges["parallel"].reply if "parallel" in self._exchanges else None
        return len(reply.tool_calls) if reply is not None else None

    def _over_limit(self) -> str | None:
        exchange = self._exchanges.get("over_limit")
        if exchange is None:
            return None
        if exchange.reply is not None:
            return "accepted"
        refused = exchange.failure == "context_overflow" or is_context_overflow(exchange.said)
        return "refused as too long" if refused else f"failed: {exchange.said[:200]}"

    def _tell(self, name: str, state: State, said: str = "", exchange: Exchange | None = None) -> None:
        probe = PROBES.get(name) or REPEATED[name]
        shown: JSONObject = {
            "name": name,
            "title": probe.title,
            "why": probe.why,
            "state": state,
            "said": said[:EXCERPT_CHARACTERS],
        }
        if exchange is not None:
            usage = exchange.reply.usage if exchange.reply is not None else None
            shown |= {
                "status": exchange.status,
                "seconds": round(exchange.seconds, 3),
                "input_tokens": usage.input_total if usage else None,
                "output_tokens": usage.output_total if usage else None,
            }
        self.on_probe(shown)


def _said(exchange: Exchange) -> str:
    """The answer in one line, for the list of probes."""
    reply = exchange.reply
    if reply is None:
        return exchange.said
    calls = ", ".join(f"{call.name} {call.arguments}" for call in reply.tool_calls)
    return (
        calls
        or reply.content.strip()
        or (reply.reasoning.strip() and f"reasoning: {reply.reasoning.strip()}")
    )


def _speed(reply: Reply | None) -> float | None:
    """Output tokens a second, from the first one on; None where nothing can be measured."""
    if reply is None or reply.first_token_seconds is None or not reply.usage.output_total:
        return None
    seconds = (reply.seconds or 0.0) - reply.first_token_seconds
    return round(reply.usage.output_total / seconds, 1) if seconds > 0.05 else None
