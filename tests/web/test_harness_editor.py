"""Writing harnesses: the editor keeps what was typed, says what is wrong where it is, and stores versions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape

import pytest
from django.http import QueryDict
from django.test import Client

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.models import Harness, HarnessVersion
from lab.services import harnesses
from lab.web.harness_form import HarnessForm
from tests import builders

LEAF = load_preset("leaf-compatible")
FETCH = {"X-Requested-With": "fetch"}
Fields = dict[str, object]


def sent(config: HarnessConfig = LEAF, **changes: object) -> Fields:
    """What the editor's form sends for this harness; `changes` by field, with __ for a dot. The tools' keys
    are t1, t2, …; None takes a field away, as an unticked box does."""
    form = HarnessForm.of(config)
    fields: Fields = {name: value for name, value in form.values.items() if value}
    fields["tool"] = [tool.key for tool in form.tools]
    for tool in form.tools:
        fields[f"tools.{tool.key}.on"] = "on"
        fields |= {tool.id_of(part): value for part, value in tool.values.items()}
    fields["name"] = "mine"
    fields |= {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in fields.items() if value is not None}


@pytest.fixture
def preset(filled: None) -> HarnessVersion:
    return HarnessVersion.objects.select_related("harness").get(harness__name="leaf-compatible")


@pytest.fixture
def own(preset: HarnessVersion) -> HarnessVersion:
    """A harness of the lab's people."""
    config = LEAF.model_copy(update={"name": "mine", "system_prompt": "Mend it."})
    return harnesses.create_version(by=builders.person(), config=config, based_on=preset)


@pytest.mark.parametrize("name", preset_names())
def test_a_form_that_nobody_touched_is_the_harness_it_began_as(name: str) -> None:
    config = load_preset(name)
    data = QueryDict(mutable=True)
    for field, value in sent(config).items():
        for one in value if isinstance(value, list) else [value]:
            # As browsers send it.
            data.appendlist(field, str(one).replace("\n", "\r\n"))
    raw, unread = HarnessForm.posted(data, config).raw()
    assert unread == []
    assert HarnessConfig.model_validate({**raw, "name": config.name}).digest == config.digest


def test_line_ends_that_a_harness_has_are_not_changed_by_the_browser() -> None:
    config = LEAF.model_copy(update={"system_prompt": "One.\r\nTwo.\rThree.\n"})
    data = QueryDict(mutable=True)
    data["system_prompt"] = "One.\r\nTwo.\r\nThree.\r\n"
    assert HarnessForm.posted(data, config).values["system_prompt"] == config.system_prompt


