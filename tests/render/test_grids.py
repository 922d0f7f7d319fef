"""Cells, rows and lines of an experiment's grid as markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.render.grids import (
    STATES,
    Against,
    Cell,
    Column,
    Row,
    Sum,
    against_html,
    cell_html,
    grid_html,
    interval_svg,
    pending_words,
    rough_time,
    short_tokens,
    state_of,
)

NOTHING = Against("", False, ())


def cell(**changed: object) -> Cell:
    usual = Cell(
        run=12,
        task="dst-schedule",
        arm="A",
        seed=2,
        state="resolved",
        seq=40,
        steps=9,
        cost="$0.12",
        time="1:42",
        tokens="12 k",
        flagged=False,
    )
    return usual._replace(**changed)


def test_a_cell_is_a_link_that_says_in_words_what_its_icon_and_colour_say() -> None:
    html = cell_html(cell())
    assert 'href="/runs/12/"' in html
    assert 'aria-label="dst-schedule, arm A, seed 2: resolved, 9 steps, $0.12"' in html
    assert '#ok"' in html
    assert 'data-cost="$0.12" data-time="1:42" data-tokens="12 k"' in html


def test_a_running_cell_says_its_step_and_what_it_waits_for_with_a_clock() -> None:
    html = cell_html(cell(state="running", now="Bash", since_ms=1_764_000_000_000))
    assert 'aria-label="dst-schedule, arm A, seed 2: running, step 9, Bash"' in html
    assert 'data-since="1764000000000">since ' in html


def test_an_infrastructure_error_is_no_failure_and_a_flag_stands_beside_the_verdict() -> None:
    assert 'class="infrastructure"' in cell_html(cell(state="infrastructure"))
    flagged = cell_html(cell(flagged=True))
    assert 'class="resolved"' in flagged
    assert "data-flagged" in flagged
    assert "resolved, 9 steps, $0.12, flagged" in flagged


def test_an_unknown_cost_is_a_question_mark_with_its_word() -> None:
    html = cell_html(cell(cost="$ ?"))
    assert 'data-cost="$ ?"' in html
    assert "cost unknown" in html


@pytest.mark.parametrize(
    ("status", "verdict", "reason", "state"),
    [
        ("queued", "", "", "queued"),
        ("running", "resolved", "", "running"),
        ("ended", "resolved", "max_steps", "resolved"),
        ("ended", "unparsed", "agent", "unparsed"),
        ("ended", "", "cancelled", "cancelled"),
        ("ended", "", "tool_error", "infrastructure"),
        ("ended", "", "agent", "ungraded"),
        ("a status of later", "", "", "queued"),
    ],
)
def test_a_cell_stands_in_the_status_until_ended_and_then_in_the_verdict(
    status: str, verdict: str, reason: str, state: str
) -> None:
    assert state_of(status, verdict=verdict, exit_reason=reason) == state


class Reader(HTMLParser):
    """The tags, and the names of attributes, of a piece of markup."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {tag, *(f"{tag}.{name}" for name, _ in attrs)}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


ALLOWED = {
    *("td", "th", "tr", "thead", "tbody", "a", "svg", "use", "b", "span", "time"),
    *("td.id", "td.class", "td.role", "td.data-group", "td.data-seq", "td.data-flagged"),
    *("a.href", "a.aria-label", "a.title", "a.data-cost", "a.data-time", "a.data-tokens"),
    *("svg.class", "svg.aria-hidden", "use.href", "span.class", "time.class", "time.datetime"),
    *("time.data-since", "tr.role", "tr.id", "tr.hidden", "th.role", "th.scope", "th.class", "th.aria-label"),
    *("thead.role", "tbody.role", "span.title", "span.data-unseen"),
}
TEXTS = st.text(max_size=60) | st.sampled_from(
    ['"><script>alert(1)</script>', "' onmouseover='x", "</td></tr>", "\x1b[31m\u202eevil", "&lt;"]
)


