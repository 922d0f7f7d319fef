"""Conducting a preflight: asks the probes, stores each as it begins and ends, and listens for a cancel."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.conf import settings
from django.db import DatabaseError, connections
from django.utils import timezone

from lab.engine.errors import ExitReason, InvalidValueError
from lab.engine.llm.base import JSONObject
from lab.engine.llm.failures import CallInterrupted
from lab.engine.preflight.examination import Examination
from lab.engine.preflight.findings import Report
from lab.engine.stop import StopSignal
from lab.models import Preflight
from lab.services import endpoints, preflight_costs, preflights
from lab.services.known_secrets import redactor

# Of one request. A model on a processor reads a prompt for a minute; a server that hangs is given up after
# two of them.
REQUEST_SECONDS = 300.0
LOOK_SECONDS = 0.5
INTERRUPTED = "the command was interrupted before its end; run it again"
STOPPED = "the lab was stopped before its end; run it again"

_log = logging.getLogger(__name__)


def conduct(
    *,
    preflight: Preflight,
    stop: StopSignal | None = None,
    seconds: float = 0.0,
    on_probe: Callable[[JSONObject], None] = lambda shown: None,
) -> Preflight:
    """Examine the model of a preflight that this process holds, and store what was found; returns the row.

    `seconds` bounds each request (0: the lab's own bound), `stop` breaks off. `on_probe` hears of each probe
    as it is stored. Whatever goes wrong is the row's `error`.
    """
    work = _Work(preflight, stop or StopSignal(), on_probe)
    with work:
        work.examine(seconds or min(REQUEST_SECONDS, preflight.model.endpoint.read_timeout))
    return Preflight.objects.select_related("model__endpoint", "asked_by").get(pk=preflight.pk)


class _Work:
    """One examination, with a thread that keeps its lease and looks for a cancel."""

    def __init__(
        self, preflight: Preflight, stop: StopSignal, on_probe: Callable[[JSONObject], None]
    ) -> None:
        self._preflight, self._stop, self._hears = preflight, stop, on_probe
        self._redactor = redactor()
        self._probes: list[JSONObject] = []
        self._cancelled_by = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"preflight-{preflight.pk}", daemon=True)

    def __enter__(self) -> _Work:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def examine(self, seconds: float) -> None:
        """Ask everything and store the end, unless somebody else has ended it."""
        model = self._preflight.model
        try:
            examination = Examination(
                endpoints.model_config(model),
                api_key=endpoints.key_for(model.endpoint),
                key_variable=model.endpoint.key_variable,
                wanted_windows=preflights.wanted_windows(),
                over_limit=self._preflight.over_limit,
                seconds=seconds,
                stop=self._stop,
                on_probe=self._on_probe,
            )
            self._end(examination.run())
        except CallInterrupted:
            self._end_with(self._why_stopped())
        except InvalidValueError as error:
            self._end_with(str(error))
        except DatabaseError as error:
            # Left to the tick: it ends what nobody keeps.
            _log.warning("preflight %s cannot be stored (%s)", self._preflight.pk, error)
        except Exception as error:
            _log.exception("preflight %s broke off", self._preflight.pk)
            self._end_with(f"the lab made a mistake ({type(error).__name__}); its log says more")

    def _why_stopped(self) -> str:
        if self._cancelled_by:
            return preflights.cancelled_words(self._cancelled_by)
        return INTERRUPTED if self._stop.reason == ExitReason.CANCELLED else STOPPED

    def _on_probe(self, shown: JSONObject) -> None:
        shown = self._redactor.json(preflight_costs.with_cost(self._preflight.model, shown))
        if self._probes and self._probes[-1]["name"] == shown["name"]:
            self._probes[-1] = shown
        else:
            self._probes.append(shown)
        held = preflights.held_by(self._preflight)
        if not held.update(probes=self._probes, lease_until=preflights.lease_end()):
            self._lose()
        self._hears(shown)

    def _end(self, report: Report) -> None:
        preflights.held_by(self._preflight).update(
            state=Preflight.State.ENDED,
            outcome=report.outcome,
            findings=self._redactor.json([finding.to_json() for finding in report.findings]),
            measured=self._redactor.json(report.measured),
            ended_at=timezone.now(),
        )

    def _end_with(self, error: str) -> None:
        preflights.held_by(self._preflight).update(
            state=Preflight.State.ENDED, error=self._redactor.text(error), ended_at=timezone.now()
        )

    def _lose(self) -> None:
        self._stop.set(ExitReason.INFRASTRUCTURE_ERROR)

    def _keep(self) -> None:
        renew_every = settings.LAB_LEASE_SECONDS / 5
        waited = 0.0
        try:
            while not self._done.wait(LOOK_SECONDS):
                waited += LOOK_SECONDS
                try:
                    self._look(renew=waited >= renew_every)
                except DatabaseError as error:
                    connections.close_all()
                    _log.warning("preflight %s: its lease cannot be kept yet (%s)", self._preflight.pk, error)
                    continue
                if waited >= renew_every:
                    waited = 0.0
        finally:
            connections.close_all()

    def _look(self, *, renew: bool) -> None:
        held = preflights.held_by(self._preflight)
        if renew:
            held.update(lease_until=preflights.lease_end())
        names = list(held.values_list("cancelled_by__username", flat=True))
        if not names:
            self._lose()
        elif names[0]:
            self._cancelled_by = names[0]
            self._stop.set(ExitReason.CANCELLED)
