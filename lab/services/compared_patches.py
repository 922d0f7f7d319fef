"""The patches of several runs of one task, file by file, against each other and against the gold patch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db.models import OuterRef, Q, Subquery

from lab.engine.diffs import parse_patch
from lab.engine.formats.to_events import NO_PATCH
from lab.models import Attempt, Event, Experiment, HiddenTaskPart, Run
from lab.services.blobs import BodyMissingError
from lab.services.trajectories import text_of

LETTERS = "ABCDEF"
GOLD = "gold"
# A patch lies near its log's end: only that is searched.
_NEAR_THE_END = 100
_WITH_PATCH = (Run.Status.VERIFYING, Run.Status.ENDED)

State = Literal["waiting", "none", "unrecorded", "gone", "empty", "text", "diff"]
Relation = Literal["differs", "only", "same"]


@dataclass(frozen=True, slots=True)
class Section:
    """One file of a patch: its text as git wrote it, and a digest of what it does to the file."""

    raw: str
    normal: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class RunPatch:
    """One side's final patch. `text` is as it was stored; keys are not masked in it.

    `state`: "waiting" (none yet), "none" (the run ended without one), "unrecorded" (its file has none),
    "gone" (`why` says why), "empty", "text" (no diff), "diff" (then `files` has its files in order).
    """

    name: str
    run: int
    state: State
    text: str = ""
    why: str = ""
    left_out: tuple[str, ...] = ()
    files: Mapping[str, Section] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether one can say for each file what it does to it."""
        return self.state in {"empty", "diff"}


@dataclass(frozen=True, slots=True)
class Variant:
    """What some sides do to a file; all of `names` do the same."""

    names: tuple[str, ...]
    section: Section


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A file that at least one patch touches. `without` names the sides that leave it alone."""

    path: str
    relation: Relation
    variants: tuple[Variant, ...]
    without: tuple[str, ...]


def patches_of(runs: Sequence[Run]) -> list[RunPatch]:
    """The newest attempt's patch of each run, in order, named A, B, …; one query for all."""
    events = _patch_events(runs)
    return [
        _patch(run, name, events.get(run.pk)) for name, run in zip(LETTERS[: len(runs)], runs, strict=True)
    ]


def same_files(runs: Sequence[Run]) -> list[Mapping[str, bool] | None]:
    """For each run after the first: path -> whether its final patch and the first run's hold the same for it.

    One entry a run after the first, in order. None where one of the two has no patch (yet), or none of which
    the files are known. Paths are those that either patch touches. Where lines stand and what blobs are
    called makes no difference.
    """
    if not runs:
        return []
    first, *others = patches_of(runs)
    return [_same(first, other) if first.known and other.known else None for other in others]


def _same(first: RunPatch, second: RunPatch) -> dict[str, bool]:
    return {
        path: path in first.files
        and path in second.files
        and first.files[path].normal == second.files[path].normal
        for path in dict.fromkeys([*first.files, *second.files])
    }


def gold_patch(*, task_id: int) -> RunPatch | None:
    """The task's gold patch as a side of its own; None where nobody knows one.

    It gives the solution away: only for operators and admins, as on the task's page.
    """
    found = HiddenTaskPart.objects.filter(task=task_id).values_list("gold_patch", flat=True).first()
    return _read(GOLD, 0, found) if found and found.strip() else None


def has_gold(*, task_id: int) -> bool:
    """Whether a gold patch is known for the task."""
    return HiddenTaskPart.objects.filter(task=task_id).exclude(gold_patch="").exists()


def compare(patches: Iterable[RunPatch]) -> list[ComparedFile]:
    """Files that differ first, then those of some sides only, then those that are the same in all.

    Sides whose files are not known are left out.
    """
    sides = [patch for patch in patches if patch.known]
    paths = dict.fromkeys(path for side in sides for path in side.files)
    order: tuple[Relation, ...] = ("differs", "only", "same")
    return sorted((_compared(path, sides) for path in paths), key=lambda one: order.index(one.relation))


def _compared(path: str, sides: Sequence[RunPatch]) -> ComparedFile:
    groups: dict[str, list[RunPatch]] = {}
    for side in sides:
        if path in side.files:
            groups.setdefault(side.files[path].normal, []).append(side)
    without = tuple(side.name for side in sides if path not in side.files)
    relation: Relation = "differs" if len(groups) > 1 else "only" if without else "same"
    variants = [
        Variant(tuple(side.name for side in group), group[0].files[path]) for group in groups.values()
    ]
    return ComparedFile(path, relation, tuple(variants), without)


