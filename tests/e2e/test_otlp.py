"""Spans that were acknowledged are there, whatever is killed; a trace that is sent becomes a run."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from collections.abc import Iterator

import httpx2
import pytest

from tests.otel_agent import as_protobuf, told, two_steps
from tests.whole_lab import WholeLab, wait_for

pytestmark = pytest.mark.e2e
BATCH = 50
TOKEN = """
from django.contrib.auth.models import User
from lab.services import tokens
made = tokens.make(by=User.objects.get(username="admin"), name="spans", role="operator")
print(json.dumps(made.secret))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[WholeLab]:
    with WholeLab() as started:
        yield started


@pytest.fixture(scope="module")
def token(lab: WholeLab) -> str:
    return str(lab.program(TOKEN))


class Sender:
    """Sends batch after batch, as fast as it is answered, and remembers which traces were acknowledged."""

    def __init__(self, lab: WholeLab, token: str) -> None:
        self.acknowledged: list[str] = []
        self._lab, self._token = lab, token
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def wait_for_more(self) -> None:
        """Until ten more were acknowledged than now."""
        before = len(self.acknowledged)
        wait_for(lambda: len(self.acknowledged) > before + 10, what="ten more acknowledgements")

    def _send(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        with httpx2.Client(base_url=self._lab.url, timeout=10.0) as client:
            while not self._over.is_set():
                trace = uuid.uuid4().hex
                spans = [
                    {"traceId": trace, "spanId": f"{n:016x}", "parentSpanId": "f" * 16, "name": "chat"}
                    for n in range(1, BATCH + 1)
                ]
                body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
                try:
                    answer = client.post("/api/otlp/v1/traces", content=body, headers=headers)
                except httpx2.HTTPError:
                    # The server is gone: what was not answered may or may not be there.
                    self._over.wait(0.2)
                    continue
                if answer.status_code == 200:
                    self.acknowledged.append(trace)


def test_what_was_acknowledged_outlives_a_kill_of_the_server(lab: WholeLab, token: str) -> None:
    with Sender(lab, token) as sender:
        for _ in range(3):
            sender.wait_for_more()
            os.kill(lab.child("uvicorn"), signal.SIGKILL)
            wait_for(lambda: lab.get("/healthz") == 200, what="the server is back")
    counts = dict(lab.query("SELECT trace_id, COUNT(*) FROM lab_span GROUP BY trace_id"))
    lost = [trace for trace in sender.acknowledged if counts.get(trace) != BATCH]
    assert len(sender.acknowledged) > 30
    assert lost == []


def test_a_trace_that_is_sent_becomes_a_run(lab: WholeLab, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-protobuf"}
    body = as_protobuf(told(two_steps))
    answer = httpx2.post(f"{lab.url}/api/otlp/v1/traces", content=body, headers=headers, timeout=30.0)
    assert answer.status_code == 200
    status, reason = wait_for(
        lambda: next(iter(lab.query("SELECT status, exit_reason FROM lab_run")), None), what="the trace's run"
    )
    assert (status, reason) == ("ended", "agent")
