"""The kill matrix: a twenty-step run, harmed at each point of its life by the end of each kind of process.

Every entry is one run and one fault. All must end as an unharmed run does, with nothing lost, repeated or
left. `--long` takes every point with every kind of process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.e2e.faults import POINTS, Fault, Victim
from tests.e2e.harmed_lab import HarmedLab
from tests.e2e.oracle import problems
from tests.e2e.stories import Story

pytestmark = pytest.mark.e2e

# One run takes some three seconds of a core with all that a fault costs; machines may be slow and busy.
_SECONDS_A_RUN = 30.0

CHILD = (
    Fault("claiming"),
    Fault("claimed"),
    Fault("storing attempt_started"),
    Fault("stored attempt_started"),
    Fault("making a sandbox"),
    Fault("sandbox half made"),
    Fault("sandbox made"),
    Fault("stored sandbox_started"),
    Fault("storing model_call_started", step=1),
    Fault("stored model_call_started", step=6),
    Fault("asking", step=7),
    Fault("storing model_call_finished", step=6),
    Fault("stored model_call_finished", step=6),
    Fault("storing tool_call_started", step=16),
    Fault("stored tool_call_started", step=7),
    Fault("running a command"),
    Fault("archived", nth=6),
    Fault("storing tool_call_finished", step=14),
    Fault("stored tool_call_finished", step=6),
    Fault("stored model_call_finished", step=20),
    Fault("storing patch_captured"),
    Fault("stored patch_captured"),
    Fault("removing a sandbox"),
    Fault("sandbox half removed"),
    Fault("stored verification_started"),
    Fault("sandbox made", nth=2),
    Fault("storing verification_finished"),
    Fault("stored verification_finished"),
    Fault("stored attempt_ended"),
    Fault("settling"),
    Fault("storing run_ended"),
    Fault("stored run_ended"),
    Fault("settled"),
    Fault("renewing"),
)
WEB = tuple(
    Fault(point, victim="web", step=step)
    for point, step in (
        ("claimed", None),
        ("asking", 7),
        ("stored tool_call_finished", 6),
        ("stored verification_started", None),
        ("stored run_ended", None),
    )
)
TICK = tuple(
    Fault(point, victim="tick", step=step)
    for point, step in (
        ("claimed", None),
        ("sandbox made", None),
        ("asking", 7),
        ("running a command", None),
        ("stored verification_started", None),
        ("settling", None),
        ("stored run_ended", None),
    )
)
WORKER = tuple(
    Fault(point, victim="worker", step=step)
    for point, step in (
        ("claimed", None),
        ("sandbox half made", None),
        ("stored sandbox_started", None),
        ("asking", 7),
        ("stored model_call_finished", 6),
        ("running a command", None),
        ("storing tool_call_finished", 14),
        ("stored patch_captured", None),
        ("stored verification_started", None),
        ("stored attempt_ended", None),
        ("settled", None),
    )
)


@pytest.fixture(scope="module")
def lab() -> Iterator[HarmedLab]:
    with HarmedLab(LAB_RUN_SLOTS="6") as started:
        yield started


@pytest.fixture(scope="module")
def unharmed(lab: HarmedLab) -> Story:
    """What becomes of the run when nothing happens to it."""
    (story,) = lab.run([[]], seconds=180)
    assert (story.exit_reason, story.verdict, story.last_attempt) == ("agent", "resolved", 1)
    assert len(story.of("model_call_finished")) == 20
    assert problems(story) == []
    return story


def judge(lab: HarmedLab, told: Sequence[Sequence[Fault]], unharmed: Story, *, once_more: bool = True) -> str:
    """Launch a run for each list of faults; a line for each thing that is wrong afterwards.

    A worker killed for one run may take another from the place where that one's fault waits; what did not
    happen for this reason is tried once more, with fewer beside it.
    """
    stories = lab.run(told, seconds=60 + _SECONDS_A_RUN * len(told))
    found = []
    missed = [one for story, one in zip(stories, told, strict=True) if lab.not_happened([story.run], [one])]
    if missed and once_more:
        found.append(judge(lab, missed, unharmed, once_more=False))
    else:
        found += [f"did not happen: {'; '.join(map(str, faults))}" for faults in missed]
    for story, faults in zip(stories, told, strict=True):
        wrong = problems(story, unharmed)
        if story.last_attempt != 1:
            wrong.append(f"run {story.run}: {story.last_attempt} attempts")
        found += [f"{'; '.join(map(str, faults))}: {text}" for text in wrong]
    return "\n".join([one for one in found if one] + lab.leftovers())


@pytest.mark.timeout(2000)
def test_a_killed_child_web_process_or_tick_costs_time_and_nothing_else(
    lab: HarmedLab, unharmed: Story
) -> None:
    told = [[fault] for fault in (*CHILD, *WEB, *TICK)]
    # Whoever takes a run back may die of it too.
    told.append([Fault("asking", step=3), Fault("taking back")])
    wrong = judge(lab, told, unharmed)
    assert not wrong, wrong


@pytest.mark.timeout(2000)
def test_a_killed_worker_costs_time_and_nothing_else(lab: HarmedLab, unharmed: Story) -> None:
    wrong = judge(lab, [[fault] for fault in WORKER], unharmed)
    assert not wrong, wrong


# Points that are reached in the life of every run, by whom it is worked on.
_OF_EVERY_RUN = [point for point in POINTS if point not in ("ringing", "taking back")]


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("victim", ["here", "worker", "web", "tick"])
def test_every_point_with_every_kind_of_process(lab: HarmedLab, unharmed: Story, victim: Victim) -> None:
    wrong = judge(lab, [[Fault(point, victim=victim)] for point in _OF_EVERY_RUN], unharmed)
    assert not wrong, wrong
