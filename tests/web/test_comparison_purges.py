"""A secret that was purged stands in no part of any page of runs side by side, whatever was made before."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from lab.models import Run
from lab.services import outlines, purges, side_by_side_rows
from tests.services.test_purges import LEAKED, leaky, purge

pytestmark = pytest.mark.django_db(transaction=True)

VIEWS = ("steps", "patches", "tests", "files", "cost", "setup")
# Where the secret was to be read before: of the views only that of steps shows what was printed and called.
_SHOWING = {"page", "numbered", "unfolded", "rows", "row 1", "row 2", "pane row 2", "live", "file"}


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "leaked"
    path.write_text(f"{LEAKED}\n")
    return path


def addresses(*runs: Run) -> dict[str, str]:
    """Every address that shows something of these runs side by side, by what it is."""
    numbers = ",".join(str(run.pk) for run in runs)
    first, *_, last = runs
    found = {f"view {view}": f"/compare/?runs={numbers}&view={view}&all=tests" for view in VIEWS}
    found |= {
        "page": f"/compare/?runs={numbers}&open={first.pk}.2",
        "numbered": f"/compare/?runs={numbers}&by=number&open={first.pk}.2",
        "unfolded": f"/compare/?runs={numbers}&fold=none&open={last.pk}.2",
        "apart": f"/compare/?runs={numbers}&scroll=apart",
        "rows": f"/compare/rows?runs={numbers}&fold=none",
        "pane rows": f"/compare/rows?runs={numbers}&scroll=apart&column={last.pk}&after={last.pk}.1",
        "pane row 2": f"/compare/row?runs={numbers}&scroll=apart&column={last.pk}&row={last.pk}.2",
        "live": f"/compare/live?runs={numbers}&summary=1",
        "live panes": f"/compare/live?runs={numbers}&scroll=apart&pane={last.pk}:1:&summary=1",
        "before the file": f"/compare/export?runs={numbers}",
        "file": f"/compare/export?runs={numbers}&save=1",
        "choosing": f"/compare/?runs={first.pk}",
    }
    return found | {
        f"row {step}": f"/compare/row?runs={numbers}&row={first.pk}.{step}" for step in range(1, 4)
    }


def read(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return b"".join(answer).decode()  # type: ignore[arg-type]


def parts_in(text: str) -> set[str]:
    """Those beginnings and ends of the secret, in any form, that a page says or holds in its markup."""
    secret = purges.Secret(LEAKED)
    parts = {form[:_PART] for form in secret.forms} | {form[-_PART:] for form in secret.forms}
    said = html.unescape(text)
    # Words that differ are marked one by one: the marks must not hide what stands around them.
    texts = (text, said, html.unescape(re.sub(r"<[^>]+>", "", text)))
    return {part for part in parts if any(part in one for one in texts)}


_PART = 12


def held() -> Iterator[str]:
    """What this process keeps of runs between two pages."""
    yield from (repr(reading) for reading in outlines._cache._items.values())
    yield from (repr(kept) for kept in side_by_side_rows._layouts.values())


def test_every_page_made_before_a_purge_is_made_anew_without_the_secret(
    operator: Client, secret_file: Path
) -> None:
    runs = [leaky(), leaky()]
    showing = {name for name, where in addresses(*runs).items() if parts_in(read(operator, where))}
    assert showing >= _SHOWING
    purge(secret_file)
    for name, where in addresses(*runs).items():
        assert parts_in(read(operator, where)) == set(), name


def test_what_goes_on_says_how_often_its_log_was_purged_so_that_an_open_page_loads_itself(
    operator: Client, secret_file: Path
) -> None:
    runs = [leaky(), leaky(secret="correct-and-harmless-words-of-another")]
    said = re.compile(r'data-run="(\d+)"[^>]* data-purges="(\d+)"')
    live = addresses(*runs)["live"]
    assert said.findall(read(operator, live)) == [(str(run.pk), "0") for run in runs]
    purge(secret_file)
    assert said.findall(read(operator, live)) == [(str(runs[0].pk), "1"), (str(runs[1].pk), "0")]
    assert said.findall(read(operator, addresses(*runs)["page"]))[0] == (str(runs[0].pk), "1")


def test_nothing_of_it_is_kept_in_the_memory_of_a_process_that_made_pages_before(
    operator: Client, secret_file: Path
) -> None:
    runs = [leaky(), leaky(), leaky()]
    read(operator, addresses(*runs[:2])["page"])
    read(operator, addresses(*runs)["page"])
    assert any(parts_in(text) for text in held())
    # By another process, as far as this one can tell: all that it hears of it is the mark in the data folder.
    purge(secret_file)
    read(operator, f"/compare/?runs={runs[1].pk},{runs[2].pk}")
    assert [text for text in held() if parts_in(text)] == []
