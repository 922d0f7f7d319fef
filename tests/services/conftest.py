"""People for the services' tests, which use a real SQLite file."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from lab.models import Role
from tests.services.builders import person


@pytest.fixture
def alice(db: None) -> User:
    """An admin."""
    return person(Role.ADMIN, "alice")


@pytest.fixture
def bob(db: None) -> User:
    """A viewer."""
    return person(Role.VIEWER, "bob")
