"""Servers with a certificate that nobody but their owner knows."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.llm import transport
from lab.engine.llm.base import ModelConfig
from lab.engine.llm.endpoint import check_model
from lab.engine.llm.failures import CallFailure
from lab.engine.llm.openai_chat import ChatConnection
from lab.engine.stop import StopSignal
from tests.fakes.openai_server import FakeOpenAI, html, says


def own_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is signed by itself, and its key."""
    there, key = folder / "server.pem", folder / "server.key"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=rack"
    words += f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {there}"
    subprocess.run(words.split(), check=True, capture_output=True)
    return there, key


@pytest.fixture
def certificate(tmp_path: Path) -> Iterator[Path]:
    """The certificate of `secured`; what processes remember of certificates is forgotten around the test."""
    transport.tls_context.cache_clear()
    yield own_certificate(tmp_path)[0]
    transport.tls_context.cache_clear()


@pytest.fixture
def secured(certificate: Path) -> Iterator[FakeOpenAI]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with FakeOpenAI(says("hello"), tls=context) as server:
        yield server


def asked(server: FakeOpenAI) -> str:
    model = ModelConfig(name="fake", model_id="fake", base_url=server.base_url)
    with ChatConnection(model, api_key="") as connection:
        body = {"model": "fake", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        return connection.try_once(step=1, body=body, stop=StopSignal(), draft=lambda **_: None).content


def test_a_certificate_of_ones_own_is_refused_with_the_variable_that_names_it(
    secured: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(InvalidValueError) as raised:
        check_model(secured.base_url, "fake", "")
    assert raised.value.field == "base_url"
    assert "SSL_CERT_FILE" in raised.value.reason
    assert "check that the server runs" not in raised.value.reason
    with pytest.raises(CallFailure) as failed:
        asked(secured)
    assert "SSL_CERT_FILE" in failed.value.message
    assert not failed.value.retryable
    assert secured.requests == []


def test_the_other_scheme_is_named_where_one_side_alone_encrypts(secured: FakeOpenAI) -> None:
    plain_to_secured = secured.base_url.replace("https:", "http:")
    with pytest.raises(InvalidValueError) as raised:
        check_model(plain_to_secured, "fake", "")
    assert f"write {secured.base_url}" in raised.value.reason
    with FakeOpenAI(says("hello")) as server, pytest.raises(InvalidValueError) as raised:
        check_model(server.base_url.replace("http:", "https:"), "fake", "")
    assert f"write {server.base_url}" in raised.value.reason


def test_a_server_that_answers_in_words_that_it_wants_https_is_understood() -> None:
    told = html("<html>400 The plain HTTP request was sent to HTTPS port</html>", status=400)
    with FakeOpenAI(listed=told) as server, pytest.raises(InvalidValueError) as raised:
        check_model(server.base_url, "fake", "")
    assert f"write {server.base_url.replace('http:', 'https:')}" in raised.value.reason


def test_a_server_whose_certificate_the_variable_names_is_asked(
    secured: FakeOpenAI, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert check_model(secured.base_url, "fake", "").id == "fake"
    assert asked(secured) == "hello"
