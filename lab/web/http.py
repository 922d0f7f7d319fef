"""What every response of the lab has in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, cast

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from lab.models import Role, Run
from lab.services import access

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)

Rest = ParamSpec("Rest")
View = Callable[Concatenate[HttpRequest, Rest], HttpResponseBase]


class ContentSecurityPolicyMiddleware:
    """Puts the policy on every response, error pages included."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        return response


class SignInMiddleware(LoginRequiredMiddleware):
    """Sends people to the sign-in page. A script that fetches a part of a page is told 401 instead.

    Otherwise the browser would follow to the sign-in page by itself, and the script would put that in.
    """

    def handle_no_permission(  # type: ignore[override]  # the stubs know of redirects only
        self, request: HttpRequest, view_func: Callable[..., Any]
    ) -> HttpResponseBase:
        if "HX-Request" in request.headers or request.headers.get("X-Requested-With") == "fetch":
            return HttpResponse("Sign in again.", status=HTTPStatus.UNAUTHORIZED, content_type="text/plain")
        return super().handle_no_permission(request, view_func)


def signed_in(request: HttpRequest) -> User:
    """The person who asks. Pages are behind the sign-in middleware, so there is one."""
    if isinstance(request.user, AnonymousUser):
        raise PermissionDenied("Sign in first.")
    return request.user


def holds(request: HttpRequest, role: Role) -> bool:
    """Whether the person who asks has this role or a higher one."""
    held = access.role_of(signed_in(request))
    return held is not None and held.includes(role)


def require(request: HttpRequest, role: Role) -> None:
    """Let people of this role or a higher one pass.

    Raises:
        PermissionDenied: everybody else; it says which role is needed and which one is held.
    """
    if not holds(request, role):
        held = access.role_of(signed_in(request))
        raise PermissionDenied(
            f"This needs the role {role.label}; yours is {held.label if held else 'none'}."
        )


def for_role(role: Role) -> Callable[[View[Rest]], View[Rest]]:
    """Let a view be used by people of this role or a higher one; everybody else gets 403 and who may."""

    def decorate(view: View[Rest]) -> View[Rest]:
        @wraps(view)
        def checked(request: HttpRequest, *args: Rest.args, **kwargs: Rest.kwargs) -> HttpResponseBase:
            require(request, role)
            return view(request, *args, **kwargs)

        return cast(View[Rest], checked)

    return decorate


def page_context(request: HttpRequest) -> dict[str, Any]:
    """What the frame of every page shows: person, role, theme, keys, and how many runs are going on."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"person": None, "theme": "", "single_keys": True, "running_count": 0}
    membership = access.membership_of(user)
    role = access.role_of(user)
    return {
        "person": user,
        "role": role,
        "is_operator": role is not None and role.includes(Role.OPERATOR),
        "is_admin": role is Role.ADMIN,
        "theme": membership.theme if membership else "",
        "single_keys": membership.single_keys if membership else True,
        "running_count": Run.objects.holding_slots().count(),
    }
