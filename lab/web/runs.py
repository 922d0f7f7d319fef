"""The page of one run: its trajectory as a text, with everything that proves its verdict."""

from __future__ import annotations

import time
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.urls import path
from django.views.decorators.http import require_safe

from lab.models import Role, Run
from lab.render.ansi import ansi
from lab.render.blocks import whole_block, whole_words
from lab.render.diff import unified
from lab.render.events import minimap
from lab.render.markdown import render_markdown
from lab.services import exports, gradings, label_pages, records, run_pages, trajectories
from lab.services.blobs import BodyMissingError
from lab.web import run_asks
from lab.web.http import for_role, holds, require, signed_in

# Up to this many events the minimap costs less than fetching it apart.
_MAP_AT_ONCE = 250
_BODY_CHARACTERS = 400_000
_PATCH_CHARACTERS = 1_000_000


@require_safe
@for_role(Role.VIEWER)
def run_detail(request: HttpRequest, run_id: int) -> HttpResponse:
    """Opens at the end while the run goes on, at the start when it has ended, around `?at=` when asked."""
    run = run_pages.find_run(run_id)
    if run is None:
        raise Http404(f"There is no run {run_id}.")
    panel = run_pages.panel(run)
    at = _number(request, "at")
    if at is not None:
        window = trajectories.window(run_id=run_id, at=at, last_seq=run.last_seq)
    elif panel.ended:
        window = trajectories.window(run_id=run_id, after=panel.start_seq - 1, last_seq=run.last_seq)
    else:
        window = trajectories.window(run_id=run_id, from_end=True, last_seq=run.last_seq)
    return render(
        request,
        "runs/detail.html",
        {
            "place": "experiments",
            "run_id": run_id,
            "panel": panel,
            "window": window,
            # The socket goes on from what these steps show, not from a moment later.
            "last_seq": run.last_seq if window.more_after else window.last_seq,
            "now_ms": int(time.time() * 1000),
            "at": at,
            "follow": not panel.ended and at is None,
            "minimap": _minimap(run_id) if run.last_seq <= _MAP_AT_ONCE else None,
            "statement": render_markdown(run.task.statement),
            "may_control": holds(request, Role.OPERATOR),
            "may_label": panel.ended and holds(request, Role.ANNOTATOR),
            **_readings(request, run_id),
            "exports": exports.CHOICES,
        },
    )


def _readings(request: HttpRequest, run_id: int) -> dict[str, Any]:
    """Who said why the run failed, and how many readings the person may not see yet."""
    found, hidden = label_pages.visible_annotations(signed_in(request), run_id)
    return {"readings": found, "readings_hidden": hidden}


def _minimap(run_id: int) -> str:
    return minimap(trajectories.outline(run_id=run_id))


