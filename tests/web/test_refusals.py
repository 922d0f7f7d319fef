from __future__ import annotations

import logging

import pytest
from django.test import Client

from lab.models import Role
from tests.services.builders import person

pytestmark = pytest.mark.django_db


def test_a_refused_page_is_one_line_in_the_terminal() -> None:
    terminal = next(handler for handler in logging.getLogger().handlers if handler.get_name() == "terminal")
    lines: list[str] = []
    terminal_stream = terminal.setStream(_Lines(lines))  # type: ignore[attr-defined]
    client = Client()
    client.force_login(person(Role.VIEWER))
    try:
        assert client.get("/endpoints/new/").status_code == 403
    finally:
        terminal.setStream(terminal_stream)  # type: ignore[attr-defined]
    said = "".join(lines).splitlines()
    assert len(said) == 1
    assert "Forbidden" in said[0]


class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self.write = lines.append

    def flush(self) -> None:
        """Nothing is kept back."""
