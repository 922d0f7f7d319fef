"""The browser that pages are measured in: always the same binary, flags and window."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import SetCookieParam

CHROMIUM = os.environ.get("LAB_TEST_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
]


def cookie_for(host: str, header: str) -> SetCookieParam:
    """A Cookie header (`name=value`) as a browser takes it."""
    name, _, value = header.partition("=")
    return {"name": name, "value": value, "url": f"http://{host}"}
