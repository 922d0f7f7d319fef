"""How pages look for a person, and their password."""

from __future__ import annotations

from http import HTTPStatus

from django import forms
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from lab.engine.errors import InvalidValueError
from lab.models import Role
from lab.services import people
from lab.services import sign_in as service
from lab.services.errors import FieldErrors
from lab.web.http import for_role, signed_in
from lab.web.sign_in import address_of, target


class PasswordForm(forms.Form):
    """A new password, and the one that holds now. None is ever sent back."""

    current = forms.CharField(label="Current password", strip=False, required=False)
    new = forms.CharField(label="New password", strip=False, required=False)
    again = forms.CharField(label="New password again", strip=False, required=False)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.VIEWER)
def person_settings(request: HttpRequest) -> HttpResponse:
    """Theme and single keys of the person, and their password."""
    user = signed_in(request)
    if request.method == "POST":
        try:
            people.set_theme(by=user, theme=request.POST.get("theme", ""))
        except InvalidValueError as error:
            messages.error(request, str(error))
        else:
            people.set_single_keys(by=user, on=request.POST.get("single_keys") == "on")
            messages.success(request, "Saved.")
        return redirect("settings")
    return _page(request, PasswordForm(), status=HTTPStatus.OK)


@sensitive_post_parameters()
@require_POST
@for_role(Role.VIEWER)
def password(request: HttpRequest) -> HttpResponse:
    """Set or change the password. Every other session of the person ends, this one gets a new key."""
    user = signed_in(request)
    form = PasswordForm(request.POST)
    if form.is_valid():
        try:
            service.set_password(by=user, address=address_of(request), **form.cleaned_data)
        except FieldErrors as error:
            for name, text in error.errors.items():
                form.add_error(name, text)
        else:
            update_session_auth_hash(request, user)
            messages.success(request, "The password is set. You are signed out everywhere else.")
            return redirect("settings")
    return _page(request, form, status=HTTPStatus.UNPROCESSABLE_ENTITY)


@require_POST
@for_role(Role.VIEWER)
def theme(request: HttpRequest) -> HttpResponse:
    """Change the theme and stay where one is."""
    try:
        people.set_theme(by=signed_in(request), theme=request.POST.get("theme", ""))
    except InvalidValueError as error:
        messages.error(request, str(error))
    return redirect(target(request, request.POST.get("next", "/")))


def _page(request: HttpRequest, form: PasswordForm, *, status: int) -> HttpResponse:
    context = {"place": "settings", "tab": "own", "form": form}
    return render(request, "people/settings.html", context, status=status)
