import pytest

from taskgraph import CycleError, GraphError, MissingStepError, TaskGraph


def graph(text):
    return TaskGraph.from_text(text)


def test_dependencies_come_first():
    assert graph("app: core util\ncore: util\nutil:").plan("app").order == ["util", "core", "app"]


def test_steps_keep_the_order_in_which_they_are_named():
    assert graph("a: d c b\nb:\nc:\nd:").plan("a").order == ["d", "c", "b", "a"]


def test_a_diamond_is_no_circle():
    assert graph("top: left right\nleft: base\nright: base\nbase:").plan("top").order == [
        "base",
        "left",
        "right",
        "top",
    ]


def test_without_targets_everything_is_planned():
    assert graph("a: b\nb:\nc:").plan().order == ["b", "a", "c"]


def test_a_needed_step_that_is_missing():
    with pytest.raises(MissingStepError) as caught:
        graph("app: core\ncore: libc").plan("app")
    assert caught.value.chain == ["app", "core", "libc"]
    assert caught.value.missing == "libc"


def test_a_wanted_step_that_is_missing_is_skipped():
    plan = graph("app: core ?charts\ncore:").plan("app")
    assert plan.order == ["core", "app"]
    assert plan.skipped == {"charts": "charts"}


def test_what_was_planned_for_a_skipped_step_is_taken_back():
    plan = graph("app: ?charts\ncharts: fonts cairo\nfonts:").plan("app")
    assert plan.order == ["app"]
    assert plan.skipped == {"charts": "cairo"}


@pytest.mark.parametrize(
    ("text", "cycle"),
    [
        ("a: a", ["a", "a"]),
        ("a: b\nb: c\nc: b", ["b", "c", "b"]),
        ("a: ?b\nb: a", ["a", "b", "a"]),
        ("a: ?b\nb: ?c\nc: ?b", ["b", "c", "b"]),
        ("a: ?x ?b\nb: c\nc: b", ["b", "c", "b"]),
    ],
    ids=["self", "needs", "mixed", "wants", "after-a-skip"],
)
def test_circles_are_errors_of_either_kind(text, cycle):
    with pytest.raises(CycleError) as caught:
        graph(text).plan("a")
    assert caught.value.cycle == cycle


def test_a_step_is_described_once():
    with pytest.raises(GraphError, match="twice"):
        graph("a: b\na: c")


def test_batches():
    assert graph("top: left right\nleft: base\nright: base ?gone\nbase:").plan("top").batches() == [
        ["base"],
        ["left", "right"],
        ["top"],
    ]


def test_two_steps_want_the_same_step_that_cannot_be_had():
    plan = graph("app: core ?charts ?themes\ncore:\ncharts: cairo\nthemes: ?charts").plan("app")
    assert plan.order == ["core", "themes", "app"]
    assert plan.skipped == {"charts": "cairo"}


def test_the_missing_step_is_further_down():
    plan = graph("app: ?charts ?themes\ncharts: drawing\ndrawing: cairo\nthemes: ?drawing ?charts").plan("app")
    assert plan.order == ["themes", "app"]
    assert plan.skipped == {"charts": "cairo", "drawing": "cairo"}


def test_several_targets_after_a_skipped_step():
    plan = graph("app: ?charts\ncharts: cairo\nsite: ?app ?charts").plan("app", "site")
    assert plan.order == ["app", "site"]


def test_the_chain_to_a_missing_step_holds_no_skipped_ones():
    with pytest.raises(MissingStepError) as caught:
        graph("app: ?charts\ncharts: cairo\nsite: pages\npages: theme").plan("app", "site")
    assert caught.value.chain == ["site", "pages", "theme"]


def test_a_step_that_is_wanted_first_and_needed_later():
    with pytest.raises(MissingStepError) as caught:
        graph("app: ?charts ?report\ncharts: cairo\nreport: charts\nsite: app report").plan("site")
    assert caught.value.chain == ["site", "report", "charts", "cairo"]


@pytest.mark.parametrize(
    ("text", "cycle"),
    [
        ("a: ?x ?b\nx: y\nb: ?x c\nc: b", ["b", "c", "b"]),
        ("a: ?x ?b\nx: gone\nb: ?a", ["a", "b", "a"]),
        ("a: ?x b\nx: y\ny: gone\nb: ?c\nc: ?b", ["b", "c", "b"]),
        ("a: ?b\nb: ?x ?c\nx: gone\nc: ?b", ["b", "c", "b"]),
    ],
    ids=["needs-after-a-skip", "back-to-the-target", "behind-a-need", "inside-a-wanted-step"],
)
def test_real_circles_beside_skipped_steps_are_still_errors(text, cycle):
    with pytest.raises(CycleError) as caught:
        graph(text).plan("a")
    assert caught.value.cycle == cycle
