"""Writing harnesses: the editor for a clone or a new version, and import of YAML."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.views.decorators.http import require_http_methods, require_safe

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.problems import InvalidConfigError, Problem
from lab.models import HarnessVersion, Role
from lab.services import harness_drafts, harness_pages, harness_requests, harnesses
from lab.services.harness_differences import shown_differences
from lab.services.harness_drafts import Draft
from lab.services.harnesses import NewerVersionError
from lab.web.forms import row_number
from lab.web.harness_fields import located_in, said_of, sections_of, tool_fields
from lab.web.harness_form import HarnessForm, tool_form
from lab.web.harnesses import request_choices
from lab.web.http import for_role, is_script, signed_in

# A file that is no text of a harness is not read to its end.
_MOST_BYTES = 8_000_000


@require_safe
@for_role(Role.OPERATOR)
def harness_new(request: HttpRequest) -> HttpResponseBase:
    """To the editor of a clone of the preset that the list's form names."""
    asked = row_number(request.GET.get("from", ""))
    if not HarnessVersion.objects.filter(pk=asked).exists():
        messages.warning(request, "Choose the preset that the new harness begins as.")
        return redirect("harnesses")
    return redirect("harness_clone", asked)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def harness_clone(request: HttpRequest, pk: int) -> HttpResponseBase:
    """A new harness that begins as this version."""
    version = get_object_or_404(HarnessVersion.objects.select_related("harness"), pk=pk)
    return _editor(request, version, is_clone=True)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def harness_edit(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The next version of a harness; of a preset there is none, it can be cloned."""
    version = get_object_or_404(HarnessVersion.objects.select_related("harness"), pk=pk)
    if version.harness.preset:
        messages.warning(request, f"{version} is a preset and read-only. This is a clone of it.")
        return redirect("harness_clone", pk)
    return _editor(request, version, is_clone=False)


@dataclass(frozen=True)
class _Editing:
    """What is being edited: the version it begins as, and as what.

    `seen` is the harness's newest version that the person was told of.
    """

    request: HttpRequest
    version: HarnessVersion
    base: HarnessConfig
    is_clone: bool
    seen: int

    def checked(self, form: HarnessForm) -> Draft:
        raw, unread = form.raw()
        found = [one.problem for one in unread]
        return harness_drafts.checked(raw, unread=found, based_on=self.base)


def _editor(request: HttpRequest, version: HarnessVersion, *, is_clone: bool) -> HttpResponseBase:
    """Shows the form; for a form that was sent: checks it, adds a tool, or saves it, as its button says."""
    base = harness_pages.readable_config(version)
    if base is None:
        messages.error(request, f"This lab cannot read the content of {version}.")
        return redirect("harness", version.pk)
    seen = row_number(request.POST.get("seen_newest", "")) or version.version
    editing = _Editing(request, version, base, is_clone, seen)
    name = harnesses.free_name(name=version.harness.name) if is_clone else version.harness.name
    begun = base.model_copy(update={"name": name})
    if request.method != "POST":
        form = HarnessForm.of(begun)
        return _page(editing, form, editing.checked(form))
    form = HarnessForm.posted(request.POST, begun)
    if not is_clone:
        form.values["name"] = name
    action = request.POST.get("do", "save")
    return _add_tool(editing, form) if action == "add" else _answer(editing, form, action)


def _answer(editing: _Editing, form: HarnessForm, action: str) -> HttpResponseBase:
    """A form that was sent: saved, or what is wrong with it and what it would become."""
    draft, is_told = editing.checked(form), False
    if action == "save" and draft.same_as is not None:
        # Nothing would be made, and what was typed beside what a model sees would be lost.
        reason = f"is what {draft.same_as} is already; change something that a model sees, or use that one"
        draft = replace(draft, problems=[Problem("harness", "", reason), *draft.problems])
    elif action == "save" and draft.config is not None:
        try:
            return _save(editing, draft.config)
        except NewerVersionError as refused:
            draft, is_told = editing.checked(form), True
            draft = replace(draft, problems=[*refused.problems, *draft.problems])
        except InvalidConfigError as refused:
            # Somebody else took the name in this moment.
            draft = Draft(None, refused.problems)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if action == "save" else HTTPStatus.OK
    if is_script(editing.request) and action != "render":
        context = _checked_context(editing, form, draft, is_told=is_told)
        return render(editing.request, "harnesses/_checked.html", context, status=status)
    return _page(editing, form, draft, status=status)


def _save(editing: _Editing, config: HarnessConfig) -> HttpResponseBase:
    request = editing.request
    version = harnesses.create_version(
        by=signed_in(request),
        config=config,
        based_on=editing.version,
        seen_newest=None if editing.is_clone else editing.seen,
    )
    messages.success(request, f"{version} can be chosen under Launch.")
    if is_script(request):
        response = HttpResponse(status=HTTPStatus.CREATED)
        response.headers["Location"] = reverse("harness", args=[version.pk])
        return response
    return redirect("harness", version.pk)


def _add_tool(editing: _Editing, form: HarnessForm) -> HttpResponseBase:
    request = editing.request
    try:
        tool = harness_drafts.offered_tool(request.POST.get("add", ""))
    except InvalidValueError as refused:
        draft = Draft(None, [_as_problem(refused)])
        return _page(editing, form, draft, status=HTTPStatus.UNPROCESSABLE_ENTITY)
    added = tool_form(tool, uuid4().hex[:8])
    if is_script(request):
        context = {"tool": tool_fields(added, []), "opened": True}
        return render(request, "harnesses/_editor_tool.html", context)
    form.tools.append(added)
    return _page(editing, form, editing.checked(form))


def _page(editing: _Editing, form: HarnessForm, draft: Draft, *, status: int = HTTPStatus.OK) -> HttpResponse:
    located = located_in(form, draft.problems)
    context = {
        "place": "harnesses",
        "sections": sections_of(form, located, name_is_fixed=not editing.is_clone),
        "edited_tools": [tool_fields(tool, located) for tool in form.tools],
        "offered": harness_drafts.offered_tools(),
        **_checked_context(editing, form, draft, is_told=True),
    }
    return render(editing.request, "harnesses/editor.html", context, status=status)


def _checked_context(editing: _Editing, form: HarnessForm, draft: Draft, *, is_told: bool) -> dict[str, Any]:
    """What is said of a draft beside its form: problems, what it would become, and the request.

    A newer version is shown at once, and counts as seen once the person `is_told` of it: by the page that
    was asked for, or by a save that was refused. A check beside one's typing can be overlooked.
    """
    newer = None if editing.is_clone else harness_drafts.newer_than(editing.version)
    choices = request_choices(editing.request.POST or editing.request.GET)
    context: dict[str, Any] = {
        "version": editing.version,
        "is_clone": editing.is_clone,
        "newer": newer,
        "seen_newest": newer.version if newer and is_told else editing.seen,
        "draft": draft,
        "located": located_in(form, draft.problems),
        "differences": shown_differences(draft.difference.content) if draft.difference else [],
        "beside": _beside(draft),
        **choices,
    }
    if draft.config is None or choices["task"] is None:
        context["not_yet"] = (
            "It is shown when the errors are mended." if choices["task"] else "There is no task."
        )
        return context
    try:
        context["shown"], context["before"] = (
            harness_requests.shown_request(config=one, task=choices["task"], model=choices["model"])
            for one in (draft.config, editing.base)
        )
    except InvalidValueError as refused:
        context["why_not"] = str(refused)
    return context


def _beside(draft: Draft) -> list[str]:
    """What else differs than what a model sees; where a version is from, the lab says itself."""
    found = draft.difference.beside if draft.difference else []
    return [one.path for one in found if not one.path.startswith("source")]


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def harness_import(request: HttpRequest) -> HttpResponseBase:
    """A YAML file or text: first what it would become, then, on asking, stored."""
    context: dict[str, Any] = {"place": "harnesses", "text": ""}
    if request.method != "POST":
        return render(request, "harnesses/import.html", context)
    try:
        text = _yaml_text(request)
        draft = harness_drafts.checked_yaml(text)
    except InvalidValueError as refused:
        problem = _as_problem(refused)
        context |= {"text": request.POST.get("text", ""), "draft": Draft(None, [problem])}
        context["said"] = [said_of(problem)]
        return render(request, "harnesses/import.html", context, status=HTTPStatus.UNPROCESSABLE_ENTITY)
    seen = _seen(draft)
    if seen and request.POST.get("do") == "store" and request.POST.get("seen") == seen:
        try:
            version = harnesses.import_yaml(by=signed_in(request), text=text)
        except InvalidValueError as refused:
            draft = Draft(None, [_as_problem(refused)])
        else:
            messages.success(request, f"{version} is imported and can be chosen under Launch.")
            return redirect("harness", version.pk)
    context |= {
        "text": text,
        "draft": draft,
        "said": [said_of(problem) for problem in draft.problems],
        "seen": seen,
        "differences": shown_differences(draft.difference.content) if draft.difference else [],
    }
    status = HTTPStatus.OK if draft.config is not None else HTTPStatus.UNPROCESSABLE_ENTITY
    return render(request, "harnesses/import.html", context, status=status)


def _seen(draft: Draft) -> str:
    """What somebody has been shown, so that nothing else is stored than that; "" for what cannot be."""
    return f"{draft.config.digest} {draft.saved_as}" if draft.config is not None else ""


def _yaml_text(request: HttpRequest) -> str:
    """The text that was sent, that of the file before the one in the field.

    Raises:
        InvalidValueError: nothing was sent, too much of it, or no text.
    """
    file = request.FILES.get("file")
    if file is None:
        text = str(request.POST.get("text", "")).replace("\r\n", "\n")
        if not text.strip():
            raise InvalidValueError("YAML", "", "is empty; choose a file or paste its text")
        return text
    if (file.size or 0) > _MOST_BYTES:
        raise InvalidValueError(
            "file", str(file.name), f"has more than {_MOST_BYTES:,} bytes; no harness has"
        )
    try:
        return str(file.read(), "utf-8-sig")
    except UnicodeDecodeError as wrong:
        reason = f"is no text in UTF-8 (byte {wrong.start}); save it as UTF-8"
        raise InvalidValueError("file", str(file.name), reason) from None


def _as_problem(refused: InvalidValueError) -> Problem:
    return Problem(refused.field, repr(str(refused.value)[:80]), refused.reason)


urlpatterns = [
    path("harnesses/new/", harness_new, name="harness_new"),
    path("harnesses/import/", harness_import, name="harness_import"),
    path("harnesses/<int:pk>/clone/", harness_clone, name="harness_clone"),
    path("harnesses/<int:pk>/edit/", harness_edit, name="harness_edit"),
]