# ---- reading -----------------------------------------------------------------------------------------------


def _patch_events(runs: Sequence[Run]) -> dict[int, Any]:
    near = Q(pk__in=())
    for run in runs:
        if run.status in _WITH_PATCH:
            near |= Q(run=run.pk, seq__gt=run.last_seq - _NEAR_THE_END)
    newest = Attempt.objects.filter(run=OuterRef("run")).order_by("-n").values("n")[:1]
    found = Event.objects.filter(near, kind="patch_captured", attempt=Subquery(newest)).order_by("seq")
    return dict(found.values_list("run_id", "payload"))


def _patch(run: Run, name: str, payload: Any) -> RunPatch:
    if payload is None:
        return RunPatch(name, run.pk, _without_patch(run))
    left_out = tuple(str(words) for words in payload.get("left_out") or ())
    if NO_PATCH in left_out:
        return RunPatch(name, run.pk, "unrecorded")
    try:
        text = text_of(payload["patch"])
    except BodyMissingError as error:
        return RunPatch(name, run.pk, "gone", why=str(error))
    return _read(name, run.pk, text, left_out)


def _without_patch(run: Run) -> State:
    if run.status != Run.Status.ENDED:
        return "waiting"
    return "unrecorded" if is_imported(run) else "none"


def is_imported(run: Run) -> bool:
    """Whether another program tells of the run: what its file does not hold is unknown, not nothing."""
    return run.experiment.kind == Experiment.Kind.IMPORTED


def _read(name: str, run: int, text: str, left_out: tuple[str, ...] = ()) -> RunPatch:
    if not text.strip():
        return RunPatch(name, run, "empty", text, left_out=left_out)
    files = sections_of(text)
    return RunPatch(name, run, "diff" if files else "text", text, left_out=left_out, files=files)


_FILE = re.compile(r"(?m)^(?=diff --git )")
_HEAD_ENDS = re.compile(r"(?m)^(?=@@ |GIT binary patch$)")
_CRLF_HEAD = re.compile(r"(?m)^(?:diff --git |\+\+\+ )[^\r\n]*\r\n")
# In a head alone: there no line is a line of the file.
_NAMES_OF_BLOBS = re.compile(r"(?m)^index [0-9a-f]+\.\.[0-9a-f]+.*\n?")
_TIMES_OF_FILES = re.compile(r"(?m)^(---|\+\+\+) ([^\t\n]*)\t.*$")
_PLACES = re.compile(r"(?m)^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*$")


def sections_of(patch: str) -> dict[str, Section]:
    """Path -> what a diff holds of it, in order; nothing for what is no diff."""
    raws: dict[str, str] = {}
    for raw in _FILE.split(_with_plain_ends(patch)):
        if not raw.startswith("diff --git "):
            # Without git's heads one has to read all of it to tell files apart.
            for file in parse_patch(raw) if "\n@@ " in raw and "+++ " in raw else ():
                if file.path and file.hunks:
                    raws[file.path] = raws.get(file.path, "") + file.raw
            continue
        path = next((file.path for file in parse_patch(_parted(raw)[0])), "")
        if path:
            raws[path] = raws.get(path, "") + raw
    return {path: _section(raw) for path, raw in raws.items()}


def _with_plain_ends(patch: str) -> str:
    """A patch that some program wrote with CRLF, git's own lines among them, as git writes it."""
    return patch.replace("\r\n", "\n") if _CRLF_HEAD.search(patch) else patch


def _parted(raw: str) -> tuple[str, str]:
    """Head and body of a file's section."""
    ends = _HEAD_ENDS.search(raw)
    at = ends.start() if ends else len(raw)
    return raw[:at], raw[at:]


def _section(raw: str) -> Section:
    head, body = _parted(raw)
    binary = body.startswith("GIT binary patch")
    # Of a binary file without its bytes the names of the blobs are all that tells two contents apart.
    known_by_name = not body and "\nBinary files " in head
    normal_head = head if known_by_name else _NAMES_OF_BLOBS.sub("", head)
    normal = _TIMES_OF_FILES.sub(r"\1 \2", normal_head) + _PLACES.sub("@@", body)
    return Section(
        raw=raw,
        normal=hashlib.sha256(normal.rstrip("\n").encode("utf-8", "surrogatepass")).hexdigest(),
        added=0 if binary else len(re.findall(r"(?m)^\+", body)),
        removed=0 if binary else len(re.findall(r"(?m)^-", body)),
    )
