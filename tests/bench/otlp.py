"""I1: spans stored a second by the endpoint, over HTTP, acknowledged after commit; one JSON.

Four senders post batches of 512 spans as OpenTelemetry's exporter does, to a lab of one process on SQLite.
The target is 2,060 spans a second, which is 20 times what a peer stored (103 a second, measured apart: it
cannot be installed beside the lab). The same bytes written to a plain SQLite table, in the same batches and
alternating with the endpoint, are the ratio's other side: how much of the machine's own rate is left.

    python -m tests.bench.otlp
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import httpx2

from tests.otel_agent import Told, as_protobuf, told
from tests.whole_lab import WholeLab

PEER_A_SECOND = 103
BATCH = 512
SENDERS = 4
ROUNDS = 5
BATCHES = 4


def batch() -> bytes:
    """One request of 512 spans of model calls with some words in them."""

    def work(agent: Told) -> None:
        task = {"role": "user", "parts": [{"type": "text", "content": "x" * 400}]}
        for number in range(BATCH):
            agent.chat([task], [{"type": "text", "content": f"answer {number} " + "y" * 200}], "stop")

    return as_protobuf(told(work))


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    bodies = [batch() for _ in range(SENDERS * BATCHES)]
    with WholeLab() as lab:
        token = lab.program(
            "from django.contrib.auth.models import User\n"
            "from lab.services import tokens\n"
            "made = tokens.make(by=User.objects.get(username='admin'), name='bench', role='operator')\n"
            "print(json.dumps(made.secret))"
        )
        ours: list[float] = []
        plain: list[float] = []
        for _ in range(ROUNDS):
            ours.append(_posted(lab.url, str(token), _fresh(bodies)))
            plain.append(_written(Path(os.environ.get("TMPDIR", "/tmp")), bodies))
        stored = lab.value("SELECT COUNT(*) FROM lab_span")
    sent = ROUNDS * len(bodies) * BATCH
    rates = {"spans_a_second": round(statistics.median(ours)), "best": round(max(ours))}
    print(
        json.dumps(
            {
                "I1 stored spans": {
                    **rates,
                    "over_peer": round(statistics.median(ours) / PEER_A_SECOND, 1),
                    "share_of_plain_sqlite": round(statistics.median(ours) / statistics.median(plain), 3),
                    "acknowledged_and_stored": stored == sent,
                }
            },
            indent=2,
        )
    )


def _fresh(bodies: list[bytes]) -> list[bytes]:
    """The same spans under new trace ids: those that are there already cost nothing."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    made = []
    for body in bodies:
        request = ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                trace = uuid.uuid4().bytes
                for span in of_scope.spans:
                    span.trace_id = trace
        made.append(request.SerializeToString())
    return made


def _posted(url: str, token: str, bodies: list[bytes]) -> float:
    """Spans a second, from the first request to the last acknowledgement."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-protobuf"}
    left = list(bodies)
    lock = threading.Lock()

    def send() -> None:
        with httpx2.Client(timeout=60.0) as client:
            while True:
                with lock:
                    if not left:
                        return
                    body = left.pop()
                answer = client.post(f"{url}/api/otlp/v1/traces", content=body, headers=headers)
                answer.raise_for_status()

    threads = [threading.Thread(target=send) for _ in range(SENDERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(bodies) * BATCH / (time.perf_counter() - began)


def _written(folder: Path, bodies: list[bytes]) -> float:
    """Rows a second of a plain table with the same bytes, a transaction a batch."""
    path = folder / f"plain-{uuid.uuid4().hex}.sqlite3"
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "CREATE TABLE s (b BLOB)"):
            connection.execute(statement)
        began = time.perf_counter()
        for body in bodies:
            rows: list[tuple[Any]] = [(body[: len(body) // BATCH],)] * BATCH
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO s VALUES (?)", rows)
            connection.execute("COMMIT")
        return len(bodies) * BATCH / (time.perf_counter() - began)
    finally:
        connection.close()
        for left in folder.glob(f"{path.name}*"):
            left.unlink()


if __name__ == "__main__":
    main()
