"""Runs side by side as one file: opened from disk it needs no lab, and nothing in it runs or is loaded."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.views.decorators.http import require_safe

from lab import __version__
from lab.engine.errors import InvalidValueError
from lab.engine.formats.bundles import in_larger_pieces
from lab.models import Role
from lab.render import side_by_side as rendered
from lab.render.compared_patches import ShownDiff, notes_of, shown_diffs
from lab.render.compared_tests import rows_html
from lab.render.numbers import size
from lab.render.standalone import NO_ROOM, Standalone, folded_html, style_element, symbols
from lab.render.text import visible_text
from lab.services import comparison_exports, comparisons
from lab.services.compared_patches import ComparedFile
from lab.services.compared_tests import sentences
from lab.services.comparison_asks import asked as asked_of
from lab.services.comparison_exports import MOST_BYTES, MOST_TESTS, FileComparison
from lab.services.exports import Export
from lab.services.side_by_side import stretch_words
from lab.services.side_by_side_rows import Row, Stretch, rows_of
from lab.web import comparison_tabs
from lab.web.comparison_patches import MOST_FILES, MOST_LINES
from lab.web.comparison_rows import ROWS_WITH_ICONS, band_at, frame_of, map_html
from lab.web.exports import download
from lab.web.http import for_role, signed_in

# The styles of the pages that the parts are of, and the file's own at the end.
_SHEETS = (
    "tokens",
    "base",
    "run",
    "diff",
    "comparisons",
    "compare_tabs",
    "compare",
    "compare_bodies",
    "export_page",
)
_PATCH_LINES = 1_000
# Room for what stands at the end and says what is not in the file.
_RESERVE = 4_000
_CONTENT_TYPE = "text/html; charset=utf-8"


@require_safe
@for_role(Role.VIEWER)
def comparison_export(request: HttpRequest) -> HttpResponseBase:
    """What the file of `?runs=12,15` will hold and how large it will be; with `save`, the file itself."""
    saving = "save" in request.GET
    try:
        numbers = comparisons.asked_numbers(request.GET.getlist("runs"))
        runs = comparisons.find_runs(numbers)
        asked = asked_of(numbers, request.GET.dict())
        # Where the page stood is in its address; the file begins at its beginning.
        whole = replace(asked, at=None, open=None)
        found = comparison_exports.of_runs(by=signed_in(request), runs=runs, asked=whole)
    except InvalidValueError as error:
        if saving:
            return HttpResponse(f"{error}\n", status=400, content_type="text/plain; charset=utf-8")
        # There it is said what is wrong, beside what was asked for.
        return redirect(f"{reverse('comparison')}?{request.GET.urlencode()}")
    query = asked.address()
    text = FileText(request, found, query)
    if saving:
        name = f"runs-{'-'.join(str(number) for number in numbers)}.html"
        response = download(request, Export(name, _CONTENT_TYPE, in_larger_pieces(text.pieces())))
        response.headers["Content-Security-Policy"] = text.policy
        return response
    expected = comparison_exports.expected_bytes(found, beside=text.beside)
    context = {"place": "compare", "found": found, "query": query, "size": size(expected), **_bounds()}
    return render(request, "comparisons/export_ask.html", context | {"is_full": expected >= MOST_BYTES})


def _bounds() -> dict[str, object]:
    return {"most": size(MOST_BYTES), "most_tests": MOST_TESTS}


class FileText:
    """A comparison as the text of one file, made piece by piece. To be written once."""

    def __init__(self, request: HttpRequest, found: FileComparison, query: str) -> None:
        self._found = found
        self._alone = Standalone()
        self._frame = frame_of(found.side)
        style, source = _style()
        self.policy = f"default-src 'none'; style-src {source}; base-uri 'none'; form-action 'none'"
        self._rest = self._part("rest", self._rest_context(request))
        here = secrets.token_hex(16)
        context = {
            "policy": self.policy,
            "style": style,
            "symbols": _symbols(),
            "title": f"Runs {', '.join(map(str, found.side.runs))} side by side · Trajectory Lab",
            "many": len(found.columns),
            "head": self._part("head", self._head_context(request, query)),
            "heads": self._part("heads", self._side_context()),
            "map": self._map(),
            "side": self._part("side", self._summary()),
            "here": here,
        }
        parts = render_to_string("comparisons/export.html", context).split(here)
        self._before, self._between, self._after = parts

    @property
    def beside(self) -> int:
        """Bytes of all that is no row's body, about."""
        line = self._row(self._found.rows[0], None) if self._found.rows else b""
        return self._around() + _RESERVE + len(line) * len(self._found.rows)

    def _around(self) -> int:
        """Bytes of what is no row."""
        return sum(len(text.encode()) for text in (self._before, self._between, self._rest, self._after))

    def pieces(self) -> Iterator[bytes]:
        """The file from its beginning to its end."""
        yield self._before.encode()
        room = _Room(MOST_BYTES - _RESERVE - self._around())
        bodies = self._found.bodies(self._found.rows)
        for unit in self._found.side.units:
            yield self._opening(unit)
            for row in rows_of(unit):
                # Once one had no room, what opens below the others is not even read.
                body = None if room.is_full else next(bodies)[1]
                whole = b"" if body is None else room.taken(self._row(row, body))
                yield whole or room.taken(self._row(row, None), whole=False)
            yield _closing(unit)
        yield self._between.encode()
        yield self._rest.encode()
        yield self._part("left_out", {"found": self._found, "room": room, **_bounds()}).encode()
        yield self._after.encode()

    def _row(self, row: Row, body: str | None) -> bytes:
        """A row that opens; without `body` it says that there was no room for what it opens."""
        inside = NO_ROOM if body is None else body
        opened = body is not None and row.name in self._found.side.opened
        return self._alone(rendered.row_html(row, self._frame, body=inside, opened=opened)).encode()

    def _opening(self, unit: Row | Stretch) -> bytes:
        """What stands in front of a unit's rows: that runs part here, or what is folded."""
        first = rows_of(unit)[0]
        markup = band_at(self._found.side.layout, self._frame, first.index, with_key=False)
        if isinstance(unit, Stretch):
            markup += folded_html(len(unit.rows), stretch_words(unit))
        return self._alone(markup).encode()

    def _map(self) -> str:
        rows = self._found.rows
        context = {
            "minimap": map_html(self._found.side, self._frame),
            "dense": len(rows) > ROWS_WITH_ICONS,
            "side": self._found.side,
        }
        return self._alone(render_to_string("comparisons/_minimap.html", context))

    def _side_context(self) -> dict[str, Any]:
        side = self._found.side
        return {"side": side, "heads": [(column, "") for column in side.columns]}

    def _summary(self) -> dict[str, Any]:
        side = self._found.side
        return comparison_tabs.summary_of(
            [column.run for column in side.columns],
            [column.outline for column in side.columns],
            side.layout.last_common_step(),
            self._frame.letters,
        )

    def _part(self, name: str, context: dict[str, Any]) -> str:
        return self._alone(render_to_string(f"comparisons/_export_{name}.html", context))

    def _head_context(self, request: HttpRequest, query: str) -> dict[str, Any]:
        runs, letters = self._frame.runs, self._frame.letters
        side = self._found.side
        partings = [
            (f"divergence-{runs[one.column]}", f"{letters[one.base]} and {letters[one.column]}")
            for one in side.layout.partings
        ]
        return {
            "found": self._found,
            "signals": comparisons.signals([column.run for column in side.columns]),
            "permalink": request.build_absolute_uri(f"{reverse('comparison')}{query}"),
            "version": __version__,
            "partings": partings,
        }

    def _rest_context(self, request: HttpRequest) -> dict[str, Any]:
        found = self._found
        comparison = found.comparison
        _, files = comparison_tabs.context_of("files", found.runs, request)
        return files | {
            "found": found,
            "patched": list(_shown_files(found.files)),
            "more_files": max(0, len(found.files) - MOST_FILES),
            "tests": [
                rows_html(tests, ["none"] * len(found.columns), with_logs=False)
                for tests in (found.differing, found.failing)
            ],
            "sentences": sentences(found.tests, one_task=len(comparison.tasks) == 1),
            "setup": [
                ("limits", "Limits", comparison.limits, comparison.limits_alike),
                ("task-set", "Task set", comparison.task_set, comparison.task_set_alike),
                ("sandbox", "Sandbox", comparison.sandbox, comparison.sandbox_alike),
                ("other", "Model, sampling and the rest", comparison.other, comparison.other_alike),
            ],
        }


