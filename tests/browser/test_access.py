"""The Content-Security-Policy holds on every page, and only who may watch or act does."""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as open_socket

from tests.browser.conftest import Built
from tests.browser.watching import tab_of
from tests.whole_lab import WholeLab

NEW_LINK = """
from lab.services.people import make_login_link
print(json.dumps(make_login_link(base_url=arguments[0])))
"""
NEW_PERSON = """
from django.contrib.auth.models import User
from django.contrib.auth import SESSION_KEY, BACKEND_SESSION_KEY, HASH_SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from lab.models import Membership
user, _ = User.objects.get_or_create(username=arguments[0])
Membership.objects.get_or_create(user=user, defaults={"role": arguments[1]})
session = SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.create()
print(json.dumps(session.session_key))
"""


def cookies_of(lab: WholeLab, role: str) -> Any:
    key = lab.program(NEW_PERSON, f"a-{role}", role)
    cookie = {"name": "lab_session", "value": key, "domain": "127.0.0.1", "path": "/"}
    return {"cookies": [{**cookie, "expires": -1, "httpOnly": True, "secure": False, "sameSite": "Lax"}]}


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 800)])
def test_no_page_complains_overflows_or_carries_inline_style(
    browser: Browser, lab: WholeLab, admin: Any, built: Built, theme: str, width: int
) -> None:
    paths = [
        "/", "/experiments/", "/experiments/1/", "/tasks/", "/tasks/1/", "/harnesses/", "/harnesses/1/",
        "/endpoints/", "/endpoints/new/", "/settings/", "/settings/people/", "/settings/tokens/",
        f"/runs/{built.unresolved}/", f"/runs/{built.unresolved}/?at=12", f"/runs/{built.resolved}/",
    ]  # fmt: skip
    with tab_of(browser, lab, admin, theme=theme, size={"width": width, "height": 900}) as tab:
        for path in paths:
            page = tab.open(path)
            policy = page.request.get(lab.url + path).headers["content-security-policy"]
            assert "script-src 'self'; style-src 'self'" in policy
            assert "unsafe" not in policy
            # A script puts measured heights on html, property by property, which the policy allows.
            assert page.locator("body [style]").count() == 0, path
            too_wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert too_wide <= 0, path
            assert tab.complaints == [], path


def test_a_link_signs_in_once(browser: Browser, lab: WholeLab, admin: Any) -> None:
    link = lab.program(NEW_LINK, lab.url)
    with tab_of(browser, lab, None) as first, tab_of(browser, lab, None) as second:
        first.page.goto(link)
        expect(first.page.locator("#launch")).to_be_visible()
        second.page.goto(link)
        expect(second.page.locator("[role=alert]")).to_contain_text("has been used")
        second.open("/experiments/")
        expect(second.page.locator("h1")).to_have_text("Sign in")
        second.forgive()


def test_sockets_are_for_people_of_the_lab_on_its_own_pages(lab: WholeLab, admin: Any, built: Built) -> None:
    session = next(cookie["value"] for cookie in admin["cookies"] if cookie["name"] == "lab_session")
    own = {"Cookie": f"lab_session={session}"}
    for path in (f"/ws/runs/{built.unresolved}/", "/ws/home/", "/ws/experiments/1/"):
        address = f"ws://127.0.0.1:{lab.port}{path}"
        for origin, headers in ((lab.url, {}), ("http://evil.example", own), ("http://127.0.0.1:1", own)):
            with (
                pytest.raises(InvalidStatus),
                open_socket(address, origin=origin, additional_headers=headers),
            ):
                pass
    with open_socket(f"ws://127.0.0.1:{lab.port}/ws/home/", origin=lab.url, additional_headers=own) as socket:
        assert socket.recv(timeout=60)


def test_a_form_without_its_token_is_refused(lab: WholeLab, admin: Any, built: Built) -> None:
    session = next(cookie["value"] for cookie in admin["cookies"] if cookie["name"] == "lab_session")
    for path in (
        "/launch/",
        f"/runs/{built.unresolved}/cancel",
        "/endpoints/new/",
        "/settings/theme/",
        "/sign-out/",
    ):
        request = urllib.request.Request(
            lab.url + path,
            urllib.parse.urlencode({"theme": "dark"}).encode(),
            {"Cookie": f"lab_session={session}"},
        )
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, timeout=60)
        assert refusal.value.code == 403


def test_a_viewer_reads_everything_and_starts_or_stops_nothing(
    browser: Browser, lab: WholeLab, built: Built
) -> None:
    with tab_of(browser, lab, cookies_of(lab, "viewer")) as tab:
        page = tab.open("/")
        expect(page.locator("[data-launch]")).to_have_count(0)
        expect(page.locator(".launch-foot")).to_contain_text("an operator can launch runs")
        before = lab.value("SELECT count(*) FROM lab_run")
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(300)
        assert page.url == lab.url + "/"
        assert lab.value("SELECT count(*) FROM lab_run") == before
        tab.open(f"/runs/{built.unresolved}/")
        expect(page.locator("#part-badge")).to_have_text("unresolved")
        expect(page.locator("[data-cancel]")).to_have_count(0)
        token = re.search(r'"X-CSRFToken": "([^"]+)"', page.content().replace("&quot;", '"'))
        assert token
        for path in ("/launch/", f"/runs/{built.unresolved}/cancel", "/endpoints/new/"):
            answer = page.request.post(
                lab.url + path, headers={"X-CSRFToken": token[1], "Referer": lab.url + "/"}
            )
            assert answer.status == 403, path
            assert "role" in answer.text()
        tab.forgive()
