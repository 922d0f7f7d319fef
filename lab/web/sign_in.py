"""Signing in, by a link or with a password, and out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib.auth import login, logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from lab.services import people
from lab.services import sign_in as service
from lab.web.http import for_everyone


class SignInForm(forms.Form):
    """Name and password; the password is never sent back."""

    name = forms.CharField(
        label="Name", max_length=200, error_messages={"required": "write the name you have in this lab"}
    )
    password = forms.CharField(label="Password", strip=False, error_messages={"required": "write it too"})
    name.widget.attrs["autofocus"] = True

    shown_as: ClassVar[dict[str, str]] = {"password": "password"}


@for_everyone
@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Name and password, and how to get a link; whoever guesses is told how long to wait."""
    form = SignInForm(request.POST if request.method == "POST" else None)
    if request.method == "GET" or not form.is_valid():
        status = HTTPStatus.OK if request.method == "GET" else HTTPStatus.UNPROCESSABLE_ENTITY
        return _page(request, form, status=status)
    try:
        user = service.with_password(**form.cleaned_data, address=address_of(request))
    except service.SignInThrottledError as error:
        answer = _page(request, form, error=str(error), status=HTTPStatus.TOO_MANY_REQUESTS)
        answer.headers["Retry-After"] = str(error.seconds)
        return answer
    except service.SignInError as error:
        return _page(request, form, error=str(error), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect(target(request, request.POST.get("next", "")))


@for_everyone
@never_cache
@require_GET
def sign_in_by_link(request: HttpRequest, token: str) -> HttpResponse:
    """Use a link up and go to the first page; a link that holds no more says why."""
    if request.user.is_authenticated:
        return redirect("home")
    try:
        user = people.use_login_link(token=token)
    except people.SignInLinkError as error:
        return _page(request, SignInForm(), error=str(error), status=HTTPStatus.FORBIDDEN)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect("home")


@for_everyone
@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("sign_in")


def address_of(request: HttpRequest) -> str:
    """Where the request comes from. The server has put in what a proxy on this machine says of it."""
    return str(request.META.get("REMOTE_ADDR", ""))


def target(request: HttpRequest, address: str) -> str:
    """The address when it is a page of this lab, else the first page."""
    safe = url_has_allowed_host_and_scheme(
        address, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return address if safe else "/"


def _page(
    request: HttpRequest, form: SignInForm, *, error: str = "", status: int = HTTPStatus.OK
) -> HttpResponse:
    next_page = request.POST.get("next", "") or request.GET.get("next", "")
    context: dict[str, Any] = {"place": "", "form": form, "error": error, "next": next_page}
    return render(request, "people/sign_in.html", context, status=status)
