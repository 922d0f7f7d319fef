from __future__ import annotations

import re

import pytest
from django.test import Client

from lab.models import Task


def test_the_practice_set_is_listed_with_its_tests_and_traits(viewer: Client, filled: None) -> None:
    html = viewer.get("/tasks/").content.decode()
    for task in Task.objects.all():
        assert f"/tasks/{task.pk}/" in html
    assert "tempting wrong cause" in html
    assert "not checked here" in html


def test_without_a_set_the_page_says_how_to_get_one(viewer: Client) -> None:
    assert "manage.py up" in viewer.get("/tasks/").content.decode()


@pytest.mark.parametrize(("who", "sees"), [("viewer", False), ("operator", True), ("admin", True)])
def test_gold_patch_and_hidden_tests_are_for_operators_and_admins(
    who: str, sees: bool, filled: None, request: pytest.FixtureRequest
) -> None:
    client: Client = request.getfixturevalue(who)
    task = Task.objects.get(slug="topo-cycle")
    html = client.get(f"/tasks/{task.pk}/").content.decode()
    assert task.title in html
    assert ("Gold patch" in html) is sees
    assert (task.hidden.verification["fail_to_pass"][0] in html) is sees


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"name": "practice", "network": False}, "what the lab gives, no network"),
        ({"image": "debian:12", "network": True}, "docker, image debian:12 , with network"),
        ({"build": "place", "memory_mb": 512, "cpus": 2.0}, "docker, built from its folder place"),
        ({"build": "place", "memory_mb": 512, "cpus": 2.0}, "no network, memory 512 MiB, CPU 2.0"),
    ],
)
def test_a_task_says_what_its_sandboxes_are_made_from(
    viewer: Client, filled: None, environment: dict[str, object], said: str
) -> None:
    task = Task.objects.get(slug="topo-cycle")
    task.environment = environment
    task.save()
    html = viewer.get(f"/tasks/{task.pk}/").content.decode()
    assert said in " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_a_task_says_what_is_done_before_its_agent_begins_and_what_a_check_found(
    operator: Client, viewer: Client, filled: None
) -> None:
    task = Task.objects.get(slug="topo-cycle")
    task.environment = {
        "image": "debian:12",
        "user": "agent",
        "working_directory": "/testbed",
        "repository_in_image": True,
        "setup": ["pip install -e .", "make <all>"],
        "variables": {"PORT": "not shown", "LANG": "C"},
    }
    task.difficulty = ""
    task.save()
    task.checks.create(sandbox="docker", valid=False, detail="first <b>problem\nsecond problem")
    html = operator.get(f"/tasks/{task.pk}/").content.decode()
    said = " ".join(re.sub(r"<[^>]*>", " ", html).split())
    assert "Commands run as agent Repository the image's own, in /testbed Variables LANG, PORT" in said
    assert "<span>pip install -e .</span><span>make &lt;all&gt;</span>" in html
    assert "<span>first &lt;b&gt;problem</span><span>second problem</span>" in html
    assert "not shown" not in html
    # It may quote what the hidden tests print.
    assert "second problem" not in viewer.get(f"/tasks/{task.pk}/").content.decode()
    assert '<span class="unknown">unknown</span>' in viewer.get("/tasks/").content.decode()
