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
