"""One question to a server and everything it answered, as the client of the runs sees it and as it came."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lab.engine.harnesses.conversation import cap_field
from lab.engine.llm.base import JSONObject, ModelConfig, Reply
from lab.engine.llm.endpoint import sent_secrets
from lab.engine.llm.failures import CallFailure, CallInterrupted
from lab.engine.llm.openai_chat import ChatConnection
from lab.engine.llm.reading import no_draft
from lab.engine.redact import Redactor
from lab.engine.stop import StopSignal, deadline

# What is kept of an answer for people to look at, in characters.
EXCERPT_CHARACTERS = 1_500
_CHUNKS = 4_000


@dataclass(frozen=True)
class Exchange:
    """A request and its answer. `chunks` are the objects that came, one for an answer without a stream.

    `reply` is None for a request that failed: then `failure` is the client's word for it, `status` and `said`
    what the server answered, `retryable` whether it may be over at once, `retry_after` the seconds that it
    asks to wait. `hiccup` is what went wrong with the same request before. `seconds` from sending to the last
    byte.
    """

    probe: str
    body: JSONObject
    streamed: bool
    reply: Reply | None = None
    chunks: tuple[JSONObject, ...] = ()
    failure: str = ""
    status: int | None = None
    said: str = ""
    seconds: float = 0.0
    retryable: bool = False
    retry_after: float | None = None
    hiccup: str = ""

    @property
    def cap(self) -> int | None:
        """The tokens of output that were asked for."""
        asked = self.body.get("max_completion_tokens") or self.body.get("max_tokens")
        return asked if isinstance(asked, int) else None

    @property
    def message(self) -> JSONObject:
        """The message of an answer without a stream as it came; empty for a stream or a failure."""
        choices = self.chunks[0].get("choices") if self.chunks and not self.streamed else None
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = first.get("message")
        return message if isinstance(message, dict) else {}

    @property
    def deltas(self) -> list[JSONObject]:
        """The deltas of a stream in order."""
        found = []
        for chunk in self.chunks:
            choices = chunk.get("choices")
            if isinstance(choices, list) and choices and isinstance(choices[0], dict):
                delta = choices[0].get("delta")
                if isinstance(delta, dict):
                    found.append(delta)
        return found


def without_secrets(chunks: Sequence[JSONObject], redactor: Redactor) -> tuple[JSONObject, ...]:
    """The pieces of an answer without secrets, also those that are split over several pieces.

    A text that holds one stands whole and cleaned in its first piece, and is empty in the others.
    """
    texts: dict[_Place, str] = {}
    for chunk in chunks:
        for place, text in _texts(chunk):
            texts[place] = texts.get(place, "") + text
    cleaned = {place: clean for place, text in texts.items() if (clean := redactor.text(text)) != text}
    return tuple(redactor.json(_replaced(chunk, cleaned)) for chunk in chunks)


_Place = tuple[str | int, ...]


def _texts(value: Any, place: _Place = ()) -> Iterator[tuple[_Place, str]]:
    """Each text of a piece with its place, which is the same for the pieces that belong together."""
    if isinstance(value, str):
        yield place, value
    for key, item in _items(value):
        yield from _texts(item, (*place, key))


def _replaced(value: Any, cleaned: dict[_Place, str], place: _Place = ()) -> Any:
    """The piece with the texts that stand in `cleaned`, each given out once."""
    if isinstance(value, str) and place in cleaned:
        whole, cleaned[place] = cleaned[place], ""
        return whole
    if isinstance(value, dict):
        return {key: _replaced(item, cleaned, (*place, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, cleaned, (*place, key)) for key, item in _items(value)]
    return value


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    """The parts of an object or list; calls of a list are known by their index, wherever they stand in it."""
    if isinstance(value, dict):
        yield from value.items()
    if isinstance(value, list):
        for position, item in enumerate(value):
            index = item.get("index") if isinstance(item, dict) else None
            yield index if isinstance(index, int) else position, item


@dataclass
class Asking:
    """Asks one model at its server. `seconds` bounds each request; `stop` breaks the one that runs off."""

    model: ModelConfig
    api_key: str = ""
    key_variable: str = ""
    seconds: float = 120.0
    stop: StopSignal = field(default_factory=StopSignal)

    def ask(self, probe: str, body: JSONObject, *, streamed: bool = False) -> Exchange:
        """Send the body once; whatever goes wrong is part of the exchange.

        Raises:
            CallInterrupted: `stop` was set from outside.
        """
        complete = self._complete(body)
        if streamed:
            complete |= {"stream": True, "stream_options": {"include_usage": True}}
        chunks: list[JSONObject] = []
        started = time.monotonic()
        try:
            with (
                deadline(self.seconds, self.stop) as stop,
                ChatConnection(self.model, api_key=self.api_key) as connection,
            ):
                reply = connection.try_once(
                    step=0,
                    body=complete,
                    stop=stop,
                    draft=no_draft,
                    on_chunk=lambda chunk: chunks.append(chunk) if len(chunks) < _CHUNKS else None,
                )
        except CallFailure as failed:
            failed.redact(self.redactor)
            exchange = Exchange(
                probe,
                complete,
                streamed,
                failure=failed.error,
                status=failed.status,
                said=failed.message,
                retryable=failed.retryable,
                retry_after=failed.retry_after,
            )
        except CallInterrupted as interrupted:
            if self.stop.is_set():
                raise
            come = len(interrupted.partial)
            said = f"no whole answer within {self.seconds:g} s; {come} characters had come"
            exchange = Exchange(probe, complete, streamed, failure="timeout", said=said)
        else:
            clean = Reply.model_validate(self.redactor.json(reply.model_dump()))
            exchange = Exchange(probe, complete, streamed, clean)
        seconds = time.monotonic() - started
        return replace(exchange, chunks=without_secrets(chunks, self.redactor), seconds=seconds)

    def _complete(self, body: JSONObject) -> JSONObject:
        """The body with the model's own settings, and its cap under the name that runs use."""
        settings = {**self.model.sampling, **self.model.extra_body}
        field = cap_field(settings)
        for name in ("max_tokens", "max_completion_tokens"):
            settings.pop(name, None)
        cap = {field: body["max_tokens"]} if "max_tokens" in body else {}
        rest = {name: value for name, value in body.items() if name != "max_tokens"}
        return {"model": self.model.model_id, **settings, **rest, **cap}

    @property
    def redactor(self) -> Redactor:
        return sent_secrets(self.api_key, self.model.headers, self.key_variable)
