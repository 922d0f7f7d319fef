"""Runs labelled in the browser: by keyboard alone, blind and twice, settled by a third person."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import sign_in
from tests.browser.watching import Tab, tab_of
from tests.whole_lab import WholeLab

BUILD = """
from django.db import transaction
from lab.models import Role
from lab.services import guidelines, people, queues, taxonomies
from tests import builders

with transaction.atomic():
    taxonomies.sync_presets()
    first = builders.run()
    runs = [first, *(builders.another_run(first, seed=seed) for seed in range(2, 5))]
    for run in runs:
        builders.believable(run)
    made = {}
    wanted = (("keys", runs[:1], 0), ("twice", runs[1:2], 100), ("one each", runs[2:], 0))
    for name, chosen, overlap in wanted:
        settings = queues.Settings(name=name, guideline=guidelines.default(), overlap=overlap)
        rules = {"runs": [run.pk for run in chosen]}
        made[name] = queues.make(by=builders.person(), settings=settings, rules=rules).pk
links = {}
for name, role in (("mara", Role.ANNOTATOR), ("noor", Role.ANNOTATOR), ("otto", Role.OPERATOR)):
    builders.person(role, name=name)
    links[name] = people.make_login_link(base_url=arguments[0], person=name)
print(json.dumps([made, links, [run.pk for run in runs]]))
"""
LABEL = """
from lab.models import Annotation
from lab.services import label_rows
rows = Annotation.objects.filter(run_id=arguments[0], state="submitted").order_by("pk")
labels = [[row.kind, row.annotator.name, label_rows.read(row).model_dump(mode="json")] for row in rows]
print(json.dumps(labels))
"""


class People:
    """Queues by name, runs, and tabs of the people who label them."""

    def __init__(self, browser: Browser, lab: WholeLab) -> None:
        self.queues, links, self.runs = lab.program(BUILD, lab.url)
        self.states = {name: sign_in(browser, link) for name, link in links.items()}
        self._browser, self._lab = browser, lab

    def tab(self, name: str) -> contextlib.AbstractContextManager[Tab]:
        return tab_of(self._browser, self._lab, self.states[name])

    def labels(self, run: int) -> Any:
        return self._lab.program(LABEL, run)


@pytest.fixture(scope="module")
def people(browser: Browser, lab: WholeLab) -> People:
    return People(browser, lab)


def ready(page: Page) -> None:
    """Waits until keys are heard: the page then stands in its first field."""
    expect(page.locator(".label-field.active")).to_have_count(1)


def panel(page: Page, revision: int) -> None:
    """Waits until the change is stored and the panel shows it."""
    expect(page.locator("#label-panel")).to_have_attribute("data-revision", str(revision))


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def field(page: Page, name: str) -> Any:
    return page.locator(f'[data-field="{name}"]')


def test_a_failed_run_is_labelled_from_the_queue_by_keyboard_alone(people: People) -> None:
    with people.tab("mara") as tab:
        page = tab.open(f"/annotate/queues/{people.queues['keys']}/")
        page.get_by_role("button", name="Label next").focus()
        press(page, "Enter")
        ready(page)
        press(page, "1")
        panel(page, 1)
        press(page, "Tab", "5")
        panel(page, 2)
        expect(field(page, "owner").locator('[aria-pressed="true"]')).to_contain_text("agent")
        expect(field(page, "phase").locator('[aria-pressed="true"]')).to_contain_text("verify")
        press(page, "Escape", "j", "4")
        expect(page.locator(".label-field.active")).to_have_count(0)
        press(page, *"jj", "r")
        panel(page, 3)
        expect(page.locator("[data-filter]")).to_be_focused()
        page.keyboard.type("vacuous")
        expect(page.locator(".code.lit")).to_contain_text("Verification skipped or vacuous")
        press(page, "Enter")
        panel(page, 4)
        expect(page.locator(".code.lit")).to_be_hidden()
        press(page, "3")
        panel(page, 5)
        press(page, "Tab", "2")
        panel(page, 6)
        press(page, "m")
        expect(page.locator("#quote")).to_be_focused()
        page.keyboard.type("candidate.astimezone(UTC)")
        press(page, "Enter")
        panel(page, 7)
        press(page, "Tab")
        expect(page.locator("#instead")).to_be_focused()
        page.keyboard.type("run the test of the issue")
        press(page, "Enter")
        panel(page, 8)
        press(page, "Escape", "s")
        panel(page, 9)
        expect(page.locator("li.step[data-step='4'] .result .event-mark")).to_contain_text("root cause")
        press(page, "Control+Enter")
        expect(page).to_have_url(re.compile(rf"/annotate/queues/{people.queues['keys']}/"))
        expect(page.get_by_text("This queue has nothing more for you")).to_be_visible()
    ((kind, name, label),) = people.labels(people.runs[0])
    assert (kind, name, label["owner"], label["sure"]) == ("label", "mara", "agent", True)
    (event,) = label["events"]
    assert (event["step"], event["category"], event["severity"]) == (4, "verification-skipped", "high")
    assert (event["recovered"], event["ideal_action"]) == (False, "run the test of the issue")
    assert [one["quote"] for one in event["evidence"]] == ["candidate.astimezone(UTC)"]


BEGIN = """(run) => {
  const form = document.createElement("form");
  form.method = "post";
  form.action = `/runs/${run}/label`;
  const token = document.createElement("input");
  token.name = "csrfmiddlewaretoken";
  token.value = document.body.dataset.token;
  form.append(token);
  document.body.append(form);
  form.submit();
}"""


def begin(tab: Tab, run: int) -> Page:
    """The label of a run outside any queue."""
    page = tab.open("/annotate/")
    page.evaluate(BEGIN, run)
    ready(page)
    return page


def mark_words(page: Page, step: int, words: str) -> None:
    """Selects words of a step as a reader does."""
    page.evaluate(
        """([step, words]) => {
          const body = document.querySelector(`li.step[data-step="${step}"] .step-body`);
          const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            const at = walker.currentNode.data.indexOf(words);
            if (at === -1) continue;
            const range = document.createRange();
            range.setStart(walker.currentNode, at);
            range.setEnd(walker.currentNode, at + words.length);
            getSelection().removeAllRanges();
            getSelection().addRange(range);
            return;
          }
          throw new Error("not there");
        }""",
        [step, words],
    )


LIT = "[...(CSS.highlights.get('evidence') ?? [])].map((range) => range.toString())"


def test_selected_words_are_evidence_that_stays_lit_and_undo_takes_it_back(people: People) -> None:
    with people.tab("mara") as tab:
        page = begin(tab, people.runs[3])
        expect(page.locator("#label-panel")).to_be_visible()
        address = page.url
        press(page, *"jjjjj", "o")
        mark_words(page, 5, "1 failed, 41 passed")
        press(page, "m")
        panel(page, 1)
        expect(page.locator(".quote")).to_have_text("1 failed, 41 passed")
        assert page.evaluate(LIT) == ["1 failed, 41 passed"]
        page.goto(address)
        ready(page)
        expect(page.locator(".quote")).to_have_text("1 failed, 41 passed")
        assert page.evaluate(LIT) == ["1 failed, 41 passed"]
        press(page, "z")
        panel(page, 2)
        expect(page.locator(".quote")).to_have_count(0)
        press(page, "Z")
        panel(page, 3)
        expect(page.locator(".quote")).to_have_count(1)


def test_two_tabs_of_one_person_lose_nothing(people: People) -> None:
    with people.tab("noor") as one, people.tab("noor") as other:
        page = begin(one, people.runs[0])
        expect(page.locator("#label-panel")).to_be_visible()
        second = other.open(page.url.removeprefix(one.lab.url))
        ready(second)
        press(page, "3")
        panel(page, 1)
        press(second, "s")
        expect(second.locator("[data-error-of='draft']")).to_contain_text("changed in another tab")
        expect(field(second, "owner").locator('[aria-pressed="true"]')).to_contain_text("environment")
        press(second, "s")
        panel(second, 2)
        other.complaints.clear()  # A refusal is told by its status, which Chromium notes.


def label_one(page: Page, steps: int, category: str) -> None:
    """The agent's fault, at the step after so many presses, of a category; the rest by its keys."""
    ready(page)
    press(page, "1")
    panel(page, 1)
    press(page, *"j" * steps, "r")
    panel(page, 2)
    page.keyboard.type(category)
    press(page, "Enter")
    panel(page, 3)
    press(page, "Escape", "s")
    panel(page, 4)
    press(page, "Control+Enter")