class _Room:
    """How many bytes are left, and how many rows had no room for their bodies, or none at all."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.cut = 0
        self.unshown = 0

    @property
    def is_full(self) -> bool:
        """Whether something had no room."""
        return bool(self.cut or self.unshown)

    def taken(self, data: bytes, *, whole: bool = True) -> bytes:
        """The data where there is room for it, else nothing."""
        fits = len(data) <= self.left
        self.left -= len(data) if fits else 0
        self.cut += fits and not whole
        self.unshown += not fits and not whole
        return data if fits else b""


def _closing(unit: Row | Stretch) -> bytes:
    return b"</ol></details></li>" if isinstance(unit, Stretch) else b""


class _ShownVariant(NamedTuple):
    """What some runs do to a file; `letters` names them."""

    letters: str
    added: int
    removed: int
    notes: list[str]
    diff: ShownDiff


class _ShownFile(NamedTuple):
    path: str
    words: str
    variants: list[_ShownVariant]


def _shown_files(files: Sequence[ComparedFile]) -> Iterator[_ShownFile]:
    """The first files, with their diffs until there are enough lines of them."""
    left = MOST_LINES
    for file in files[:MOST_FILES]:
        shown = _shown_file(file, most=min(left, _PATCH_LINES))
        left = max(0, left - sum(variant.diff.shown for variant in shown.variants))
        yield shown


def _shown_file(file: ComparedFile, *, most: int) -> _ShownFile:
    sections = [variant.section for variant in file.variants]
    diffs = shown_diffs([section.raw for section in sections], most=most)
    variants = [
        _ShownVariant(", ".join(variant.names), section.added, section.removed, notes_of(section.raw), diff)
        for variant, section, diff in zip(file.variants, sections, diffs, strict=True)
    ]
    words = {"differs": "differs", "only": f"untouched by {' and '.join(file.without)}", "same": "the same"}
    return _ShownFile(visible_text(file.path), words[file.relation], variants)


def _sheet(name: str) -> str:
    folder: Path = settings.STATICFILES_DIRS[0]
    return (folder / "css" / f"{name}.css").read_text()


@lru_cache(maxsize=1)
def _style() -> tuple[str, str]:
    return style_element(_sheet(name) for name in _SHEETS)


@lru_cache(maxsize=1)
def _symbols() -> str:
    folder: Path = settings.STATICFILES_DIRS[0]
    return symbols((folder / "icons.svg").read_text())


urlpatterns = [path("compare/export", comparison_export, name="comparison_export")]
