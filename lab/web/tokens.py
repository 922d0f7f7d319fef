"""API tokens: a person's own, and for admins everybody's."""

from __future__ import annotations

import datetime as dt
from http import HTTPStatus

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from lab.models import ApiToken, Role
from lab.services import access, tokens
from lab.services.errors import FieldErrors
from lab.web.forms import beside_its_field
from lab.web.http import for_role, signed_in


class TokenForm(forms.Form):
    """A new token."""

    name = forms.CharField(label="Name", required=False)
    role = forms.CharField(label="Role", required=False, initial=str(Role.VIEWER))
    days = forms.CharField(label="Holds for", required=False)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.VIEWER)
def token_list(request: HttpRequest) -> HttpResponse:
    """The tokens one sees, and a form for a new one, whose text is shown once."""
    form = TokenForm(request.POST if request.method == "POST" else None)
    if request.method != "POST":
        return _page(request, form)
    if form.is_valid():
        try:
            made = tokens.make(by=signed_in(request), **form.cleaned_data)
        except FieldErrors as error:
            for name, text in error.errors.items():
                form.add_error(name, beside_its_field(name, text))
        else:
            return _page(request, TokenForm(), made=made)
    return _page(request, form, status=HTTPStatus.UNPROCESSABLE_ENTITY)


@require_POST
@for_role(Role.VIEWER)
def revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    """Revoke a token of one's own; an admin anybody's. Others' tokens do not exist for anybody else."""
    user = signed_in(request)
    token = get_object_or_404(tokens.visible(by=user), pk=token_id)
    tokens.revoke(by=user, token=token)
    messages.success(request, f"The token {token.name} lets nobody in any more.")
    return redirect("tokens")


def _page(
    request: HttpRequest, form: TokenForm, *, made: tokens.Made | None = None, status: int = HTTPStatus.OK
) -> HttpResponse:
    user = signed_in(request)
    own = access.require(user, Role.VIEWER)
    now = timezone.now()
    rows = [(token, _state(token, now)) for token in tokens.visible(by=user)]
    context = {
        "place": "settings",
        "tab": "tokens",
        "form": form,
        "made": made,
        "rows": rows,
        "roles": [role for role in Role if own.includes(role)],
        "address": f"{request.scheme}://{request.get_host()}",
    }
    return render(request, "tokens/list.html", context, status=status)


def _state(token: ApiToken, now: dt.datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "active"


urlpatterns = [
    path("settings/tokens/", token_list, name="tokens"),
    path("settings/tokens/<int:token_id>/revoke", revoke, name="token_revoke"),
]
