"""Answers to what was asked of a run or an experiment: a sentence for a script, a message for a form."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from lab.web.forms import beside_its_field
from lab.web.http import is_script

_TEXT = "text/plain; charset=utf-8"


def done(request: HttpRequest, page: str, pk: int, said: str) -> HttpResponseBase:
    """What holds now; a form goes back to the page of that name."""
    if is_script(request):
        return HttpResponse(said, content_type=_TEXT)
    messages.info(request, said)
    return redirect(page, pk)


def refused(
    request: HttpRequest, page: str, pk: int, errors: Mapping[str, str], *, field: str
) -> HttpResponseBase:
    """Why nothing was done, without the name of the field that nobody sees."""
    why = beside_its_field(field, " ".join(errors.values()))
    why = f"{why[:1].upper()}{why[1:]}{'' if why.endswith('.') else '.'}"
    if is_script(request):
        return HttpResponse(why, status=HTTPStatus.CONFLICT, content_type=_TEXT)
    messages.error(request, why)
    return redirect(page, pk)