def test_a_run_is_labelled_twice_blind_and_settled_by_a_third_person(people: People) -> None:
    run = people.runs[1]
    for name, steps, category in (("mara", 2, "wrong location"), ("noor", 5, "vacuous")):
        with people.tab(name) as tab:
            page = tab.open(f"/annotate/queues/{people.queues['twice']}/")
            page.get_by_role("button", name="Label next").click()
            expect(page.locator("#label-panel")).to_be_visible()
            assert "mara" not in page.locator("main").inner_text().lower()
            assert "cedar" not in page.content()
            label_one(page, steps, category)
            expect(page).to_have_url(re.compile("/annotate/queues/"))
    before = people.labels(run)
    with people.tab("otto") as tab:
        page = tab.open("/annotate/adjudications/")
        page.locator("tr", has_text=f"run {run}").get_by_role("button", name="Settle").click()
        expect(page.locator(".adjudicated .reading")).to_have_count(2)
        page.locator(".adjudicated .takes").nth(1).get_by_role("button", name="root cause").click()
        panel(page, 1)
        press(page, "s")
        panel(page, 2)
        press(page, "Control+Enter")
        expect(page.locator("tr", has_text=f"run {run}")).to_contain_text("by otto")
        page.goto(f"{tab.lab.url}/annotate/agreement/?queue={people.queues['twice']}")
        expect(page.get_by_role("heading", name="Step of the root cause")).to_be_visible()
        expect(page.locator(".step-shares")).to_contain_text("within 3 steps")
    after = people.labels(run)
    assert after[:2] == before, "the labels stay as they are"
    kind, name, label = after[2]
    assert (kind, name) == ("adjudication", "otto")
    assert [(event["step"], event["category"]) for event in label["events"]] == [(5, "verification-skipped")]


