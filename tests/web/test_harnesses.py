"""What the pages of harnesses show: the list, one version, its request, its runs, and what differs."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from django.test import Client

from lab.engine.harnesses.yaml_form import from_yaml
from lab.engine.llm.base import canonical_sha256
from lab.models import HarnessVersion, Model, Task
from lab.services import harnesses, isolation
from tests import builders


def version_of(name: str) -> HarnessVersion:
    return HarnessVersion.objects.select_related("harness").get(harness__name=name)


def changed(version: HarnessVersion, **fields: object) -> HarnessVersion:
    """Another harness that differs from this one in some fields."""
    return harnesses.create_version(
        by=builders.person(),
        config=harnesses.load_preset(version.harness.name).model_copy(update={"name": "mine", **fields}),
        based_on=version,
    )


def test_a_harness_shows_what_the_model_is_shown(viewer: Client, filled: None) -> None:
    version = version_of("leaf-compatible")
    assert f"/harnesses/{version.pk}/" in viewer.get("/harnesses/").content.decode()
    html = viewer.get(f"/harnesses/{version.pk}/").content.decode()
    assert version.config["system_prompt"][:40] in html
    for tool in ("Read", "Write", "Edit", "Glob", "Bash"):
        assert f">{tool}<" in html
    assert version.digest is not None
    assert version.digest[:16] in html
    assert "no limit" in html
    assert "<dt>Context</dt><dd>131,072 tokens</dd>" in html
    assert "20,000 characters" in html
    assert "a reply without a call" in html
    assert "Unknown tool: {{ tool }}" in html


def test_without_a_harness_the_page_says_what_brings_one(viewer: Client) -> None:
    assert "manage.py up" in viewer.get("/harnesses/").content.decode()


def test_the_list_is_narrowed_to_a_family_and_a_filter_that_leaves_nothing_is_named(
    viewer: Client, filled: None
) -> None:
    leaf = viewer.get("/harnesses/?family=leaf")
    assert "leaf-compatible" in leaf.content.decode()
    others = {version.harness.family for version in HarnessVersion.objects.select_related("harness")} - {
        "leaf"
    }
    for family in others:
        assert f">{family}</a>" not in leaf.content.decode()
    nothing = viewer.get("/harnesses/?family=nobody's")
    assert nothing.status_code == 404
    assert "No harness of the family “nobody&#x27;s”." in nothing.content.decode()


def test_a_run_is_launched_with_the_version_that_is_shown_used_or_not(
    viewer: Client, operator: Client, db: None
) -> None:
    (unused, *_) = harnesses.sync_presets()
    run = builders.run()
    for pk in (unused.pk, run.arm.harness_version_id):
        html = operator.get(f"/harnesses/{pk}/").content.decode()
        assert set(re.findall(r'href="([^"]*#launch)"', html)) == {f"/?harness={pk}#launch"}
        assert "#launch" not in viewer.get(f"/harnesses/{pk}/").content.decode()


def test_a_viewer_sees_no_button_that_changes_anything_and_an_operator_does(
    viewer: Client, operator: Client, filled: None
) -> None:
    preset = version_of("leaf-compatible")
    for path in ("/harnesses/", f"/harnesses/{preset.pk}/"):
        assert "/clone/" not in viewer.get(path).content.decode()
        assert "/import/" not in viewer.get(path).content.decode()
    assert f"/harnesses/{preset.pk}/clone/" in operator.get(f"/harnesses/{preset.pk}/").content.decode()
    assert "preset, read-only" in operator.get(f"/harnesses/{preset.pk}/").content.decode()
    assert f"/harnesses/{preset.pk}/edit/" not in operator.get(f"/harnesses/{preset.pk}/").content.decode()


class TestTheRequest:
    def test_is_what_the_chosen_model_would_get_byte_by_byte(self, viewer: Client, filled: None) -> None:
        version, task = version_of("leaf-compatible"), Task.objects.get(slug="money-split")
        model = Model.objects.get(name="scripted/solver")
        Model.objects.filter(pk=model.pk).update(sampling={"temperature": 0.25, "top_k": 20})
        asked = {"task": task.pk, "model": model.pk, "raw": "1"}
        answer = viewer.get(f"/harnesses/{version.pk}/request/", asked)
        assert answer["Content-Type"].startswith("application/json")
        body = json.loads(answer.content)
        assert body["model"] == model.model_id
        assert body["temperature"] == 0.25
        assert body["messages"][1] == {"role": "user", "content": task.statement}
        assert [tool["function"]["name"] for tool in body["tools"]] == [
            "Read",
            "Write",
            "Edit",
            "Glob",
            "Bash",
        ]
        assert body["stream"] is True
        assert body["max_completion_tokens"] == 8192
        html = viewer.get(
            f"/harnesses/{version.pk}/request/", {"task": task.pk, "model": model.pk}
        ).content.decode()
        assert f"{len(answer.content):,} bytes" in html
        tools = re.search(r'data-json="tools">(.*?)</pre>', html, re.S)
        assert tools is not None
        assert json.loads(unescape(tools[1])) == body["tools"]

    def test_is_shown_with_estimates_cap_and_workspace(self, viewer: Client, filled: None) -> None:
        version = version_of("leaf-compatible")
        html = viewer.get(
            f"/harnesses/{version.pk}/request/", headers={"HX-Request": "true"}
        ).content.decode()
        assert html.lstrip().startswith('<div id="request-shown">')
        assert re.search(r"about [\d,]+ tokens</b>: [\d,]+ prompt, [\d,]+ tools", html)
        assert "8,192 tokens" in html
        assert "Without a model" in html
        kind = isolation.isolation().kind
        assert f'<span class="mono">{"/workspace" if kind == "bubblewrap" else "."}</span>' in html
        assert "&quot;additionalProperties&quot;" in html or "&quot;parameters&quot;" in html

    def test_that_cannot_be_made_says_why(self, viewer: Client, filled: None) -> None:
        version = version_of("leaf-compatible")
        HarnessVersion.objects.filter(pk=version.pk).update(
            config={**version.config, "system_prompt": "Hello {{ nobody }}"}
        )
        html = viewer.get(f"/harnesses/{version.pk}/request/").content.decode()
        assert "system_prompt" in html
        assert "nobody" in html

    def test_without_a_task_is_no_error(self, viewer: Client, db: None) -> None:
        (version, *_) = harnesses.sync_presets()
        assert "no task to ask about" in viewer.get(f"/harnesses/{version.pk}/request/").content.decode()

    def test_is_asked_for_by_numbers_and_takes_no_offence_at_others(
        self, viewer: Client, filled: None
    ) -> None:
        version = version_of("leaf-compatible")
        for odd in ("x", "-1", "9" * 40, "²"):
            answer = viewer.get(f"/harnesses/{version.pk}/request/", {"task": odd, "model": odd})
            assert answer.status_code == 200


def test_the_yaml_of_a_version_is_a_file_that_gives_the_same_harness(viewer: Client, filled: None) -> None:
    version = version_of("leaf-compatible")
    answer = viewer.get(f"/harnesses/{version.pk}/yaml/")
    assert answer["Content-Disposition"] == 'attachment; filename="leaf-compatible-v1.yaml"'
    assert from_yaml(answer.content.decode()).digest == version.digest


def test_the_runs_of_a_version_are_counted_and_listed(viewer: Client, db: None) -> None:
    run = builders.run()
    more = [builders.another_run(run, seed=seed) for seed in range(2, 12)]
    pk = run.arm.harness_version_id
    html = viewer.get(f"/harnesses/{pk}/").content.decode()
    assert f'<a href="/harnesses/{pk}/runs/">11 runs</a>' in html
    assert f"/runs/{more[-1].pk}/" in html
    assert f'href="/runs/{run.pk}/"' not in html
    listed = viewer.get(f"/harnesses/{pk}/runs/").content.decode()
    assert all(f'href="/runs/{one.pk}/"' in listed for one in (run, *more))
    assert ">11" in viewer.get("/harnesses/").content.decode()


class TestTheDifference:
    def test_of_two_versions_is_shown_field_by_field(self, viewer: Client, filled: None) -> None:
        preset = version_of("leaf-compatible")
        tools = harnesses.load_preset("leaf-compatible").tools
        renamed = tuple(
            tool.model_copy(update={"name": "Shell"}) if tool.name == "Bash" else tool
            for tool in tools
            if tool.name != "Glob"
        )
        other = changed(preset, tools=renamed, system_prompt="Mend it.")
        html = viewer.get(f"/harnesses/diff/?left={preset.pk}&right={other.pk}").content.decode()
        assert "3 fields differ" in html
        assert re.search(r"tools\.Bash</span> <span class=\"label\">renamed", html)
        assert re.search(r"tools\.Glob</span> <span class=\"label\">removed", html)
        assert "Mend it." in unescape(re.sub(r"<[^>]*>", "", html))
        assert "limits" in html.partition("sections the same")[2]

    def test_of_the_same_harness_says_so(self, viewer: Client, filled: None) -> None:
        pk = version_of("leaf-compatible").pk
        assert "The same harness" in viewer.get(f"/harnesses/diff/?left={pk}&right={pk}").content.decode()

    def test_needs_two_that_exist(self, viewer: Client, filled: None) -> None:
        pk = version_of("leaf-compatible").pk
        assert viewer.get("/harnesses/diff/").status_code == 200
        assert viewer.get(f"/harnesses/diff/?left={pk}").status_code == 200
        assert viewer.get(f"/harnesses/diff/?left={pk}&right=999999").status_code == 404


def test_a_content_that_this_lab_cannot_read_is_shown_as_it_is(viewer: Client, filled: None) -> None:
    version = version_of("leaf-compatible")
    odd = {"family": "of another lab", "tools": [{"name": "Look"}], "prompts": "<b>Look around.</b>"}
    HarnessVersion.objects.filter(pk=version.pk).update(config=odd, digest=None)
    html = viewer.get(f"/harnesses/{version.pk}/").content.decode()
    assert "cannot read" in html
    assert "&lt;b&gt;Look around." in html
    assert viewer.get("/harnesses/").status_code == 200
    assert "cannot read" in viewer.get(f"/harnesses/{version.pk}/request/").content.decode()
    assert viewer.get(f"/harnesses/{version.pk}/yaml/").status_code == 302
    other = version_of("leaf-bash-only")
    assert viewer.get(f"/harnesses/diff/?left={version.pk}&right={other.pk}").status_code == 200


@pytest.mark.parametrize("path", ["clone", "edit"])
def test_a_content_that_this_lab_cannot_read_is_not_edited(operator: Client, filled: None, path: str) -> None:
    version = version_of("leaf-compatible")
    HarnessVersion.objects.filter(pk=version.pk).update(config={"family": "x"}, digest=canonical_sha256({}))
    answer = operator.get(f"/harnesses/{version.pk}/{path}/", follow=True)
    assert "cannot read" in answer.content.decode()
