"""The patches of several runs, file by file."""

from __future__ import annotations

import pytest
from pytest_django import DjangoAssertNumQueries

from lab.engine.events import AttemptEnded, PatchCaptured, RunEnded
from lab.engine.formats.to_events import NO_PATCH
from lab.models import Blob, HiddenTaskPart, Run
from lab.services import blobs, compared_patches
from lab.services.compared_patches import compare, gold_patch, patches_of, same_files, sections_of
from tests import builders

pytestmark = pytest.mark.django_db


def diff(path: str, *lines: str, start: int = 1, index: str = "index 1..2 100644\n") -> str:
    body = "".join(f"{line}\n" for line in lines)
    return (
        f"diff --git a/{path} b/{path}\n{index}--- a/{path}\n+++ b/{path}\n@@ -{start} +{start} @@ f\n{body}"
    )


def ended(patch: str, *, left_out: list[str] | None = None, attempt: int = 1, run: Run | None = None) -> Run:
    run = run or builders.run()
    if attempt == 1:
        builders.start(run)
    builders.append(
        run,
        PatchCaptured(exit_reason="agent", patch=patch, left_out=left_out or []),
        AttemptEnded(exit_reason="agent", steps=1, wall_seconds=1.0, agent_seconds=1.0),
        RunEnded(exit_reason="agent", verdict=None),
        attempt=attempt,
    )
    return Run.objects.get(pk=run.pk)


def test_a_file_is_the_same_whatever_blobs_are_called_and_wherever_its_lines_stand() -> None:
    first = ended(diff("a.py", "-a", "+b") + diff("b.py", "+x") + diff("only.py", "+x"))
    second = ended(diff("a.py", "-a", "+b", start=7, index="index 3..4 100755\n") + diff("b.py", "+y"))
    assert same_files([first, second]) == [{"a.py": True, "b.py": False, "only.py": False}]


def test_a_changed_mode_another_context_and_another_blank_are_differences() -> None:
    first = ended(diff("a.py", " a", "+b") + diff("m", "+x") + diff("s", "+x"))
    mode = diff("m", "+x", index="old mode 100644\nnew mode 100755\nindex 1..2\n")
    second = ended(diff("a.py", " other", "+b") + mode + diff("s", "+x "))
    assert same_files([first, second]) == [{"a.py": False, "m": False, "s": False}]


def test_an_empty_patch_is_known_and_one_that_is_not_there_yet_is_not() -> None:
    first, empty, none = ended(diff("a.py", "+b")), ended(""), builders.run()
    assert same_files([first, empty, none]) == [{"a.py": False}, None]
    assert same_files([none, first]) == [None]
    assert same_files([first]) == []
    assert same_files([empty, ended(" \n")]) == [{}]


def test_each_state_of_a_patch_is_told_apart() -> None:
    broken = builders.run()
    builders.start(broken)
    builders.append(
        broken,
        AttemptEnded(exit_reason="tool_error", steps=0, wall_seconds=1.0, agent_seconds=0.0),
        RunEnded(exit_reason="tool_error", verdict=None),
    )
    runs = [
        ended(diff("a.py", "+b")),
        ended(""),
        ended("I changed a few things."),
        ended("", left_out=[NO_PATCH]),
        Run.objects.get(pk=broken.pk),
        builders.run(),
    ]
    found = patches_of(runs)
    assert [patch.state for patch in found] == ["diff", "empty", "text", "unrecorded", "none", "waiting"]
    assert [patch.name for patch in found] == list("ABCDEF")
    assert same_files([runs[0], runs[2]]) == [None]


def test_a_stored_patch_that_is_gone_is_said_to_be_missing() -> None:
    run = ended(diff("a.py", *[f"+{number}" for number in range(3000)]))
    blobs.path_of(Blob.objects.get().pk).unlink()
    (patch,) = patches_of([run])
    assert patch.state == "gone"
    assert "missing" in patch.why
    assert same_files([run, ended("")]) == [None]


def test_only_the_newest_attempt_counts() -> None:
    run = ended(diff("old.py", "+b"))
    run.attempts.get_or_create(n=2)
    assert patches_of([Run.objects.get(pk=run.pk)])[0].state == "none"
    again = ended(diff("new.py", "+b"), attempt=2, run=run)
    assert list(patches_of([again])[0].files) == ["new.py"]


def test_files_that_differ_come_first_and_sides_that_do_the_same_stand_together() -> None:
    runs = [
        ended(diff("same.py", "+s") + diff("d.py", "+1")),
        ended(diff("same.py", "+s") + diff("d.py", "+2") + diff("only.py", "+x")),
        ended(diff("same.py", "+s") + diff("d.py", "+1")),
        builders.run(),
    ]
    found = compare(patches_of(runs))
    assert [(one.path, one.relation) for one in found] == [
        ("d.py", "differs"),
        ("only.py", "only"),
        ("same.py", "same"),
    ]
    assert [variant.names for variant in found[0].variants] == [("A", "C"), ("B",)]
    assert found[1].without == ("A", "C")


def test_six_patches_are_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    runs = [ended(diff("a.py", f"+{number}")) for number in range(6)]
    with django_assert_num_queries(1):
        assert len(same_files(runs)) == 5


def test_a_diff_without_gits_heads_and_one_of_a_binary_file_are_read() -> None:
    timed = "--- a/x.py\t2024-01-01\n+++ b/x.py\t2024-01-02\n@@ -1 +1 @@\n-a\n+b\n"
    plain = f"{timed}--- a/y.py\n+++ b/y.py\n@@ -1 +1 @@\n-a\n+c\n"
    found = sections_of(plain)
    assert {path: (one.added, one.removed) for path, one in found.items()} == {"x.py": (1, 1), "y.py": (1, 1)}
    binary = "diff --git a/x b/x\nindex 1..{} 100644\nBinary files a/x and b/x differ\n"
    one, other = (sections_of(binary.format(name))["x"].normal for name in ("2", "3"))
    assert one != other
    coded = "diff --git a/x b/x\nindex 1..{} 100644\nGIT binary patch\nliteral 3\nKcmZQ\n\n"
    one, other = (sections_of(coded.format(name))["x"].normal for name in ("2", "3"))
    assert one == other
    assert sections_of("no diff at all") == {}


def test_a_patch_that_was_written_with_crlf_is_the_same_as_one_without() -> None:
    plain = diff("a.py", " x", "-a", "+b")
    assert same_files([ended(plain), ended(plain.replace("\n", "\r\n"))]) == [{"a.py": True}]
    of_the_file = diff("a.py", " x\r", "-a\r", "+b\r")
    assert same_files([ended(plain), ended(of_the_file)]) == [{"a.py": False}]


def test_the_gold_patch_is_a_side_of_its_own_where_one_is_known() -> None:
    run = ended(diff("a.py", "+b"))
    assert gold_patch(task_id=run.task_id) is None
    assert not compared_patches.has_gold(task_id=run.task_id)
    HiddenTaskPart.objects.create(task=run.task, verification={}, gold_patch=diff("a.py", "+b", start=3))
    gold = gold_patch(task_id=run.task_id)
    assert gold is not None
    assert [one.relation for one in compare([*patches_of([run]), gold])] == ["same"]
