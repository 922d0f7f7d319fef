"""Runs side by side as one file that needs no lab, and in which nothing runs or leads to another place."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from lab.engine.events import Event, PatchCaptured
from lab.models import HiddenTaskPart, Role, Run
from lab.web import comparison_export
from tests import builders
from tests.parted_runs import run_of
from tests.web import test_masked_pages
from tests.web.test_masked_pages import KEY, SECRET

pytestmark = pytest.mark.django_db
# A run with a key wherever a text may stand.
keyed = test_masked_pages.run

HOSTILE = (
    "<script>document.title = 'ran'</script><img src=x onerror=\"document.title='ran'\">"
    "<a href=\"javascript:document.title='ran'\">go</a> <a href='https://example.org/'>there</a>"
    "</pre></details></main><style>*{display:none}</style><base href='http://example.org/'>"
    "\x1b[31mred\x1b[0m <iframe srcdoc='<script>1</script>'> <!-- <svg onload=alert(1)>"
)
OPEN_ROW = re.compile(r'<li class="unit" id="(row-[\d-]+)"[^>]*><details open>')
# Elements that load, run, send or frame something, or change how links are read.
_ACTIVE = {
    *("script", "img", "iframe", "object", "embed", "link", "base", "form", "input", "button", "video"),
    *("audio", "source", "picture", "portal", "frame", "frameset", "applet", "foreignobject", "image"),
    *("animate", "set", "template", "textarea", "select", "math", "noscript"),
}
_ADDRESSES = {
    "href",
    "src",
    "srcset",
    "action",
    "formaction",
    "poster",
    "data",
    "ping",
    "xlink:href",
    "manifest",
}


class Reader(HTMLParser):
    """Collects what a file holds: elements, what offends in them, ids, links, text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.offences: list[str] = []
        self.metas: list[dict[str, str | None]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.icons: set[str] = set()
        self.styles = 0
        self.words: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self._open.append(tag)
        self.styles += tag == "style"
        if tag in _ACTIVE:
            self.offences.append(f"<{tag}>")
        if tag == "meta":
            self.metas.append(said)
        for name, value in said.items():
            if name.startswith("on") or name in {"style", "srcdoc"} or name.startswith("hx-"):
                self.offences.append(f"{tag} {name}")
            if name in _ADDRESSES and not (value or "").startswith("#"):
                self.offences.append(f"{tag} {name}={value}")
        if (name := said.get("id")) is not None:
            self.ids.append(name)
        if (href := said.get("href")) is not None:
            (self.icons.add(href) if tag == "use" else self.links.append(href))

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open and self._open.pop() != tag:
                pass

    def handle_comment(self, data: str) -> None:
        self.offences.append(f"<!--{data[:40]}")

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


def two_runs(*, output: str = "42 passed", other: str = "41 passed") -> list[Run]:
    """Two ended runs of one task: the same first steps, another edit, other tests."""
    first = builders.run()
    second = builders.another_run(first, seed=2)
    for run, last, outcome in ((first, output, "resolved"), (second, other, "unresolved")):
        builders.start(run)
        builders.append(
            run,
            *builders.bash_step(1, "ls", "a.py\nb.py"),
            *builders.bash_step(2, "cat a.py", "import os"),
            *builders.bash_step(3, "cat c.py", "import sys"),
            *builders.bash_step(4, "grep -rn utc .", "a.py:1: utc"),
            *(
                builders.edit_step(5)
                if outcome == "resolved"
                else builders.bash_step(5, "cat b.py", "import re")
            ),
            *builders.bash_step(6, "python -m pytest -q", last),
            *builders.final_step(7, f"Done. {last}"),
            *ending(outcome),
        )
    return [Run.objects.get(pk=run.pk) for run in (first, second)]


def ending(outcome: str) -> list[Event]:
    """How a run ends; one that resolves nothing leaves another patch."""
    found = builders.ending(outcome=outcome, steps=7)
    if outcome == "resolved":
        return found
    patch = builders.PATCH.replace("candidate + timedelta", "candidate - timedelta")
    return [
        event.model_copy(update={"patch": patch}) if isinstance(event, PatchCaptured) else event
        for event in found
    ]


def address(*runs: Run, more: str = "&save=1") -> str:
    return f"/compare/export?runs={','.join(str(run.pk) for run in runs)}{more}"


def saved(client: Client, *runs: Run, more: str = "&save=1") -> str:
    answer = client.get(address(*runs, more=more))
    assert answer.status_code == 200, answer.content
    return bytes(answer.getvalue()).decode()


def test_a_file_holds_what_was_compared_and_every_row_with_what_opens_below_it(viewer: Client) -> None:
    first, second = two_runs()
    file = read(saved(viewer, first, second))
    assert [f"row-{first.pk}-{step}" for step in range(1, 8)] == [
        name for name in file.ids if name.startswith(f"row-{first.pk}-")
    ]
    for words in (
        *(
            "dst-schedule",
            "resolved",
            "unresolved",
            "exit reason",
            "harness same",
            "F2P 2 of 2",
            "steps alike",
        ),
        *(
            "First sustained divergence",
            "grep -rn utc .",
            "a.py:1: utc",
            "I keep the wall clock.",
            "42 passed",
        ),
        *("41 passed", "tickwell/schedule.py", "tests/test_dst.py::test_spring", "Trajectory Lab 0."),
        f"http://testserver/compare/?runs={first.pk},{second.pk}",
    ):
        assert words.lower() in file.text.lower(), words


def test_the_rows_where_runs_part_are_open_in_a_file_and_no_others(viewer: Client) -> None:
    first, second = two_runs()
    page = viewer.get(f"/compare/?runs={first.pk},{second.pk}").content.decode()
    opened = OPEN_ROW.findall(page)
    assert opened
    assert OPEN_ROW.findall(saved(viewer, first, second)) == opened


def test_nothing_in_a_file_runs_loads_or_leads_to_another_place(viewer: Client) -> None:
    file = read(saved(viewer, *two_runs(output=HOSTILE, other=f"{HOSTILE} other")))
    assert file.offences == []
    assert "document.title = 'ran'" in file.text
    assert file.styles == 1
    assert set(file.links) <= {f"#{name}" for name in file.ids}
    assert file.icons <= {f"#{name}" for name in file.ids}
    assert len(set(file.ids)) == len(file.ids)


def test_a_file_forbids_by_itself_what_it_does_not_hold(viewer: Client) -> None:
    answer = viewer.get(address(*two_runs()))
    html = bytes(answer.getvalue()).decode()
    (policy,) = (
        meta["content"] or ""
        for meta in read(html).metas
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert {"base-uri 'none'", "form-action 'none'"} <= set(policy.split("; "))
    assert answer.headers["Content-Security-Policy"] == policy
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="runs-')
    assert answer.headers["Content-Disposition"].endswith('.html"')
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(
        r"https?://(?!testserver/compare)", re.sub(r"<(pre|code).*?</\1>", "", html, flags=re.S)
    )


def test_everybody_gets_the_same_file_without_solution_and_hidden_tests() -> None:
    runs = two_runs()
    HiddenTaskPart.objects.create(
        task=runs[0].task,
        verification={"fail_to_pass": []},
        gold_patch="the-gold-patch-itself",
        plans={"a": "the-plan"},
    )
    texts = set()
    for role in Role:
        client = Client()
        client.force_login(builders.person(role))
        text = saved(client, *runs, more="&save=1&gold=1&all=tests")
        texts.add(re.sub(r"Written [\d :-]+ UTC", "", text))
    (text,) = texts
    for hidden in ("the-gold-patch-itself", "the-plan", "# hidden source", "spring_hours"):
        assert hidden not in text


def test_keys_are_masked_in_a_file(viewer: Client, keyed: Run) -> None:
    text = saved(viewer, Run.objects.get(pk=keyed.pk), *two_runs())
    assert "I print" in text
    assert KEY not in text
    assert SECRET not in text


def test_a_page_says_what_a_file_will_hold_and_how_large_it_will_be(viewer: Client) -> None:
    runs = two_runs()
    page = bytes(viewer.get(address(*runs, more="")).content).decode()
    (said, unit) = re.findall(r"of about <b>([\d.]+) (bytes|KB|MB)</b>", page)[0]
    expected = float(said) * {"bytes": 1, "KB": 1e3, "MB": 1e6}[unit]
    assert f"?runs={runs[0].pk},{runs[1].pk}&amp;save=1" in page
    actual = len(saved(viewer, *runs).encode())
    assert 0.5 * actual < expected < 2 * actual


def test_a_file_grows_with_the_steps_and_not_with_what_they_printed(viewer: Client) -> None:
    long, longer = (
        len(saved(viewer, *two_runs(output="a line\n" * lines, other="another line\n" * lines)).encode())
        for lines in (5_000, 50_000)
    )
    assert longer < 1.05 * long
    assert long < 300_000


def test_a_file_has_a_bound_and_says_what_had_no_room(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = two_runs(output="line of output\n" * 900, other="another line\n" * 900)
    whole = len(saved(viewer, *runs).encode())
    bound = whole - 2_000
    monkeypatch.setattr(comparison_export, "MOST_BYTES", bound)
    text = saved(viewer, *runs)
    assert len(text.encode()) <= bound
    file = read(text)
    assert file.offences == []
    assert f"row-{runs[0].pk}-7" in file.ids
    assert re.search(r"The file would have passed .*what opens below \d rows? is left out", file.text)
    monkeypatch.setattr(comparison_export, "MOST_BYTES", 1)
    assert re.search(r"and \d+ rows? whole|: \d+ rows? whole", read(saved(viewer, *runs)).text)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("runs={run}", "is too few to compare; write two or more, as in 12,15"),
        ("runs={run},999999", "no run of this lab"),
        ("runs={run},x", "is no number of a run"),
        ("", "is too few to compare"),
        ("runs=1,2,3,4,5,6,7", "6 fit side by side"),
    ],
)
def test_what_cannot_be_compared_is_told_and_what_was_asked_for_is_kept(
    viewer: Client, query: str, words: str
) -> None:
    run = builders.run()
    query = query.format(run=run.pk)
    answer = viewer.get(f"/compare/export?{query}&save=1")
    assert answer.status_code == 400
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert words in answer.content.decode()
    page = viewer.get(f"/compare/export?{query}")
    assert page.status_code == 302
    assert page.headers["Location"].startswith("/compare/?")
    assert viewer.get(page.headers["Location"]).status_code in {200, 400}


@pytest.mark.parametrize(
    "more", ["&by=number", "&fold=none", "&at=1.1", "&view=tests", "&scroll=apart&open=x"]
)
def test_a_file_follows_the_page_it_is_asked_from(viewer: Client, more: str) -> None:
    runs = two_runs()
    file = read(saved(viewer, *runs, more=f"{more}&save=1"))
    assert file.offences == []
    assert f"row-{runs[0].pk}-1" in file.ids
    assert ("steps of equal numbers" in file.text) == ("number" in more)
    assert ("steps alike" in file.text) == ("none" not in more)


def test_runs_without_steps_and_runs_that_go_on_make_a_file_too(viewer: Client) -> None:
    first, _ = two_runs()
    waits = builders.another_run(first, seed=3)
    going = builders.another_run(first, seed=4)
    builders.start(going)
    builders.append(going, *builders.bash_step(1, "ls", "a.py"), builders.asked(2))
    file = read(saved(viewer, waits, going, first))
    assert file.offences == []
    assert "while a run still went on" in file.text
    assert set(file.links) <= {f"#{name}" for name in file.ids}
    nothing = read(saved(viewer, waits, builders.another_run(first, seed=5)))
    assert nothing.offences == []


def test_a_file_is_read_in_a_few_queries_however_many_rows_it_has(
    viewer: Client, django_assert_max_num_queries: Any
) -> None:
    runs = two_runs()
    with django_assert_max_num_queries(90):
        saved(viewer, *runs)


def test_what_opens_below_rows_is_not_read_once_a_file_is_full(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [f"cat part_{number}.py" for number in range(60)]
    first = run_of(commands)
    runs = (first, run_of(commands, like=first))
    saved(viewer, *runs)
    with CaptureQueriesContext(connection) as whole:
        saved(viewer, *runs)
    monkeypatch.setattr(comparison_export, "MOST_BYTES", 1)
    with CaptureQueriesContext(connection) as full:
        text = saved(viewer, *runs)
    assert "60 rows whole" in read(text).text
    # Two queries for each twenty rows, of which the first twenty alone are read to see that they do not fit.
    assert len(whole) - len(full) == 4


def test_a_file_holds_so_much_of_patches_and_no_more(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    section = "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1,9 @@\n"
    patch = "".join(section.format(f"file_{number:03}.txt") + "+line\n" * 9 for number in range(302))
    first = run_of(["ls"], patch=patch)
    monkeypatch.setattr(comparison_export, "MOST_LINES", 25)
    file = read(saved(viewer, first, run_of(["ls"], like=first, patch=patch)))
    assert "and 2 more files, which the patches in the lab hold" in file.text
    assert file.text.count("10 more lines are left out") == 300 - 3
