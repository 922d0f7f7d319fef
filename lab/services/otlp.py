"""Spans that programs send by OpenTelemetry: stored before they are acknowledged, once each."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence

import zstandard
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from lab.engine.formats.otlp_wire import ReceivedSpan
from lab.engine.llm.base import JSONObject, clean_json
from lab.engine.redact import Redactor
from lab.models import Role, Span, Trace
from lab.services import known_secrets
from lab.services.access import for_role

# After its root a trace may still get spans that another process ended a moment before.
QUIET_AFTER_ROOT = dt.timedelta(seconds=2)
# A trace whose root never comes: its program was killed, or it sends parts of a larger whole.
QUIET_WITHOUT_ROOT = dt.timedelta(seconds=60)
_BATCH = 500
_LEVEL = 3


@for_role(Role.OPERATOR)
def receive(*, by: User, spans: Sequence[ReceivedSpan]) -> None:
    """Store what came, all or nothing, and return after the commit. A span that is there already is not new.

    Raises:
        AccessDeniedError: `by` is no operator.
        DatabaseError: nothing was stored; it can be sent again.
    """
    if not spans:
        return
    now = timezone.now()
    rows = _rows(spans, now)
    with transaction.atomic():
        _note_traces(spans, by, now)
        Span.objects.bulk_create(rows, batch_size=_BATCH, ignore_conflicts=True)


def due(*, now: dt.datetime | None = None) -> QuerySet[Trace]:
    """Traces that are quiet and have spans nobody looked at, the one that waits longest first."""
    now = now or timezone.now()
    quiet = Q(root_at__isnull=False, last_at__lte=now - QUIET_AFTER_ROOT) | Q(
        last_at__lte=now - QUIET_WITHOUT_ROOT
    )
    return Trace.objects.filter(quiet, waits=True).order_by("last_at")


def anything_due() -> bool:
    """Whether a trace waits to become a run."""
    return due().exists()


def spans_of(trace: Trace) -> Iterator[JSONObject]:
    """The bodies of a trace's spans as they were received, in the order in which they came."""
    unpacker = zstandard.ZstdDecompressor()
    for body in trace.spans.order_by("pk").values_list("body", flat=True).iterator(chunk_size=_BATCH):
        yield json.loads(unpacker.decompress(body))


def _rows(spans: Sequence[ReceivedSpan], now: dt.datetime) -> list[Span]:
    """One row a span: of one that stands twice in a request, the first."""
    redactor = known_secrets.redactor()
    packer = zstandard.ZstdCompressor(level=_LEVEL)
    rows: dict[tuple[str, str], Span] = {}
    for span in spans:
        key = (span.trace_id, span.span_id)
        if key not in rows:
            body = packer.compress(_written(span.body, redactor))
            rows[key] = Span(trace_id=span.trace_id, span_id=span.span_id, at=now, body=body)
    return list(rows.values())


def _written(body: JSONObject, redactor: Redactor) -> bytes:
    """JSON without known secrets, in UTF-8. Looking at it written is many times cheaper than at each text."""
    try:
        written = _dumped(body)
        data = written.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair.
        return _dumped(redactor.json(clean_json(body))).encode()
    return data if redactor.is_clean(written) else _dumped(redactor.json(body)).encode()


def _dumped(body: JSONObject) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _note_traces(spans: Sequence[ReceivedSpan], by: User, now: dt.datetime) -> None:
    """Locked in the order of their ids, so that two requests with the same traces wait for each other."""
    ids = sorted({span.trace_id for span in spans})
    Trace.objects.bulk_create(
        [Trace(trace_id=one, first_at=now, last_at=now, sent_by=by, waits=True) for one in ids],
        update_conflicts=True,
        update_fields=["last_at", "waits"],
        unique_fields=["trace_id"],
    )
    roots = {span.trace_id for span in spans if not span.parent_id}
    if roots:
        Trace.objects.filter(trace_id__in=roots, root_at=None).update(root_at=now)