class TestSaving:
    def test_a_clone_with_a_renamed_tool_and_one_left_out_is_a_version_that_can_be_launched(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        form = sent(tools__t5__name="Shell", tools__t4__on=None)
        answer = operator.post(f"/harnesses/{preset.pk}/clone/", form, follow=True)
        version = HarnessVersion.objects.get(harness__name="mine")
        assert answer.redirect_chain == [(f"/harnesses/{version.pk}/", 302)]
        assert [tool["name"] for tool in version.config["tools"]] == ["Read", "Write", "Edit", "Shell"]
        assert version.config["tools"][3]["executor"] == "bash"
        assert version.source["based_on"] == "leaf-compatible v1"
        assert "mine v1" in operator.get("/").content.decode()

    def test_an_edit_makes_the_next_version_and_keeps_the_name(
        self, operator: Client, own: HarnessVersion
    ) -> None:
        form = sent(system_prompt="Mend it well.", name="other")
        answer = operator.post(f"/harnesses/{own.pk}/edit/", form, headers=FETCH)
        newest = HarnessVersion.objects.newest().get(harness__name="mine")
        assert (answer.status_code, answer["Location"]) == (201, f"/harnesses/{newest.pk}/")
        assert newest.version == 2
        assert newest.config["system_prompt"] == "Mend it well."
        assert not Harness.objects.filter(name="other").exists()

    def test_a_preset_is_cloned_instead_of_edited(self, operator: Client, preset: HarnessVersion) -> None:
        for answer in (
            operator.get(f"/harnesses/{preset.pk}/edit/"),
            operator.post(f"/harnesses/{preset.pk}/edit/", sent(system_prompt="Changed.")),
        ):
            assert answer["Location"] == f"/harnesses/{preset.pk}/clone/"
        assert preset.harness.versions.count() == 1

    def test_the_name_of_a_preset_is_refused_at_its_field(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        form = sent(name="leaf-bash-only", system_prompt="Mine.")
        html = operator.post(f"/harnesses/{preset.pk}/clone/", form).content.decode()
        assert re.search(r'id="name-problem".*?“leaf-bash-only” is a preset of the lab.*?</div>', html, re.S)

    def test_what_is_there_already_is_not_saved_again_and_nothing_typed_is_lost(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        form = sent(wording="words of my own")
        answer = operator.post(f"/harnesses/{preset.pk}/clone/", form)
        assert answer.status_code == 422
        assert "is what leaf-compatible v1 is already" in answer.content.decode()
        assert "words of my own" in answer.content.decode()
        assert not Harness.objects.filter(name="mine").exists()

    def test_a_viewer_may_not(self, viewer: Client, preset: HarnessVersion) -> None:
        for path in (f"/harnesses/{preset.pk}/clone/", "/harnesses/import/"):
            assert viewer.get(path).status_code == 403
            assert viewer.post(path, sent(system_prompt="Mine.")).status_code == 403


class TestTwoPeopleAtOneVersion:
    @pytest.fixture
    def theirs(self, own: HarnessVersion) -> HarnessVersion:
        """What somebody else made of the same version meanwhile."""
        config = LEAF.model_copy(update={"name": "mine", "system_prompt": "Theirs."})
        return harnesses.create_version(by=builders.person(), config=config, based_on=own)

    def seen(self, html: str) -> str:
        (number,) = re.findall(r'<input type="hidden" name="seen_newest" value="(\d+)">', html)
        return str(number)

    def test_a_check_says_that_there_is_a_newer_version_and_links_to_the_difference(
        self, operator: Client, own: HarnessVersion, theirs: HarnessVersion
    ) -> None:
        form = sent(system_prompt="Ours.", do="check", seen_newest="1")
        html = operator.post(f"/harnesses/{own.pk}/edit/", form, headers=FETCH).content.decode()
        said = html.partition('id="checked-newer"')[2].partition("</p>")[0]
        assert f"mine v2, by {theirs.source['by']}, is newer than mine v1" in said
        assert f"/harnesses/diff/?left={own.pk}&amp;right={theirs.pk}" in said
        assert 'data-errors="0"' in html
        assert self.seen(html) == "1"

    def test_a_save_over_a_newer_version_is_refused_until_that_was_seen(
        self, operator: Client, own: HarnessVersion
    ) -> None:
        path = f"/harnesses/{own.pk}/edit/"
        opened = operator.get(path).content.decode()
        assert 'id="checked-newer"' not in opened
        config = LEAF.model_copy(update={"name": "mine", "system_prompt": "Theirs."})
        theirs = harnesses.create_version(by=builders.person(), config=config, based_on=own)
        form = sent(system_prompt="Ours.", seen_newest=self.seen(opened))
        for headers in ({}, FETCH):
            refused = operator.post(path, form, headers=headers)
            html = refused.content.decode()
            assert refused.status_code == 422
            assert f"mine v2 was made by {theirs.source['by']} since you looked" in html
            assert f"/harnesses/diff/?left={own.pk}&amp;right={theirs.pk}" in html
            assert "mine v3" in html
            assert self.seen(html) == "2"
            assert own.harness.versions.count() == 2
        assert "Ours.</textarea>" in operator.post(path, form).content.decode()
        again = operator.post(path, {**form, "seen_newest": "2"}, headers=FETCH)
        assert again.status_code == 201
        newest = HarnessVersion.objects.newest().get(harness__name="mine")
        assert (newest.version, newest.config["system_prompt"]) == (3, "Ours.")
        assert newest.source["based_on"] == "mine v1"

    def test_each_version_that_appears_is_asked_about_once_more(
        self, operator: Client, own: HarnessVersion, theirs: HarnessVersion
    ) -> None:
        config = LEAF.model_copy(update={"name": "mine", "system_prompt": "Theirs again."})
        harnesses.create_version(by=builders.person(), config=config, based_on=theirs)
        form = sent(system_prompt="Ours.", seen_newest="2")
        html = operator.post(f"/harnesses/{own.pk}/edit/", form, headers=FETCH).content.decode()
        assert "mine v3 was made by" in html
        assert self.seen(html) == "3"

    def test_who_opens_an_older_version_is_told_and_not_asked_again(
        self, operator: Client, own: HarnessVersion, theirs: HarnessVersion
    ) -> None:
        path = f"/harnesses/{own.pk}/edit/"
        opened = operator.get(path).content.decode()
        assert "mine v2 is newer" in opened
        form = sent(system_prompt="Ours.", seen_newest=self.seen(opened))
        assert operator.post(path, form, headers=FETCH).status_code == 201

    @pytest.mark.parametrize("odd", [None, "", "x", "-1", "²", "9" * 40])
    def test_a_form_that_does_not_say_what_was_seen_has_seen_what_it_opened(
        self, operator: Client, own: HarnessVersion, odd: str | None
    ) -> None:
        form = sent(system_prompt="Ours.", seen_newest=odd)
        path = f"/harnesses/{own.pk}/edit/"
        assert operator.post(path, form, headers=FETCH).status_code == 201
        other = sent(system_prompt="Ours too.", seen_newest=odd)
        assert operator.post(path, other, headers=FETCH).status_code == 422

    def test_a_clone_is_a_harness_of_its_own_and_is_not_asked(
        self, operator: Client, own: HarnessVersion, theirs: HarnessVersion
    ) -> None:
        path = f"/harnesses/{own.pk}/clone/"
        html = operator.get(path).content.decode()
        assert "seen_newest" not in html
        assert 'id="checked-newer"' not in html
        form = sent(name="another", system_prompt="Ours.")
        assert operator.post(path, form, headers=FETCH).status_code == 201


class TestChecking:
    def check(self, client: Client, preset: HarnessVersion, **changes: object) -> str:
        form = sent(**changes, do="check")
        answer = client.post(f"/harnesses/{preset.pk}/clone/", form, headers=FETCH)
        assert answer.status_code == 200
        html = answer.content.decode()
        assert html.lstrip().startswith('<div id="checked"')
        assert not Harness.objects.filter(name="mine").exists()
        return html

    def test_says_that_nothing_has_changed(self, operator: Client, preset: HarnessVersion) -> None:
        html = self.check(operator, preset)
        assert f'same as <a href="/harnesses/{preset.pk}/">leaf-compatible v1</a>' in html
        assert 'data-errors="0"' in html

    def test_says_what_differs_the_digest_and_what_it_would_be_saved_as(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        html = self.check(operator, preset, tools__t5__name="Shell", tools__t4__on=None, wording="mine")
        assert "<b>new</b>" in html
        assert re.search(r'title="[0-9a-f]{64}"', html)
        assert "mine v1" in html
        assert re.search(r"tools\.Bash</span> <span class=\"label\">renamed", html)
        assert re.search(r"tools\.Glob</span> <span class=\"label\">removed", html)
        assert "Beside it: name, wording" in html

    def test_shows_the_request_with_what_it_was_before(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        html = self.check(operator, preset, system_prompt="Work in {{ workspace }}. " * 40)
        assert re.search(r"about [\d,]+ tokens</b>.*before [\d,]+", html, re.S)
        assert "Work in {{" not in html.partition('id="checked-request"')[2]

    @pytest.mark.parametrize(
        ("field", "typed", "said"),
        [
            ("system_prompt", "Hello {{ nobody }}", "nobody"),
            ("system_prompt", "{% for i in range(10**9) %}x{% endfor %}", "10"),
            ("limits.max_steps", "$5", "“$5” is not a number of steps; write 5"),
            ("options", "{", "no JSON in line 1, column 2"),
            ("options", '{"condense": true}', "condense"),
            ("stop.tool", "Submit", "Submit"),
            ("tools.t5.name", "no name", "is no name that servers take"),
            ("tools.t5.parameters", '{"type": "object", "properties": ', "is no JSON in line 1"),
            ("tools.t5.parameters", '{"type": "objekt"}', "JSON Schema"),
            ("tools.t5.parameters", '{"type": "object", "type": "object"}', "“type” twice"),
            ("tools.t5.parameters", "[]", "is JSON, but no object"),
            ("tools.t5.settings", '{"timeout": 5}', "timeout"),
            ("tools.t5.settings", '{"timeout_sec": NaN}', "NaN"),
            ("tools.t5.characters", "many", "“many” is not a whole number"),
            ("tools.t5.template", "{{ colour }}", "colour"),
            ("feedback.malformed", "{{ nothing }}", "nothing"),
            ("suggested_sampling", "[" * 50_000, "nested too deep"),
            ("suggested_sampling", '{"temperature": 1e999}', "the number 1e999 is too large"),
            ("options", '{"a": ' + "[" * 900 + "]" * 900 + "}", "nested too deep"),
            ("tools.t5.parameters", '{"maximum": -1e999}', "the number -1e999 is too large"),
        ],
    )
    def test_names_what_is_wrong_at_its_field(
        self, operator: Client, preset: HarnessVersion, field: str, typed: str, said: str
    ) -> None:
        checked = self.check(operator, preset, **{field.replace(".", "__"): typed})
        html = operator.post(f"/harnesses/{preset.pk}/clone/", sent(**{field: typed})).content.decode()
        assert f'data-problem="{field}" data-severity="error"' in checked
        beside = html.partition(f'id="{field}-problem"')[2].partition("</div>")[0]
        assert said in unescape(beside)

    def test_shows_no_request_while_something_is_wrong_and_calls_that_no_error(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        html = self.check(operator, preset, limits__max_steps="$5")
        assert '<p class="body quiet">It is shown when the errors are mended.</p>' in html

    @pytest.mark.parametrize(
        ("field", "typed", "said"),
        [
            (
                "system_prompt",
                "Fix {{ task.statement }} \u202enow",
                "RIGHT-TO-LEFT OVERRIDE (U+202E) at character",
            ),
            (
                "tools.t5.parameters",
                '{"type": "object", "properties": {"command": {"$ref": "#/x"}}}',
                "properties.command.$ref: “#/x” is a reference",
            ),
        ],
    )
    def test_warns_at_the_field_of_what_a_reader_would_miss_and_lets_it_be_saved(
        self, operator: Client, preset: HarnessVersion, field: str, typed: str, said: str
    ) -> None:
        checked = self.check(operator, preset, **{field.replace(".", "__"): typed})
        assert f'data-problem="{field}" data-severity="warning"' in checked
        assert 'data-errors="0"' in checked
        form = sent(**{field: typed, "do": "check"})
        html = operator.post(f"/harnesses/{preset.pk}/clone/", form).content.decode()
        assert said in unescape(html.partition(f'id="{field}-problem"')[2].partition("</div>")[0])
        saved = operator.post(f"/harnesses/{preset.pk}/clone/", sent(**{field: typed}), headers=FETCH)
        assert saved.status_code == 201

    def test_two_tools_of_one_name_are_marked_both(self, operator: Client, preset: HarnessVersion) -> None:
        html = self.check(operator, preset, tools__t5__name="Read")
        assert 'data-problem="tools.t1.name tools.t5.name"' in html

    def test_a_tool_that_is_off_is_not_checked(self, operator: Client, preset: HarnessVersion) -> None:
        html = self.check(operator, preset, tools__t5__name="Read", tools__t5__on=None)
        assert 'data-errors="0"' in html

    def test_a_prompt_of_five_megabytes_is_told_its_length(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        html = self.check(operator, preset, system_prompt="x" * 5_000_000)
        assert 'data-problem="system_prompt" data-severity="error"' in html
        assert "5,000,000 characters" in html
        assert len(html) < 20_000

    def test_as_many_tools_as_a_harness_may_have_can_be_edited(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        bash = LEAF.tools[-1]
        tools = tuple(bash.model_copy(update={"name": f"Bash{number}"}) for number in range(128))
        form = sent(LEAF.model_copy(update={"tools": tools}), do="check")
        answer = operator.post(f"/harnesses/{preset.pk}/clone/", form, headers=FETCH)
        assert answer.status_code == 200
        assert 'data-errors="0"' in answer.content.decode()

    def test_more_than_the_lab_takes_at_once_is_a_message(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        answer = operator.post(f"/harnesses/{preset.pk}/clone/", sent(system_prompt="x" * 9_000_000))
        assert answer.status_code == 400
        assert "at most 8 MB" in answer.content.decode()


class TestWithoutScript:
    def test_a_form_with_errors_comes_back_with_what_was_typed(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        form = sent(
            system_prompt="\nHello {{ nobody }}", tools__t4__on=None, tools__t4__description="kept <b>"
        )
        answer = operator.post(f"/harnesses/{preset.pk}/clone/", form)
        html = answer.content.decode()
        assert answer.status_code == 422
        # A browser takes the first line end of a text field away.
        assert re.search(
            r'id="system_prompt"[^>]*aria-invalid="true">\n\nHello {{ nobody }}</textarea>', html
        )
        assert "kept &lt;b&gt;" in html
        assert re.search(r'name="tools\.t4\.on" aria-label="Offer this tool">', html)

    def test_a_tool_is_added_to_what_was_typed(self, operator: Client, preset: HarnessVersion) -> None:
        form = sent(system_prompt="Typed.", do="add", add="/search")
        html = operator.post(f"/harnesses/{preset.pk}/clone/", form).content.decode()
        assert "Typed.</textarea>" in html
        assert len(re.findall(r'name="tool" value="', html)) == len(LEAF.tools) + 1
        assert not Harness.objects.filter(name="mine").exists()


class TestAddingATool:
    def test_of_a_preset_brings_its_wording(self, operator: Client, preset: HarnessVersion) -> None:
        form = sent(do="add", add="leaf-compatible/Bash")
        answer = operator.post(f"/harnesses/{preset.pk}/clone/", form, headers=FETCH)
        html = answer.content.decode()
        assert html.count("<details") == 1
        assert "Nothing of the shell is kept between calls." in html
        assert re.search(r'name="tools\.[0-9a-f]{8}\.name" value="Bash"', html)

    def test_of_an_executor_has_the_arguments_that_it_needs(
        self, operator: Client, preset: HarnessVersion
    ) -> None:
        form = sent(do="add", add="/write")
        html = operator.post(f"/harnesses/{preset.pk}/clone/", form, headers=FETCH).content.decode()
        schema = re.search(r'id="tools\.\w+\.parameters"[^>]*>\n(.*?)</textarea>', html, re.S)
        assert schema is not None
        assert json.loads(unescape(schema[1]))["required"] == ["file_path", "content"]

    @pytest.mark.parametrize("value", ["", "/nobody", "leaf-compatible/Nobody", "os:system", "../x/y"])
    def test_that_nobody_offers_is_refused(
        self, operator: Client, preset: HarnessVersion, value: str
    ) -> None:
        form = sent(system_prompt="Typed.", do="add", add=value)
        answer = operator.post(f"/harnesses/{preset.pk}/clone/", form)
        assert answer.status_code == 422
        assert "choose one from the list" in answer.content.decode()
        assert "Typed.</textarea>" in answer.content.decode()


def test_new_from_a_preset_leads_to_its_clone(operator: Client, preset: HarnessVersion) -> None:
    answer = operator.get(f"/harnesses/new/?from={preset.pk}")
    assert answer["Location"] == f"/harnesses/{preset.pk}/clone/"
    for odd in ("", "x", "999999"):
        assert operator.get("/harnesses/new/", {"from": odd})["Location"] == "/harnesses/"


class TestImport:
    @pytest.fixture
    def text(self, viewer: Client, own: HarnessVersion) -> Callable[..., str]:
        def make(**changes: str) -> str:
            text: str = viewer.get(f"/harnesses/{own.pk}/yaml/").content.decode()
            for old, new in changes.items():
                text = text.replace(old, new)
            return text

        return make

    def test_shows_what_it_would_become_before_anything_is_stored(
        self, operator: Client, text: Callable[..., str]
    ) -> None:
        changed = text().replace("Mend it.", "Mend it now.")
        count = HarnessVersion.objects.count()
        html = operator.post("/harnesses/import/", {"text": changed, "do": "look"}).content.decode()
        assert "mine v2" in html
        assert "Mend it now." in html
        assert "system_prompt</span>" in html
        assert HarnessVersion.objects.count() == count
        unseen = operator.post("/harnesses/import/", {"text": changed, "do": "store"})
        assert "mine v2" in unseen.content.decode()
        assert HarnessVersion.objects.count() == count
        seen = re.search(r'name="seen" value="([^"]+)"', html)
        assert seen is not None
        form = {"text": changed, "do": "store", "seen": seen[1]}
        other = operator.post("/harnesses/import/", {**form, "text": changed.replace("now", "then")})
        assert "Mend it then." in other.content.decode()
        assert HarnessVersion.objects.count() == count
        answer = operator.post("/harnesses/import/", form, follow=True)
        version = HarnessVersion.objects.newest().get(harness__name="mine")
        assert answer.redirect_chain[0][0] == f"/harnesses/{version.pk}/"
        assert (version.version, version.config["system_prompt"]) == (2, "Mend it now.")
        assert version.source["kind"] == "yaml"

    def test_of_what_is_there_already_has_nothing_to_do(
        self, operator: Client, text: Callable[..., str]
    ) -> None:
        html = operator.post("/harnesses/import/", {"text": text(), "do": "look"}).content.decode()
        assert "nothing to import" in html
        assert 'value="store"' not in html

    def test_takes_a_file_and_puts_it_where_it_can_be_changed(
        self, operator: Client, text: Callable[..., str], tmp_path: object
    ) -> None:
        from django.core.files.uploadedfile import SimpleUploadedFile

        file = SimpleUploadedFile("mine.yaml", text().replace("Mend it.", "From a file.").encode())
        html = operator.post("/harnesses/import/", {"file": file, "do": "look"}).content.decode()
        assert "From a file." in html.partition("<textarea")[2].partition("</textarea>")[0]
        assert "mine v2" in html

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("", "is empty"),
            ("- a\n- b", "list"),
            ("services: {web: {}}", "compose"),
            ("agent: {}\nmodel: {}", "--mini"),
            ("a: &x [*x]", "YAML"),
            ("{", "YAML"),
            ("name: x\nfamily: nobody\nsystem_prompt: hello\ntools: []", "is no family"),
        ],
    )
    def test_of_something_else_says_what_and_keeps_the_text(
        self, operator: Client, filled: None, content: str, said: str
    ) -> None:
        answer = operator.post("/harnesses/import/", {"text": content, "do": "store"})
        assert answer.status_code == 422
        html = answer.content.decode()
        assert said in html
        assert content.replace("&", "&amp;") in html

    def test_of_a_file_that_is_no_text_says_so(self, operator: Client, filled: None) -> None:
        from django.core.files.uploadedfile import SimpleUploadedFile

        file = SimpleUploadedFile("picture.png", b"\x89PNG\r\n\xff\xfe")
        answer = operator.post("/harnesses/import/", {"file": file, "do": "look"})
        assert answer.status_code == 422
        assert "is no text in UTF-8" in answer.content.decode()
