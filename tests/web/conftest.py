"""People who ask for pages, each with a session of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from lab.models import Role, Task
from lab.services import endpoints, harnesses, tasks
from tests import builders


def signed_in_as(role: Role) -> Client:
    client = Client(enforce_csrf_checks=False)
    client.force_login(builders.person(role))
    return client


@pytest.fixture
def viewer(db: None) -> Client:
    return signed_in_as(Role.VIEWER)


@pytest.fixture
def operator(db: None) -> Client:
    return signed_in_as(Role.OPERATOR)


@pytest.fixture
def admin(db: None) -> Client:
    return signed_in_as(Role.ADMIN)


@pytest.fixture
def filled(db: None) -> None:
    """The lab with what it brings: the practice set, the preset, the scripted models."""
    harnesses.sync_presets()
    endpoints.sync_scripted()
    tasks.sync_practice()


@pytest.fixture
def launch_form(filled: None) -> Callable[..., dict[str, object]]:
    """What the launch form sends when one changes nothing, with what one changes."""

    def make(**changed: object) -> dict[str, object]:
        from lab.models import HarnessVersion, Model

        return {
            "tasks": [Task.objects.get(slug="parse-duration").pk],
            "harness_version": HarnessVersion.objects.get(harness__name="leaf-compatible").pk,
            "models": [Model.objects.get(name="scripted/solver").pk],
            "seeds": "",
            **changed,
        }

    return make
