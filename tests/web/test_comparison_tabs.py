"""The tabs beside the steps of runs side by side, and the summary at the right."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client

from lab.engine.events import PatchCaptured
from lab.models import HiddenTaskPart, Run, TestResult
from tests import builders

GOLD = """diff --git a/tickwell/schedule.py b/tickwell/schedule.py
--- a/tickwell/schedule.py
+++ b/tickwell/schedule.py
@@ -61,5 +61,5 @@
     if candidate <= local:
-        utc = candidate.astimezone(UTC) + timedelta(days=1)
+        return the_gold_line
"""


def pair() -> tuple[Run, Run]:
    """Two ended runs of one task: one resolved it."""
    first = builders.run()
    second = builders.another_run(first, seed=2)
    builders.believable(first, outcome="resolved")
    builders.believable(second)
    return first, second


def patched(run: Run, patch: str) -> None:
    builders.start(run)
    _, *rest = builders.ending()
    builders.append(run, PatchCaptured(exit_reason="agent", patch=patch), *rest)


def page(client: Client, view: str, *runs: Run, more: str = "") -> str:
    numbers = ",".join(str(run.pk) for run in runs)
    answer = client.get(f"/compare/?runs={numbers}&view={view}{more}")
    assert answer.status_code == 200
    return answer.content.decode()


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


# ---- patches -----------------------------------------------------------------------------------------------


def test_equal_patches_fold_to_one_line(viewer: Client) -> None:
    html = page(viewer, "patches", *pair())
    assert "The patches of A and B are the same in 2 files." in words(html)
    assert "2 files same in all" in words(html)


def test_a_file_that_differs_shows_both_diffs_with_marks(viewer: Client) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    patched(first, builders.PATCH)
    patched(second, builders.PATCH.replace("days=1)\n+", "days=1)\n+").replace("_real(", "_unreal("))
    html = page(viewer, "patches", first, second)
    assert "1 file differs, 1 same in all." in words(html)
    assert html.count('class="variant diff"') == 3
    assert '<span class="word">_unreal</span>' in html
    over = page(viewer, "patches", first, second, more="&lay=over")
    assert 'data-lay="over"' in over


def test_patches_that_cannot_be_compared_say_why(viewer: Client) -> None:
    live = builders.run()
    text, empty = builders.another_run(live, seed=2), builders.another_run(live, seed=3)
    patched(text, "I did <b>this</b>.")
    patched(empty, "")
    html = page(viewer, "patches", live, text, empty)
    told = words(html)
    assert "no patch yet: the run goes on" in told
    assert "no diff: shown as the text that it is" in told
    assert "empty: it changes nothing" in told
    assert "There is nothing to compare" in told
    assert "I did &lt;b&gt;this&lt;/b&gt;." in html


def test_no_part_of_a_key_is_left_where_a_text_is_cut(viewer: Client) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    patched(first, f"{'x ' * 9_996}sk-{'a1B2' * 12} is the key")
    patched(second, "")
    html = page(viewer, "patches", first, second)
    assert "x x x" in html
    assert "sk-a1" not in html


def test_a_huge_patch_is_bounded(viewer: Client) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    lines = "".join(f"+line {number}\n" for number in range(20_000))
    for run, name in ((first, "a"), (second, "b")):
        body = f"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n+{name}\n{lines}"
        patched(run, body)
    html = page(viewer, "patches", first, second)
    assert html.count('class="line ') < 5_100
    assert "more lines: download the patch to read them" in html
    assert "+20001" in html


# ---- gold --------------------------------------------------------------------------------------------------


def with_gold() -> tuple[Run, Run]:
    first, second = pair()
    HiddenTaskPart.objects.create(task=first.task, verification={}, gold_patch=GOLD)
    return first, second


def test_an_operator_sees_one_run_against_gold(operator: Client) -> None:
    runs = with_gold()
    html = page(operator, "patches", *runs)
    assert "the_gold_line" not in html
    assert "against=gold&amp;of=B" in html
    against = page(operator, "patches", *runs, more="&against=gold&of=B")
    assert "the_gold_line" in against
    assert f"run {runs[1].pk} 2 files" in words(against)
    assert "1 file differs, 1 only in B." in words(against)


def test_a_viewer_learns_that_there_is_gold_and_who_may_see_it(viewer: Client) -> None:
    runs = with_gold()
    for more in ("", "&against=gold&of=A", "&against=gold&of=B&lay=over"):
        html = page(viewer, "patches", *runs, more=more)
        assert "The task has a gold patch. Operators and admins may see it." in words(html)
        assert "the_gold_line" not in html
        assert "the same in 2 files" in words(html)


def test_a_task_without_gold_says_so_to_whoever_asks_for_it(operator: Client) -> None:
    html = page(operator, "patches", *pair(), more="&against=gold&of=Z")
    assert "No gold patch of this task is known here." in words(html)


# ---- tests -------------------------------------------------------------------------------------------------


def test_tests_that_differ_stand_first_and_equal_ones_are_folded(viewer: Client) -> None:
    html = page(viewer, "tests", *pair())
    told = words(html)
    assert "1 of 5 differ" in told
    assert told.index("test_spring") < told.index("Pass in all") < told.index("test_autumn")
    assert "assert 3 == 2" in told
    assert "F2P" in told


def test_logs_of_hidden_tests_are_offered_to_operators_only(viewer: Client, operator: Client) -> None:
    runs = pair()
    log = f"/runs/tests/{TestResult.objects.exclude(log='').get().pk}/log"
    assert log not in page(viewer, "tests", *runs)
    assert log in page(operator, "tests", *runs)
    for client in (viewer, operator):
        assert "hidden source" not in page(client, "tests", *runs)


def test_a_run_that_is_not_graded_yet_says_so(viewer: Client) -> None:
    first, _ = pair()
    live = builders.another_run(first, seed=3)
    told = words(page(viewer, "tests", first, live))
    assert "not graded yet" in told
    assert "Only A is graded" in told
    neither = words(page(viewer, "tests", live, builders.another_run(first, seed=4)))
    assert "none of the runs is graded" in neither


def pair_with_many(tests: int) -> tuple[Run, Run]:
    """Two runs that both pass so many more tests."""
    first, second = pair()
    for run in (first, second):
        grading = run.verifications.get()
        TestResult.objects.bulk_create(
            TestResult(
                verification=grading,
                position=10 + number,
                test_id=f"tests/test_many.py::test_{number}",
                group="pass_to_pass",
                status="passed",
            )
            for number in range(tests)
        )
    return first, second


def test_many_tests_are_cut_until_somebody_asks_for_all(viewer: Client) -> None:
    first, second = pair_with_many(1_000)
    html = page(viewer, "tests", first, second)
    assert html.count("test_many.py::test_") < 300
    assert "Show all tests" in html
    everything = page(viewer, "tests", first, second, more="&all=tests")
    assert "tests/test_many.py::test_999</code>" in everything
    assert "Show all tests" not in everything


def test_of_more_tests_than_a_page_can_hold_the_first_of_each_part_are_shown(viewer: Client) -> None:
    first, second = pair_with_many(2_100)
    assert "Show the first 2,000 of each" in page(viewer, "tests", first, second)
    everything = page(viewer, "tests", first, second, more="&all=tests")
    assert 1_900 < everything.count('title="tests/test_many.py::test_') <= 2_000
    assert re.search(r"and 1\d\d more", words(everything))
    assert "Show the first" not in everything


def test_runs_of_different_tasks_share_tests_by_name_and_it_is_said(viewer: Client) -> None:
    first, other = builders.run(), builders.run()
    builders.believable(first)
    builders.believable(other, outcome="resolved")
    assert "only tests of the same name stand in one row" in words(page(viewer, "tests", first, other))
    assert "files of one name may be of different repositories" in words(
        page(viewer, "patches", first, other)
    )


# ---- files, cost -------------------------------------------------------------------------------------------


def test_files_lead_to_the_steps_that_touched_them(viewer: Client) -> None:
    first, second = pair()
    html = page(viewer, "files", first, second)
    assert f"at={first.pk}.4" in html
    assert "+2 −2" in words(html)
    assert "tickwell/schedule.py" in html


def test_cost_has_totals_plots_and_their_numbers(viewer: Client) -> None:
    html = page(viewer, "cost", *pair())
    told = words(html)
    assert "at least $0.0406" in told
    assert "the runs do not part for good" in told
    assert html.count('class="plot"') == 4
    described = re.findall(r'<script id="description-compared-context"[^>]*>(.*?)</script>', html, re.DOTALL)
    plot = json.loads(described[0])
    assert [trace["name"] for trace in plot["data"]] == ["A", "B"]
    assert [trace["line"]["dash"] for trace in plot["data"]] == ["solid", "dash"]
    assert "2,418" in told
    assert "A: at least so much from step 3 on, of which a part is unknown" in told


def test_where_the_runs_part_is_marked_in_the_plots(viewer: Client) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    for run, path in ((first, "a.py"), (second, "b.py")):
        _, *graded = builders.ending()
        patch = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n+x\n"
        builders.start(run)
        builders.append(
            run,
            *builders.bash_step(1, "ls", "a.py b.py"),
            *builders.bash_step(2, f"rm {path}", ""),
            *builders.bash_step(3, f"python {path}", "x"),
            *builders.final_step(4, f"I removed {path}."),
            PatchCaptured(exit_reason="agent", patch=patch),
            *graded,
        )
    html = page(viewer, "cost", first, second)
    assert "A and B part after step 1" in words(html)
    assert '"x0": 1.5' in html


@pytest.mark.parametrize("view", ["patches", "tests", "files", "cost"])
def test_runs_of_which_nothing_is_known_yet_have_every_tab(viewer: Client, view: str) -> None:
    first = builders.run()
    assert page(viewer, view, first, builders.another_run(first, seed=2))


@pytest.mark.parametrize("view", ["patches", "tests", "files", "cost", "steps"])
def test_six_runs_cost_hardly_more_queries_than_two(viewer: Client, view: str) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    first = builders.run()
    runs = [first, *(builders.another_run(first, seed=seed) for seed in range(2, 7))]
    for run in runs:
        builders.believable(run)
    page(viewer, view, *runs)
    counts = []
    for some in (runs[:2], runs):
        with CaptureQueriesContext(
            connection,
        ) as seen:
            page(viewer, view, *some)
        counts.append(len(seen))
    assert counts[1] <= counts[0] + 14, counts


# ---- summary -----------------------------------------------------------------------------------------------


def test_the_summary_beside_the_steps_says_what_came_of_it(viewer: Client) -> None:
    first, second = pair()
    html = page(viewer, "steps", first, second)
    summary = html[html.index('id="compare-summary"') :]
    told = words(summary)
    assert "Tests that differ 1 of 5" in told
    assert "A passed B failed" in told
    assert "A +2 −2 B +2 −2" in told
    assert 'class="small-chart"' in summary
    assert "style=" not in summary
    assert f"runs={first.pk},{second.pk}&amp;view=patches" in summary


def test_runs_keep_their_letters_where_others_stand_first(viewer: Client) -> None:
    first, second = pair()
    third = builders.another_run(first, seed=3)
    builders.believable(third, outcome="resolved")
    more = f"&first={second.pk},{third.pk}"
    html = page(viewer, "steps", first, second, third, more=more)
    told = words(html[html.index('id="compare-summary"') :])
    assert "B failed C passed A passed" in told
    told = words(page(viewer, "tests", first, second, third, more=more))
    assert f"A run {first.pk} resolved" in told
    assert f"B run {second.pk} unresolved" in told


def test_the_summary_of_runs_that_go_on_says_what_is_not_known_yet(viewer: Client) -> None:
    first = builders.run()
    html = page(viewer, "steps", first, builders.another_run(first, seed=2))
    told = words(html[html.index('id="compare-summary"') :])
    assert "A: not graded yet B: not graded yet" in told
    assert "No run has changed a file so far." in told
    assert "Unknown: no step says how many tokens it held." in told
