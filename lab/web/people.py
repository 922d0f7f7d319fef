"""The people of the lab, for its admins: who belongs to it, in which role, and links that let them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from lab.models import Membership, Role
from lab.services import people
from lab.services.errors import FieldErrors
from lab.web.forms import beside_its_field
from lab.web.http import for_role, signed_in


class PersonForm(forms.Form):
    """Somebody new."""

    name = forms.CharField(label="Name", required=False)
    role = forms.CharField(label="Role", required=False, initial=str(Role.VIEWER))


@dataclass(frozen=True)
class _Row:
    """A person of the list; `chosen` is the role in the field, `errors` what was wrong with a wish."""

    membership: Membership
    chosen: str
    errors: Mapping[str, str]

    @property
    def field_id(self) -> str:
        return f"role-{self.membership.pk}"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.ADMIN)
def person_list(request: HttpRequest) -> HttpResponse:
    """Everybody, and a form for somebody new, whose link is shown once."""
    form = PersonForm(request.POST if request.method == "POST" else None)
    if request.method != "POST":
        return _page(request, form)
    if form.is_valid():
        try:
            invited = people.add(by=signed_in(request), base_url=_base_url(request), **form.cleaned_data)
        except FieldErrors as error:
            for name, text in error.errors.items():
                form.add_error(name, beside_its_field(name, text))
        else:
            return _page(request, PersonForm(), invited=invited)
    return _page(request, form, status=HTTPStatus.UNPROCESSABLE_ENTITY)


@never_cache
@require_POST
@for_role(Role.ADMIN)
def new_link(request: HttpRequest, person_id: int) -> HttpResponse:
    """Another link for somebody, shown once."""
    person = _person(person_id)
    try:
        invited = people.invite_again(by=signed_in(request), person=person, base_url=_base_url(request))
    except FieldErrors as error:
        return _refused(request, person, error)
    return _page(request, PersonForm(), invited=invited)


@require_POST
@for_role(Role.ADMIN)
def change_role(request: HttpRequest, person_id: int) -> HttpResponse:
    person, chosen = _person(person_id), request.POST.get("role", "")
    try:
        people.set_role(by=signed_in(request), person=person, role=chosen)
    except FieldErrors as error:
        return _refused(request, person, error, chosen=chosen)
    messages.success(request, f"{person.get_username()} is {Role(chosen).label} now.")
    # Who is no admin any more may not see the list.
    return redirect("settings" if person == request.user and chosen != Role.ADMIN else "people")


@require_POST
@for_role(Role.ADMIN)
def deactivate(request: HttpRequest, person_id: int) -> HttpResponse:
    person = _person(person_id)
    try:
        people.deactivate(by=signed_in(request), person=person)
    except FieldErrors as error:
        return _refused(request, person, error)
    if person != request.user:
        messages.success(request, f"{person.get_username()} is signed out and shut out.")
    return redirect("people")


@require_POST
@for_role(Role.ADMIN)
def reactivate(request: HttpRequest, person_id: int) -> HttpResponse:
    person = _person(person_id)
    people.reactivate(by=signed_in(request), person=person)
    messages.success(request, f"{person.get_username()} may sign in again.")
    return redirect("people")


def _person(person_id: int) -> User:
    return get_object_or_404(Membership.objects.select_related("user"), user_id=person_id).user


def _base_url(request: HttpRequest) -> str:
    return f"{request.scheme}://{request.get_host()}"


def _refused(request: HttpRequest, person: User, error: FieldErrors, *, chosen: str = "") -> HttpResponse:
    shown = {name: beside_its_field(name, text) for name, text in error.errors.items()}
    wrong = (person.pk, chosen, shown)
    return _page(request, PersonForm(), wrong=wrong, status=HTTPStatus.UNPROCESSABLE_ENTITY)


def _page(
    request: HttpRequest,
    form: PersonForm,
    *,
    invited: people.Invited | None = None,
    wrong: tuple[int, str, Mapping[str, str]] = (0, "", {}),
    status: int = HTTPStatus.OK,
) -> HttpResponse:
    pk, chosen, errors = wrong
    rows = [
        _Row(member, chosen or member.role, errors) if member.user_id == pk else _Row(member, member.role, {})
        for member in people.members()
    ]
    context = {
        "place": "settings",
        "tab": "people",
        "form": form,
        "rows": rows,
        "roles": list(Role),
        "invited": invited,
    }
    return render(request, "people/list.html", context, status=status)


urlpatterns = [
    path("settings/people/", person_list, name="people"),
    path("settings/people/<int:person_id>/link", new_link, name="person_link"),
    path("settings/people/<int:person_id>/role", change_role, name="person_role"),
    path("settings/people/<int:person_id>/deactivate", deactivate, name="person_deactivate"),
    path("settings/people/<int:person_id>/reactivate", reactivate, name="person_reactivate"),
]