def test_two_people_get_different_runs_and_a_skip_goes_to_the_other(people: People) -> None:
    queue = f"/annotate/queues/{people.queues['one each']}/"
    with people.tab("mara") as one, people.tab("noor") as other:
        pages = [one.open(queue), other.open(queue)]
        for page in pages:
            page.get_by_role("button", name="Label next").click()
            ready(page)
        runs = [re.search(r"run (\d+)", page.locator("#run-head").inner_text()) for page in pages]
        assert runs[0] is not None
        assert runs[1] is not None
        assert runs[0].group(1) != runs[1].group(1)
        press(pages[0], "Control+Shift+Enter")
        expect(pages[0].locator("#skip-reason")).to_be_focused()
        pages[0].keyboard.type("I wrote this task")
        press(pages[0], "Tab", "ArrowDown", "Enter")
        expect(pages[0]).to_have_url(re.compile(queue))
        expect(pages[0].get_by_text("I wrote this task")).to_be_visible()


def test_the_queue_form_counts_runs_while_one_chooses_and_makes_the_queue(tab: Tab, people: People) -> None:
    page = tab.open("/annotate/queues/new")
    expect(page.locator("#queue-preview b").first).to_be_visible()
    page.get_by_label("never fixed").check()
    expect(page.locator("#queue-preview")).to_contain_text("as these rules ask")
    page.locator("#queue-name").fill("made by hand")
    page.locator("#queue-sample").fill("2")
    press(page, "Control+Enter")
    expect(page.get_by_role("heading", name="made by hand")).to_be_visible()
    # Which runs the sample holds depends on their numbers; some may be labelled by now.
    expect(page.locator(".facts").first).to_contain_text(re.compile(r"Runs done\s*\d of 2"))
