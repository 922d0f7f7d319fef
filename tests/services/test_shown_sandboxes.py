"""What the lab says of the sandboxes that runs used: on a run's panel, between runs, between arms."""

from __future__ import annotations

import pytest

from lab.engine.events import Event, ImageReady, ImageRequested, SandboxBounds
from lab.models import Draft, Run
from lab.services import compared_arms, comparisons, run_pages
from lab.services.comparisons import Comparison
from lab.services.run_pages import Panel
from tests import builders
from tests.services.test_comparisons import another_harness, twin

pytestmark = pytest.mark.django_db


def began(run: Run, *events: Event) -> Run:
    """The run with an attempt that has begun, whose log goes on with `events`."""
    attempt_started = builders.opening()[0]
    run.attempts.get_or_create(n=1)
    Run.objects.filter(pk=run.pk).update(status=Run.Status.PREPARING)
    builders.append(run, attempt_started, *events)
    return Run.objects.for_rows().get(pk=run.pk)


def of_another_arm(run: Run) -> Run:
    """A run of the same task with another harness, without an event."""
    return twin(run, harness_version=another_harness(run))


def panel(run: Run) -> Panel:
    found = run_pages.find_run(run.pk)
    assert found is not None
    return run_pages.panel(found)


def compared(*runs: Run) -> Comparison:
    return comparisons.compare(comparisons.find_runs([run.pk for run in runs]))


def rows(comparison: Comparison) -> dict[str, list[str]]:
    return {row.name: [cell.words for cell in row.cells] for row in comparison.sandbox}


def test_a_panel_says_provider_image_limits_and_isolation() -> None:
    shown = panel(began(builders.run(), builders.in_docker(notes=["held by a watchdog"]))).sandbox
    assert shown is not None
    assert shown.image is not None
    assert (shown.line, shown.isolated) == ("docker, isolated, no network", True)
    assert (shown.image.reference, shown.image.short) == ("python:3.13", "sha256:bbbbbbbbbbbb")
    assert (shown.image.hash_name, shown.image.size) == ("digest", "412.0 MB")
    assert shown.limits == "memory 2 GiB, processes 512, CPU no limit, disk 10.0 GB"
    assert "no file of this machine" in shown.kept_apart
    assert shown.notes == ("held by a watchdog",)


def test_an_image_that_no_registry_knows_is_named_by_its_content() -> None:
    shown = panel(began(builders.run(), builders.in_docker(image=builders.image(digest="")))).sandbox
    assert shown is not None
    assert shown.image is not None
    assert (shown.image.hash_name, shown.image.short) == ("content", "sha256:aaaaaaaaaaaa")


def test_a_log_without_image_and_limits_says_nothing_of_them() -> None:
    run = builders.run()
    builders.start(run)
    shown = panel(run).sandbox
    assert shown is not None
    assert (shown.image, shown.limits) == (None, "")


def test_a_run_that_has_no_sandbox_yet_shows_none() -> None:
    found = panel(builders.run())
    assert (found.sandbox, found.other_sandbox) == (None, None)


@pytest.mark.parametrize(
    ("verified_in", "other"),
    [
        ({"identifier": "d", "seconds": 3.0}, False),
        ({"image": builders.image("c", digest="d")}, True),
        ({"limits": SandboxBounds(memory_bytes=4 * 1024**3)}, True),
    ],
)
def test_the_verifications_sandbox_is_shown_where_it_was_another_one(
    verified_in: dict[str, object], other: bool
) -> None:
    run = began(builders.run(), builders.in_docker())
    patch, started, *rest = builders.ending(steps=1)
    builders.append(run, patch, started, builders.in_docker(purpose="verification", **verified_in), *rest)
    found = panel(run)
    assert (found.other_sandbox is not None) is other
    names = rows(compared(run, builders.run()))
    assert ("verified in another sandbox" in names) is other


def test_while_its_image_is_pulled_a_run_says_which_and_how_far() -> None:
    run = began(builders.run(), ImageRequested(reference="python:3.13", action="pull"))
    assert panel(run).pending.words == "Pulling python:3.13"
    assert panel(run).pending.since is not None
    said = "pulling python:3.13: 210.0 of 412.0 MB"
    Draft.objects.create(
        run=run, after_seq=run.last_seq, step=run_pages.BEFORE_STEPS, version=1, content=said
    )
    assert panel(run).pending.summary == "210.0 of 412.0 MB"
    Draft.objects.filter(run=run).update(content="unpacking python:3.13: 400.0 of 412.0 MB")
    assert panel(run).pending.summary == "unpacking: 400.0 of 412.0 MB"
    row = run_pages.row_of(run)
    assert (row.badge.word, row.pending.words) == ("preparing", "Pulling python:3.13")
    builders.append(run, ImageReady(image=builders.image(), seconds=4.0))
    assert panel(run).pending.words == "Preparing the sandbox"


