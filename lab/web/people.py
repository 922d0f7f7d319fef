"""Signing in and out, and how pages look for a person."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from lab.engine.errors import InvalidValueError
from lab.models import Role
from lab.services import people
from lab.web.http import for_everyone, for_role, signed_in


@for_everyone
@require_GET
def sign_in(request: HttpRequest) -> HttpResponse:
    """Says how to get a link; there are no passwords."""
    return render(request, "people/sign_in.html", {"place": ""})


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
        return render(request, "people/sign_in.html", {"error": str(error)}, status=403)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect("home")


@for_everyone
@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("sign_in")


@require_http_methods(["GET", "POST"])
@for_role(Role.VIEWER)
def person_settings(request: HttpRequest) -> HttpResponse:
    """Theme and single keys of the person."""
    user = signed_in(request)
    if request.method == "POST":
        try:
            people.set_theme(user=user, theme=request.POST.get("theme", ""))
        except InvalidValueError as error:
            messages.error(request, str(error))
        else:
            people.set_single_keys(user=user, on=request.POST.get("single_keys") == "on")
            messages.success(request, "Saved.")
        return redirect("settings")
    return render(request, "people/settings.html", {"place": "settings"})


@require_POST
@for_role(Role.VIEWER)
def theme(request: HttpRequest) -> HttpResponse:
    """Change the theme and stay where one is."""
    try:
        people.set_theme(user=signed_in(request), theme=request.POST.get("theme", ""))
    except InvalidValueError as error:
        messages.error(request, str(error))
    target = request.POST.get("next", "/")
    safe = url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()})
    return redirect(target if safe else "home")
