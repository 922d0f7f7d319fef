"""What every response of the lab has in common."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

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

View = TypeVar("View", bound=Callable[..., HttpResponseBase])


class ContentSecurityPolicyMiddleware:
    """Puts the policy on every response, error pages included."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        return response


class AccessMiddleware(LoginRequiredMiddleware):
    """Lets a view run for those its decision names (`for_role`, `for_everyone`), and refuses one without.

    Pages send people to the sign-in page. A script that fetches a part of a page is told 401 instead:
    otherwise the browser would follow to the sign-in page by itself, and the script would put that in.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., Any],
        view_args: tuple[Any, ...],
        view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        decision: access.Decision | None = getattr(view_func, "access", None)
        if decision in (access.EVERYONE, access.PER_OPERATION):
            return None
        if not request.user.is_authenticated:
            return self.handle_no_permission(request, view_func)
        if decision is None:
            raise PermissionDenied(
                f"Nobody has decided who may use {request.path}; this is a fault of the lab."
            )
        require(request, Role(decision))
        return None

    def handle_no_permission(  # type: ignore[override]  # the stubs know of redirects only
        self, request: HttpRequest, view_func: Callable[..., Any]
    ) -> HttpResponseBase:
        if "HX-Request" in request.headers or is_script(request):
            return HttpResponse("Sign in again.", status=HTTPStatus.UNAUTHORIZED, content_type="text/plain")
        return super().handle_no_permission(request, view_func)


def is_script(request: HttpRequest) -> bool:
    """Whether a script of the lab's pages asks, which wants a part of a page or a sentence."""
    return request.headers.get("X-Requested-With") == "fetch"


def signed_in(request: HttpRequest) -> User:
    """The person who asks. Pages are behind the sign-in middleware, so there is one."""
    if isinstance(request.user, AnonymousUser):
        raise PermissionDenied("Sign in first.")
    return request.user


def holds(request: HttpRequest, role: Role) -> bool:
    """Whether the person who asks has this role or a higher one."""
    return access.holds(signed_in(request), role)


def require(request: HttpRequest, role: Role) -> None:
    """Let people of this role or a higher one pass.

    Raises:
        AccessDeniedError: everybody else; it says which role is needed and which one is held.
    """
    access.require(signed_in(request), role)


def for_role(role: Role) -> Callable[[View], View]:
    """A view for people of this role or a higher one; everybody else gets 403 and is told who may."""

    def decorate(view: View) -> View:
        vars(view)["access"] = role
        return view

    return decorate


def for_everyone(view: View) -> View:
    """A view for whoever asks, signed in or not."""
    vars(view)["access"] = access.EVERYONE
    return view


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