def test_a_run_that_waits_for_the_daemon_says_so_until_its_log_goes_on() -> None:
    run = began(builders.run())
    said = "tried again in 3 s: no Docker daemon answers there"
    Draft.objects.create(
        run=run, after_seq=run.last_seq, step=run_pages.BEFORE_STEPS, version=1, content=said
    )
    assert (panel(run).pending.words, panel(run).pending.summary) == ("Preparing the sandbox", said)
    builders.append(run, builders.in_docker())
    run.refresh_from_db()
    assert panel(run).pending.summary == ""


def test_an_image_of_the_verification_says_whom_it_is_for() -> None:
    run = began(builders.run(), builders.in_docker())
    patch, started, *_ = builders.ending(steps=1)
    asked = ImageRequested(purpose="verification", reference="python:3.13", action="build")
    builders.append(run, patch, started, asked)
    assert panel(run).pending.words == "For the verification: building python:3.13"


def test_two_runs_in_the_same_image_are_alike_though_their_containers_are_not() -> None:
    left = began(builders.run(), builders.in_docker())
    right = began(of_another_arm(left), builders.in_docker(identifier="another", seconds=9.0))
    comparison = compared(left, right)
    assert (comparison.sandbox_state.state, comparison.sandbox) == ("same", [])
    assert comparison.sandbox_alike == (
        "provider docker; isolation a container with no file of this machine, no new privileges, few "
        "capabilities or none; network no network; image python:3.13; content of the image "
        "sha256:aaaaaaaaaaaa; memory 2 GiB; processes 512; CPU no limit; disk 10.0 GB"
    )


def test_the_same_name_that_stood_for_two_images_differs() -> None:
    left = began(builders.run(), builders.in_docker())
    right = began(of_another_arm(left), builders.in_docker(image=builders.image("c")))
    comparison = compared(left, right)
    assert comparison.sandbox_state.state == "different"
    assert comparison.sandbox_state.detail == "content of the image"
    assert rows(comparison) == {"content of the image": [f"sha256:{'a' * 64}", f"sha256:{'c' * 64}"]}


def test_what_an_older_log_does_not_say_of_its_sandbox_is_unknown() -> None:
    left = began(builders.run(), builders.in_docker())
    right = of_another_arm(left)
    builders.start(right)
    old = right.attempts.get()
    old.sandbox = {name: old.sandbox[name] for name in ("sandbox", "isolation", "network")}
    old.save()
    comparison = compared(left, right)
    assert comparison.sandbox_state.detail == "provider, isolation, image, …"
    assert rows(comparison)["provider"] == ["docker", "bubblewrap"]
    assert rows(comparison)["image"] == ["python:3.13", "unknown"]
    assert rows(comparison)["memory"] == ["2 GiB", "unknown"]


def test_arms_whose_runs_had_the_same_sandbox_say_it_once_each() -> None:
    left = began(builders.run(), builders.in_docker())
    right = began(of_another_arm(left), builders.in_docker(identifier="another"))
    found = compared_arms.sandboxes_of_arms([left.arm, right.arm])
    words = "docker, isolated, no network, image python:3.13 sha256:bbbbbbbbbbbb"
    assert [tuple(one) for one in found.arms] == [("A", words), ("B", words)]
    assert found.differing == ""


def test_arms_whose_images_or_limits_differ_on_a_task_name_them() -> None:
    left = began(builders.run(), builders.in_docker())
    other = builders.in_docker(
        image=builders.image("c", digest=""),
        limits=SandboxBounds(memory_bytes=4 * 1024**3, processes=512, disk_bytes=10_000_000_000),
    )
    right = began(of_another_arm(left), other)
    found = compared_arms.sandboxes_of_arms([left.arm, right.arm])
    assert (
        "content of the image on dst-schedule: sha256:aaaaaaaaaaaa and sha256:cccccccccccc" in found.differing
    )
    assert "memory on dst-schedule: 2 GiB and 4 GiB" in found.differing
    assert "processes" not in found.differing


def test_arms_whose_runs_have_not_begun_say_nothing_of_sandboxes() -> None:
    left = builders.run()
    assert compared_arms.sandboxes_of_arms([left.arm, of_another_arm(left).arm]) == ([], "")