def _number(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


@require_safe
@for_role(Role.VIEWER)
def run_map(request: HttpRequest, run_id: int) -> HttpResponse:
    """The links of the minimap."""
    get_object_or_404(Run, pk=run_id)
    return HttpResponse(_minimap(run_id))


@require_safe
@for_role(Role.VIEWER)
def run_steps(request: HttpRequest, run_id: int) -> HttpResponse:
    """About 50 steps before or after an event, with a link to what lies beyond them."""
    get_object_or_404(Run, pk=run_id)
    before, after = _number(request, "before"), _number(request, "after")
    window = trajectories.window(run_id=run_id, before=before, after=after if before is None else None)
    edge = "before" if before is not None else "after"
    return render(request, "runs/_steps.html", {"run_id": run_id, "window": window, "edge": edge})


@require_safe
@for_role(Role.VIEWER)
def event_body(request: HttpRequest, run_id: int, seq: int) -> HttpResponse:
    """One text of an event as HTML, up to 400,000 characters of it."""
    part = request.GET.get("part", "observation")
    try:
        body = _body(request, run_id, seq, part)
    except _BodyGone as gone:
        if request.headers.get("HX-Request") != "true":
            raise
        # Said where the text would stand: a page takes no error into itself.
        return render(request, "runs/_missing.html", {"reason": str(gone)})
    shown = body.text[:_BODY_CHARACTERS]
    if body.kind in {"model_call_finished", "message_sent"} and part in {"content", "reasoning"}:
        return HttpResponse(whole_words(shown, reasoning=part == "reasoning"))
    block = whole_block(
        shown,
        run=run_id,
        seq=seq,
        part=part,
        title=_TITLES.get(part, "Text"),
        path=body.path if part in {"content", "file_text"} else "",
        rest=len(body.text) - len(shown),
        size_bytes=len(body.text.encode("utf-8", "surrogatepass")),
    )
    return HttpResponse(block)


_TITLES = {
    "stdout": "Output",
    "stderr": "Error output",
    "observation": "What the model saw",
    "whole": "All of it, more than the model saw",
    "content": "Content",
    "raw_arguments": "Raw arguments",
    "reply": "The reply as the model wrote it",
}


class _BodyGone(Http404):
    """A text was stored, and its body is missing or damaged."""


def _body(request: HttpRequest, run_id: int, seq: int, part: str) -> trajectories.Body:
    if records.is_for_operators(run_id=run_id, seq=seq, part=part):
        require(request, Role.OPERATOR)
    try:
        return trajectories.body(run_id=run_id, seq=seq, part=part)
    except BodyMissingError as error:
        raise _BodyGone(str(error)) from error
    except LookupError as error:
        raise Http404(str(error)) from error


@require_safe
@for_role(Role.VIEWER)
def event_raw(request: HttpRequest, run_id: int, seq: int) -> HttpResponse:
    """One text of an event as it was printed, every byte of it but those of what looks like a key."""
    part = request.GET.get("part", "observation")
    body = _body(request, run_id, seq, part)
    return _download(body, f"run-{run_id}-event-{seq}-{part.replace('.', '-')}", "txt")


# Before a patch any text may stand: programs that apply one begin at its first file.
_MASKED_NOTE = "[This copy is masked: it holds text that looks like a key, see “masked, looks like”.]\n"


def _download(body: trajectories.Body, name: str, ending: str) -> HttpResponse:
    """A file. One that is not as it was printed says so in its first line and in its name."""
    text, name = (_MASKED_NOTE + body.text, f"{name}-masked") if body.masked else (body.text, name)
    return HttpResponse(
        text.encode("utf-8", "surrogatepass"),
        content_type="text/plain; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}.{ending}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


@require_safe
@for_role(Role.VIEWER)
def run_patch(request: HttpRequest, run_id: int) -> HttpResponse:
    """The patch to download; with `?show=diff` as a coloured diff."""
    event = run_pages.patch_event(get_object_or_404(Run, pk=run_id))
    if event is None:
        raise Http404(f"Run {run_id} has no patch yet.")
    body = _body(request, run_id, event.seq, "patch")
    if request.GET.get("show") == "diff":
        return HttpResponse(unified(body.text[:_PATCH_CHARACTERS]))
    return _download(body, f"run-{run_id}", "patch")


@require_safe
@for_role(Role.VIEWER)
def run_tests(request: HttpRequest, run_id: int) -> HttpResponse:
    """Every test of the latest grading, and for those who may read it what the test command printed."""
    get_object_or_404(Run, pk=run_id)
    shown = {
        "tests": gradings.all_tests(run_id=run_id),
        "run_id": run_id,
        "grading_seq": gradings.newest_grading(run_id=run_id),
    }
    return render(request, "runs/_tests.html", shown)


@require_safe
@for_role(Role.OPERATOR)
def test_log(request: HttpRequest, test_id: int) -> HttpResponseBase:
    """The log of one test. It shows the source of hidden tests, unlike status and assertion line."""
    try:
        log = gradings.log_of_test(test_id=test_id)
    except (LookupError, BodyMissingError) as error:
        raise Http404(str(error)) from error
    return render(request, "runs/_log.html", {"log": ansi(log[:_BODY_CHARACTERS])})


urlpatterns = [
    path("runs/<int:run_id>/", run_detail, name="run"),
    path("runs/<int:run_id>/map", run_map, name="run_map"),
    path("runs/<int:run_id>/steps", run_steps, name="run_steps"),
    path("runs/<int:run_id>/events/<int:seq>/body", event_body, name="event_body"),
    path("runs/<int:run_id>/events/<int:seq>/raw", event_raw, name="event_raw"),
    path("runs/<int:run_id>/patch", run_patch, name="run_patch"),
    path("runs/<int:run_id>/tests", run_tests, name="run_tests"),
    *run_asks.urlpatterns,
    path("runs/tests/<int:test_id>/log", test_log, name="test_log"),
]