@given(
    slug=TEXTS,
    title=TEXTS,
    arm=TEXTS,
    now=TEXTS,
    words=TEXTS,
    state=st.sampled_from(sorted(STATES)),
    since=st.none() | st.integers(0, 4_000_000_000_000),
    steps=st.none() | st.integers(0, 10**6),
)
def test_whatever_names_hold_only_the_grids_own_markup_comes_out(
    slug: str, title: str, arm: str, now: str, words: str, state: str, since: int | None, steps: int | None
) -> None:
    made = cell(
        task=slug,
        arm=arm,
        now=now,
        state=state,
        since_ms=since,
        steps=steps,
        cost=words,
        tokens=words,
        time=words,
    )
    row = Row(1, slug, title, [(7, [made, None], Sum(1, 2, 2))], Against(arm, True, (12, 13)))
    html = grid_html([row], [Column(arm, [1, 2])])
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert reader.seen <= ALLOWED
    assert cell_html(made) in html


@given(value=st.floats(), low=st.none() | st.floats(), high=st.none() | st.floats())
def test_the_line_of_a_rate_stays_on_its_scale(value: float, low: float | None, high: float | None) -> None:
    places = re.findall(r'(?:x1|x2|cx)="([^"]+)"', interval_svg(value, low, high))
    assert all(6 <= float(place) <= 234 for place in places)


def test_the_line_of_a_rate_is_as_wide_as_it_is_asked_for() -> None:
    assert 'viewBox="0 0 144 16" width="144"' in interval_svg(1.0, 0.5, 1.0, width=144)
    assert 'cx="138.0"' in interval_svg(1.0, 0.5, 1.0, width=144)


def test_a_rate_without_an_interval_has_its_dot_alone() -> None:
    assert "reach" not in interval_svg(1.0, None, None)
    assert "reach" in interval_svg(0.5, 0.2, 0.8)


def test_rows_without_a_run_that_a_filter_asks_for_are_hidden_and_all_others_stand() -> None:
    good = Row(1, "a", "A", [(7, [cell(run=1)], Sum(1, 1, 1))], NOTHING)
    bad = Row(2, "b", "B", [(7, [cell(run=2, state="unresolved", flagged=True)], Sum(0, 1, 1))], NOTHING)
    columns = [Column("A", [1])]
    assert 'id="task-1" hidden' in grid_html([good, bad], columns, show="unresolved")
    assert 'id="task-2" hidden' not in grid_html([good, bad], columns, show="unresolved")
    assert 'id="task-1" hidden' in grid_html([good, bad], columns, show="flagged")
    assert "hidden>" not in grid_html([good, bad], columns).replace('aria-hidden="true">', "")


def test_only_runs_that_came_out_differently_are_offered_for_comparison() -> None:
    assert '<a href="/compare/?runs=3,9">only A · compare</a>' in against_html(1, Against("A", True, (3, 9)))
    assert "<a" not in against_html(1, Against("", False, ()))


def test_what_a_run_waits_for_is_a_word_and_a_time_that_may_be_missing_or_broken() -> None:
    pending = {"kind": "tool", "tool": "Bash", "since": "2026-03-02T08:00:00+00:00"}
    assert pending_words("running", pending) == ("Bash", 1_772_438_400_000)
    assert pending_words("running", {"since": "no time"}) == ("model", None)
    assert pending_words("verifying", {}) == ("tests", None)


def test_large_numbers_are_short_and_times_are_rough() -> None:
    assert [short_tokens(number) for number in (None, 0, 999, 126_328, 999_999, 9_300_000)] == [
        *("?", "0", "999", "126 k", "1.0 M", "9.3 M")
    ]
    assert [rough_time(seconds) for seconds in (5, 540, 7_800)] == [
        "about 1 min",
        "about 9 min",
        "about 2 h 10 min",
    ]
