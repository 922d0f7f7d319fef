"""Looks at an endpoint before it is used: is the URL an API, is the key right, which models are there."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import JSONObject, ModelConfig
from lab.engine.llm.failures import CallFailure, CallInterrupted, error_object, error_text, is_about_key
from lab.engine.llm.openai_chat import ChatConnection
from lab.engine.llm.reading import no_draft
from lab.engine.llm.transport import LONGER_THAN, AbortableBackend, AbortableTransport, untrusted
from lab.engine.llm.usage import is_count
from lab.engine.redact import Redactor
from lab.engine.stop import StopSignal, deadline

# Where servers write how many tokens fit: vLLM and SGLang, OpenRouter, others, llama.cpp, LM Studio.
_WINDOW_PATHS = (
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "top_provider.context_length",
    "meta.n_ctx",
    "meta.n_ctx_train",
    "loaded_context_length",
)
# Routers list thousands of models, with a few kilobytes on each.
_MAX_LIST_BYTES = 64 * 1024 * 1024
_NAMED = 12
_OWNER_CHARACTERS = 100
# Tokens. What a server states beyond it is a mistake of that server.
LARGEST_WINDOW = 100_000_000


class ListedModel(NamedTuple):
    """A model as the server lists it; `context_window` in tokens, None where the server does not say.

    `owned_by` is whom the server calls its owner: the common servers put their own name there.
    """

    id: str
    context_window: int | None
    owned_by: str = ""


class NoModelListError(InvalidValueError):
    """The server has no /models, keeps it back, or lists too much to be read. It may answer all the same."""


class WebPageError(NoModelListError):
    """A web page is where /models would be: a server without a list, or an address that is no API's."""


def normal_base_url(text: str) -> str:
    """The base URL without white space and closing slashes.

    Raises:
        InvalidValueError: no http(s) URL with a host, one with a login or an invisible character in it, or
            the URL of one call instead of the base.
    """
    url = text.strip().rstrip("/")
    refuse_invisible("base_url", url, spaces=True)
    try:
        parts = urlsplit(url)
        host, port, login = parts.hostname, parts.port, parts.username or parts.password
    except ValueError as failed:
        raise InvalidValueError("base_url", text, f"is no URL ({failed})") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidValueError(
            "base_url", text, "is no URL of a server; write it as in http://127.0.0.1:8000/v1"
        )
    if login:
        place = f"{parts.scheme}://…@{host}" + (f":{port}" if port else "")
        raise InvalidValueError(
            "base_url", place, "holds a login, which would be stored; name the variable that holds the key"
        )
    if url.endswith("/chat/completions"):
        short = url.removesuffix("/chat/completions")
        raise InvalidValueError("base_url", text, f"is the address of one call; write {short}")
    return url


