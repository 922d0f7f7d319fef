"""What pages of runs side by side say where nothing is recorded, or nothing is shared."""

from __future__ import annotations

import re

from django.test import Client

from lab.engine.events import PatchCaptured
from lab.models import Experiment, HiddenTaskPart, Run, TestResult
from tests import builders
from tests.parted_runs import COMMON, parted, run_of
from tests.web.test_comparison_export import saved
from tests.web.test_comparison_tabs import GOLD, page, pair, words


def summary_of(client: Client, *runs: Run) -> str:
    html = page(client, "steps", *runs)
    return words(html[html.index('id="compare-summary"') :])


def verdict_alone(run: Run) -> Run:
    """What another program tells of a run may be its verdict and nothing else."""
    builders.start(run)
    _, *graded = builders.ending(steps=0)
    builders.append(run, *graded)
    Experiment.objects.filter(pk=run.experiment_id).update(kind=Experiment.Kind.IMPORTED)
    return run


def test_gradings_that_share_no_test_are_not_said_to_have_come_out_alike(viewer: Client) -> None:
    first, second = pair()
    for result in TestResult.objects.filter(verification__run=second):
        TestResult.objects.filter(pk=result.pk).update(test_id=f"other/{result.test_id}")
    told = summary_of(viewer, first, second)
    assert "came out alike" not in told
    assert "0 of 0" not in told
    assert "No test stands in the lists of two of these runs" in told
    assert "no test stands in the lists of two of these runs" in words(page(viewer, "tests", first, second))


def test_gradings_that_name_no_test_are_said_to_name_none(viewer: Client) -> None:
    first, second = pair()
    TestResult.objects.all().delete()
    told = summary_of(viewer, first, second)
    assert "came out alike" not in told
    assert "0 of 0" not in told
    assert "Not recorded: no grading says anything of single tests." in told
    tests = words(page(viewer, "tests", first, second))
    assert "no single test is recorded" in tests
    assert "0 of 0" not in tests


def test_tests_that_all_came_out_alike_are_still_said_to_have(viewer: Client) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    for run in (first, second):
        builders.believable(run)
    told = summary_of(viewer, first, second)
    assert "0 of 5" in told
    assert "All tests came out alike." in told


def test_runs_of_which_a_verdict_alone_is_known_did_not_change_no_file(viewer: Client) -> None:
    first = verdict_alone(builders.run())
    second = verdict_alone(builders.another_run(first, seed=2))
    told = summary_of(viewer, first, second)
    assert "No run has changed a file" not in told
    assert "A: not recorded B: not recorded" in told
    patches = words(page(viewer, "patches", first, second))
    assert "ended without one" not in patches
    assert patches.count("not recorded: its file holds no patch") == 2
    files = words(page(viewer, "files", first, second))
    assert "changed 0" not in files
    assert "A not recorded; B not recorded" in files
    assert "no run has read or changed one so far" not in files


def test_a_run_that_recorded_steps_without_a_patch_is_told_apart_from_one_that_changed_nothing(
    viewer: Client,
) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    for run in (first, second):
        _, *graded = builders.ending()
        builders.start(run)
        builders.append(
            run,
            *builders.bash_step(1, "ls", "a.py"),
            PatchCaptured(exit_reason="agent", patch=""),
            *graded,
        )
    assert "No run has changed a file." in summary_of(viewer, first, second)
    assert "A changed 0, read 0" in words(page(viewer, "files", first, second))


def test_gold_is_offered_beside_the_steps_to_those_who_may_see_it(viewer: Client, operator: Client) -> None:
    first, second = pair()
    for client in (viewer, operator):
        assert "gold" not in summary_of(client, first, second).split("Context by step")[0]
    HiddenTaskPart.objects.create(task=first.task, verification={}, gold_patch=GOLD)
    assert "against=gold" not in page(viewer, "steps", first, second)
    assert "gold patch: operators and admins may see it" in summary_of(viewer, first, second)
    offered = page(operator, "steps", first, second)
    assert f"runs={first.pk},{second.pk}&amp;view=patches&amp;against=gold" in offered
    assert "operators and admins may see it" not in words(offered)


def test_the_meaning_of_the_signs_can_be_opened_where_nothing_has_room_beside_the_steps(
    viewer: Client,
) -> None:
    html = page(viewer, "steps", *pair())
    menu = re.search(r'<details class="menu signs-menu.*?</details>', html, re.DOTALL)
    assert menu is not None
    assert "same action, something differs" in words(menu[0])
    assert "only the other run did this" in words(menu[0])
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def parted_at_once() -> tuple[Run, Run]:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    for run, path in ((first, "a.py"), (second, "b.py")):
        _, *graded = builders.ending()
        patch = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n+x\n"
        builders.start(run)
        builders.append(
            run,
            *builders.bash_step(1, f"rm {path}", ""),
            *builders.bash_step(2, f"python {path}", "x"),
            *builders.final_step(3, f"I removed {path}."),
            PatchCaptured(exit_reason="agent", patch=patch),
            *graded,
        )
    return first, second


def test_runs_that_part_at_once_part_at_the_first_step(viewer: Client) -> None:
    told = words(page(viewer, "cost", *parted_at_once()))
    assert "A and B part at the first step" in told
    assert "after step 0" not in told


def test_runs_that_part_in_one_row_share_a_band_that_says_who_never_parts(viewer: Client) -> None:
    first, second = parted()
    left = [f"make left_{number}" for number in range(4)]
    third = run_of([*COMMON, *left], like=first, seed=3)
    fourth = run_of(
        [*COMMON, *(f"cargo build right_{number}" for number in range(4))],
        like=first,
        seed=4,
        patch=builders.PATCH.replace("_real(", "_true("),
    )
    html = page(viewer, "steps", first, second, third, fourth)
    assert html.count('<li class="band"') == 1
    told = words(html)
    assert "First sustained divergence: B and D part from A here after step 6." in told
    assert "C goes A's way to the end." in told
    text = words(saved(viewer, first, second, third, fourth))
    assert "First sustained divergence: B and D part from A here after step 6." in text


def test_the_key_to_the_divergence_is_offered_where_there_is_one(viewer: Client) -> None:
    def key(*runs: Run) -> bool:
        return "<kbd>v</kbd> divergence" in page(viewer, "steps", *runs)

    assert key(*parted())
    first = run_of(COMMON)
    assert not key(first, run_of(COMMON, like=first))
    assert key(first, run_of(COMMON, like=first, seed=3, ended=False))


def test_a_part_of_the_address_that_means_nothing_here_is_told(viewer: Client) -> None:
    runs = pair()
    told = words(page(viewer, "steps", *runs, more="&row=17.5&align=%3Cb%3E"))
    assert "Not heeded, as this page knows nothing of that name: row , align ." in told
    for more in ("", "&by=number&scroll=apart&fold=none", "&against=gold&of=A&lay=over&all=tests"):
        assert "Not heeded" not in page(viewer, "patches", *runs, more=more)
