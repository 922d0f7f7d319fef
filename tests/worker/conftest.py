"""Workers are tested on threads and processes of their own, which see only what is committed."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from lab.services import queue
from lab.services.queue import Claim
from tests.services.builders import launched, person


@pytest.fixture
def alice(transactional_db: None) -> User:
    return person()


@pytest.fixture
def claim(alice: User) -> Claim:
    launched(alice)
    claim = queue.claim_next(worker="w")
    assert claim is not None
    return claim
