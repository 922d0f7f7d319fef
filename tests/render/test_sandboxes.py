"""Sandboxes and their images in words, and as events of a run's page."""

from __future__ import annotations

import datetime as dt
import html
import re

import pytest

from lab.engine.events import Event, ImageReady, ImageRequested
from lab.render.events import LogEvent, fragments
from lab.render.sandboxes import limit_words, shown_image, shown_sandbox
from tests import builders

AT = dt.datetime(2026, 11, 30, 9, 0, tzinfo=dt.UTC)


def moment(event: Event) -> str:
    """The words of one event, as a page shows them."""
    (fragment,) = fragments(7, [LogEvent(1, 1, None, event.kind, AT, event.model_dump(mode="json"))])
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", fragment.html)).split())


def test_a_container_says_its_image_with_every_hash_and_its_limits() -> None:
    said = moment(builders.in_docker(notes=["held by a watchdog"]))
    assert "Sandbox docker of python:3.13, isolated , no network" in said
    assert f"digest sha256:{'b' * 64} , 412.0 MB" in said
    assert f"content sha256:{'a' * 64}" in said
    assert "Limits: memory 2 GiB, processes 512, CPU no limit, disk 10.0 GB" in said
    assert "held by a watchdog" in said


def test_a_sandbox_without_an_image_says_none() -> None:
    said = moment(builders.opening()[1])
    assert "Sandbox bubblewrap, isolated" in said
    assert "digest" not in said
    assert "Limits" not in said


@pytest.mark.parametrize(("action", "words"), [("pull", "Pulling"), ("build", "Building")])
def test_what_is_done_for_an_image_is_said_as_something_that_begins(action: str, words: str) -> None:
    asked = ImageRequested(purpose="verification", reference="a/b:1", action=action)  # type: ignore[arg-type]
    assert f"{words} the image for the verification a/b:1" in moment(asked)


def test_an_image_that_is_there_says_how_long_that_took_its_size_and_its_hash() -> None:
    said = moment(ImageReady(image=builders.image(digest=""), seconds=61.0))
    assert "Image python:3.13 is there after 1:01, 412.0 MB" in said
    assert f"content sha256:{'a' * 64}" in said


def test_names_of_images_are_text_and_never_markup() -> None:
    event = LogEvent(1, 1, None, "image_ready", AT, {"image": {"reference": "<b>x</b>", "digest": "<i>"}})
    assert "&lt;b&gt;" in fragments(7, [event])[0].html
    assert "<i>" not in fragments(7, [event])[0].html


@pytest.mark.parametrize("payload", [{"image": None}, {"image": "python"}, {"limits": []}, {"notes": None}])
def test_what_an_odd_log_holds_is_left_out(payload: dict[str, object]) -> None:
    shown = shown_sandbox({"sandbox": "docker", "isolation": "docker", "network": True, **payload})
    assert shown is not None
    assert (shown.line, shown.image, shown.limits) == ("docker, isolated, with network", None, "")


def test_an_image_of_unknown_size_says_nothing_of_it() -> None:
    shown = shown_image({"reference": "x", "identifier": "sha256:12", "digest": ""})
    assert shown is not None
    assert (shown.size, shown.short) == ("", "sha256:12")


@pytest.mark.parametrize(
    ("set_to", "words"), [(256 * 1024**2, "256 MiB"), (1024**3, "1 GiB"), (10**10, "10.0 GB"), (0, "0 bytes")]
)
def test_a_limit_is_said_in_the_unit_it_was_set_in(set_to: int, words: str) -> None:
    assert limit_words({"disk_bytes": set_to})["disk"] == words
