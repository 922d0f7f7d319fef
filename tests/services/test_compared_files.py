"""Which files runs read and changed, and in which steps."""

from __future__ import annotations

import pytest

from lab.engine.events import Event, FileChange, PatchCaptured
from lab.models import Run
from lab.services import compared_files
from lab.services.compared_files import FileRow
from lab.services.outlines import outlines_of
from tests import builders

pytestmark = pytest.mark.django_db


def did(*events: Event, files: list[FileChange] | None = None) -> Run:
    run = builders.run()
    builders.start(run)
    builders.append(run, *events)
    if files is not None:
        _, *rest = builders.ending()
        builders.append(run, PatchCaptured(exit_reason="agent", patch="x", files=files), *rest)
    return Run.objects.get(pk=run.pk)


def reads(step: int, path: str) -> list[Event]:
    return [
        builders.asked(step),
        builders.answered(step, ("Read", "{}")),
        builders.called(step, "Read", {"file_path": path}),
        builders.told(step, "1. import os"),
    ]


def change(path: str, added: int | None = 1, removed: int | None = 0, how: str = "modified") -> FileChange:
    return FileChange.model_validate({"path": path, "change": how, "added": added, "removed": removed})


def rows(*runs: Run) -> dict[str, FileRow]:
    return {row.path: row for row in compared_files.compare(runs, outlines_of(runs)).rows}


def test_a_file_is_changed_read_or_untouched_with_the_steps_that_touched_it() -> None:
    first = did(
        *reads(1, "tickwell/schedule.py"),
        *builders.edit_step(2),
        files=[change("tickwell/schedule.py", 2, 2)],
    )
    second = did(*reads(1, "a.py"), *reads(2, "tickwell/schedule.py"), *reads(3, "a.py"), files=[])
    found = rows(first, second)
    assert list(found) == ["tickwell/schedule.py", "a.py"]
    one, other = found["tickwell/schedule.py"].sides
    assert (one.touch, one.added, one.removed, one.edits, one.reads) == ("changed", 2, 2, (2,), (1,))
    assert (other.touch, other.steps) == ("read", (2,))
    assert [side.touch for side in found["a.py"].sides] == ["untouched", "read"]
    assert found["a.py"].sides[1].steps == (1, 3)


def test_what_a_command_changed_is_known_from_the_patch_alone() -> None:
    run = did(
        *builders.bash_step(1, "make all", "done"),
        files=[change("new.bin", None, None, "added"), change("gone.py", 0, 9, "deleted")],
    )
    found = rows(run, run)
    binary, gone = found["new.bin"].sides[0], found["gone.py"].sides[0]
    assert (binary.added, binary.note, binary.steps) == (None, "new", ())
    assert (gone.removed, gone.note) == (9, "deleted")


def test_an_edit_that_is_not_in_the_patch_is_only_an_edit() -> None:
    undone = did(*builders.edit_step(1), files=[])
    live = did(*builders.edit_step(1))
    found = rows(undone, live)["tickwell/schedule.py"]
    assert [side.touch for side in found.sides] == ["edited", "edited"]
    compared = compared_files.compare([undone, live], outlines_of([undone, live]))
    assert [side.patched for side in compared.sides] == [True, False]


def test_of_a_run_without_steps_it_is_unknown_what_it_read() -> None:
    found = rows(did(*reads(1, "a.py"), files=[]), builders.run())
    assert [side.touch for side in found["a.py"].sides] == ["read", "unknown"]


def test_files_that_differ_come_first_and_equal_ones_are_known_as_such() -> None:
    files = [change("a.py"), change("b.py"), change("c.py")]
    runs = [did(files=files), did(files=files), did(files=files)]
    same = [{"a.py": True, "b.py": False}, {"a.py": True, "b.py": True}]
    compared = compared_files.compare(runs, outlines_of(runs), same)
    assert [(row.path, row.same, row.differs) for row in compared.rows] == [
        ("b.py", False, True),
        ("a.py", True, False),
        ("c.py", None, False),
    ]


def test_what_a_patch_holds_stands_before_what_was_only_edited() -> None:
    run = did(*builders.edit_step(1), files=[change("z.py"), change("crlf.py\r")])
    assert list(rows(run, run)) == ["crlf.py", "z.py", "tickwell/schedule.py"]