def refuse_invisible(field: str, text: str, *, spaces: bool = False) -> None:
    """Two texts that look the same are the same.

    Raises:
        InvalidValueError: `text` holds a character that cannot be seen, or white space where `spaces`.
    """
    for position, character in enumerate(text, 1):
        unseen = unicodedata.category(character) in {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
        if unseen or (spaces and character.isspace()):
            what = "a space" if character == " " else f"an invisible character (U+{ord(character):04X})"
            raise InvalidValueError(field, text, f"holds {what} at position {position}; write it without")


def list_models(
    base_url: str,
    api_key: str,
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,
    *,
    key_variable: str = "",
) -> list[ListedModel]:
    """What the server's /models lists, in its order.

    `timeout` in seconds is for the whole answer, however slowly it comes; `key_variable` is for error texts,
    which hold neither the key nor the value of a header.

    Raises:
        NoModelListError: the server has no /models, keeps it back, its list is longer than 64 MB, or it has a
            web page there (`WebPageError`).
        InvalidValueError: field `base_url` (cannot be reached, or no API there) or `key` (refused).
    """
    url = normal_base_url(base_url)
    status, text = _get(url, api_key, headers or {}, timeout, sent_secrets(api_key, headers, key_variable))
    if status == 401:
        raise _key_refused(url, status, _said(text), api_key, key_variable)
    if status == 403:
        said = f"keeps its list of models back (status 403): {_said(text).rstrip('.')}"
        raise NoModelListError("base_url", base_url, said)
    if status in {404, 405, 501}:
        raise NoModelListError("base_url", base_url, f"has no /models (status {status});{_hint(url)}")
    if text.lstrip().startswith("<"):
        if status == 400 and url.startswith("http:") and "https" in text.lower():
            raise InvalidValueError("base_url", base_url, f"wants https{_other_scheme(url)}")
        raise WebPageError("base_url", base_url, f"answers with an HTML page, not an API;{_hint(url)}")
    if status >= 400:
        raise InvalidValueError("base_url", base_url, f"answered {status}: {_said(text)}")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidValueError("base_url", base_url, f"answers with no JSON;{_hint(url)}") from None
    listed = answer.get("data") if isinstance(answer, dict) else answer
    if not isinstance(listed, list):
        raise InvalidValueError("base_url", base_url, f"answers without a list of models;{_hint(url)}")
    return [
        ListedModel(entry["id"], _window(entry), _owner(entry))
        for entry in listed
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    ]


def check_model(
    base_url: str,
    model_id: str,
    api_key: str,
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,
    *,
    key_variable: str = "",
) -> ListedModel:
    """The model as the server lists it; one whose list is empty or none is asked for one token instead.

    `timeout` in seconds is for both requests together.

    Raises:
        InvalidValueError: fields `base_url` and `key` as in `list_models`; `model_id` when it is unknown
        there.
    """
    ends = time.monotonic() + timeout
    try:
        listed = list_models(base_url, api_key, headers, timeout, key_variable=key_variable)
        if not listed:
            raise NoModelListError("base_url", base_url, "lists no model")
    except NoModelListError as no_list:
        model = ModelConfig(
            name=model_id,
            model_id=model_id,
            base_url=normal_base_url(base_url),
            headers=dict(headers or {}),
            connect_timeout=timeout,
            read_timeout=timeout,
        )
        with deadline(max(0.1, ends - time.monotonic())) as stop:
            _ask_for_one_token(no_list, model, api_key, key_variable=key_variable, stop=stop)
        return ListedModel(model_id, None)
    for known in listed:
        if known.id == model_id:
            return known
    raise InvalidValueError("model_id", model_id, f"is not among the models there: {names_of(listed)}")


def names_of(listed: list[ListedModel]) -> str:
    """The ids for a sentence, the first dozen of them."""
    if not listed:
        return "it lists none"
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(model.id for model in listed[:_NAMED]) + more


def _ask_for_one_token(
    no_list: NoModelListError, model: ModelConfig, api_key: str, *, key_variable: str, stop: StopSignal
) -> None:
    body: JSONObject = {
        "model": model.model_id,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 1,
        "stream": True,
    }
    with ChatConnection(model, api_key=api_key) as connection:
        try:
            connection.try_once(step=0, body=body, stop=stop, draft=no_draft)
        except CallInterrupted:
            raise _too_slow(model.base_url, model.read_timeout) from None
        except CallFailure as failed:
            failed.redact(sent_secrets(api_key, model.headers, key_variable))
            if failed.status == 403 and api_key and not is_about_key(failed.message):
                said = f"refuses access (status 403): {failed.message.rstrip('.')}"
                reason = f"{said}; this need not be the key: a region, a plan or a policy may be meant"
                raise InvalidValueError("base_url", model.base_url, reason) from failed
            if failed.status in {401, 403}:
                raise _key_refused(
                    model.base_url, failed.status, failed.message, api_key, key_variable
                ) from failed
            wrong_model = failed.status == 400
            field, value = ("model_id", model.model_id) if wrong_model else ("base_url", no_list.value)
            reason = f"{no_list.reason}. A chat request failed as well: {failed.message}"
            raise InvalidValueError(field, value, reason) from failed


def _key_refused(url: str, status: int, said: str, api_key: str, key_variable: str) -> InvalidValueError:
    answer = f"(status {status}): {said.rstrip('.')}"
    if not api_key:
        way_out = "name the variable that holds the key"
        return InvalidValueError("key", "no key", f"was sent, and {url} wants one {answer}; {way_out}")
    way_out = "name another variable, or put the right key into this one and start the lab again"
    named = key_variable or "the endpoint's key"
    return InvalidValueError("key", named, f"was refused by {url} {answer}; {way_out}")


def _too_slow(url: str, seconds: float) -> InvalidValueError:
    return InvalidValueError(
        "base_url", url, f"did not answer within {seconds:g} s; check that the server runs"
    )


def sent_secrets(api_key: str, headers: Mapping[str, str] | None, key_variable: str) -> Redactor:
    """Takes out what is sent to prove who one is: it must not come back in a text that is kept or shown."""
    sent = {f"header {name}": value for name, value in (headers or {}).items()}
    return Redactor({**sent, key_variable or "the endpoint's key": api_key})


def _get(
    url: str, api_key: str, headers: Mapping[str, str], timeout: float, redactor: Redactor
) -> tuple[int, str]:
    """Status and text of /models, without the secrets that were sent."""
    sent = dict(headers)
    if api_key and not any(name.lower() == "authorization" for name in sent):
        sent["Authorization"] = f"Bearer {api_key}"
    backend = AbortableBackend(max_bytes=_MAX_LIST_BYTES)
    transport = AbortableTransport(url, backend)
    try:
        with (
            deadline(timeout) as stop,
            stop.on_set(backend.abort),
            httpx2.Client(transport=transport, timeout=timeout, follow_redirects=True) as client,
            client.stream("GET", f"{url}/models", headers=sent) as response,
        ):
            data = b"".join(response.iter_bytes())
            return response.status_code, redactor.text(data.decode("utf-8", "replace"))
    except httpx2.TimeoutException:
        raise _too_slow(url, timeout) from None
    except httpx2.TooManyRedirects:
        raise InvalidValueError(
            "base_url", url, "redirects in a loop; write the address it should lead to"
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as failed:
        if stop.is_set():
            raise _too_slow(url, timeout) from None
        text = redactor.text(str(failed))
        if LONGER_THAN in text:
            raise NoModelListError("base_url", url, f"lists too many models ({text})") from None
        other = _by_other_scheme(url, text)
        way_out = untrusted(text) or f"; check that the server runs, and the port{other}"
        raise InvalidValueError("base_url", url, f"cannot be reached ({text}){way_out}") from None
    finally:
        backend.forget()


def _said(text: str) -> str:
    try:
        error = error_object(json.loads(text))
    except (ValueError, RecursionError):
        error = None
    return error_text(error) if error is not None else text.strip()[:200] or "nothing else"


def _by_other_scheme(url: str, text: str) -> str:
    """The way out where the connection failed as it does when one side encrypts and the other does not."""
    encrypted = url.startswith("https:")
    signs = _PLAIN_ANSWER if encrypted else _ENCRYPTED_ANSWER
    return _other_scheme(url) if any(sign in text.lower() for sign in signs) else ""


_PLAIN_ANSWER = ("wrong_version_number", "record_layer_failure", "packet_length_too_long", "http_request")
_ENCRYPTED_ANSWER = ("server disconnected", "connection reset", "illegal status line", "illegal request line")


def _other_scheme(url: str) -> str:
    """The same address with http for https, or the other way round, as a way out."""
    scheme, _, rest = url.partition(":")
    other = "http" if scheme == "https" else "https"
    spoken = "plain http" if other == "http" else "https"
    return f"; where the server speaks {spoken}, write {other}:{rest}"


def _hint(url: str) -> str:
    return " check the path" if url.endswith("/v1") else f" usually the base URL ends in /v1: try {url}/v1"


def _owner(entry: JSONObject) -> str:
    owner = entry.get("owned_by")
    return owner[:_OWNER_CHARACTERS] if isinstance(owner, str) else ""


def _window(entry: JSONObject) -> int | None:
    for path in _WINDOW_PATHS:
        value: Any = entry
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, int) and is_count(value) and value > 0:
            return value
    return None
