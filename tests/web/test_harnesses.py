from __future__ import annotations

from django.test import Client

from lab.models import HarnessVersion


def test_a_harness_shows_what_the_model_is_shown(viewer: Client, filled: None) -> None:
    version = HarnessVersion.objects.get(harness__name="leaf-compatible")
    assert f"/harnesses/{version.pk}/" in viewer.get("/harnesses/").content.decode()
    html = viewer.get(f"/harnesses/{version.pk}/").content.decode()
    assert version.config["system_prompt"][:40] in html
    for tool in ("Read", "Write", "Edit", "Glob", "Bash"):
        assert f">{tool}<" in html
    assert version.digest[:16] in html
    assert "no limit" in html
    assert "<dt>Context</dt><dd>131,072 tokens</dd>" in html
    assert "20,000 characters" in html


def test_without_a_harness_the_page_says_what_brings_one(viewer: Client) -> None:
    assert "manage.py up" in viewer.get("/harnesses/").content.decode()
