"""A model's preflight in a browser: probes appear as they end, and the findings when all have ended."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.conftest import sign_in
from tests.browser.watching import Tab, tab_of
from tests.fakes.model_server import MODEL, LeakingXML
from tests.fakes.openai_server import Answer, Request
from tests.whole_lab import WholeLab

_CONNECT = """
from lab.models import Endpoint, Model
endpoint = Endpoint.objects.create(name="leaking", base_url={url!r})
print(Model.objects.create(endpoint=endpoint, name="leaks", model_id={model!r}).pk)
"""


class Unhurried(LeakingXML):
    """Slow enough for the probes to be seen one by one."""

    def take(self, request: Request) -> Answer:
        answer = super().take(request)
        answer.delay = 1.5
        return answer


def test_probes_appear_as_they_end_and_then_what_is_wrong_with_its_mend(browser: Browser) -> None:
    # A lab of its own: a model whose preflight fails is seen on pages of other tests.
    with WholeLab() as lab, tab_of(browser, lab, sign_in(browser, lab.link)) as tab:
        look(lab, tab)


def look(lab: WholeLab, tab: Tab) -> None:
    with Unhurried() as server:
        number = lab.program(_CONNECT.format(url=server.base_url, model=MODEL))
        page = tab.open(f"/endpoints/models/{number}/preflight/")
        expect(page.locator("main")).to_contain_text("Never examined")
        page.keyboard.press("r")
        # Nothing is touched from here on.
        expect(page.locator("#probe-1")).to_contain_text("answered")
        expect(page.locator(".preflight-sum")).to_contain_text("Asking the server")
        expect(page.locator("#probe-2")).to_contain_text("answered")
        expect(page.get_by_role("button", name="Cancel preflight")).to_be_visible()
        expect(page.locator(".preflight-sum")).to_contain_text("Runs would be worthless: ")
    finding = page.locator("#finding-calls_as_text")
    expect(finding.locator("mark").first).to_contain_text("<tool_call>")
    expect(finding.locator(".mend").first).to_contain_text("SGLang")
    finding.locator("summary").first.focus()
    page.keyboard.press("o")
    expect(finding.locator(".mend").first).to_be_hidden()
    expect(page.locator("#preflight")).not_to_have_attribute("hx-trigger", "every 1s")
    expect(page.get_by_role("button", name="Run preflight again")).to_be_visible()
