"""Vocabularies and guidelines on their pages: read, edited into next versions, refused without loss."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from lab.engine.labels.changes import to_yaml
from lab.models import GuidelineVersion, TaxonomyVersion
from lab.services import guidelines, taxonomies
from tests import builders
from tests.web.labelling import annotator, failed_run, submitted

pytestmark = pytest.mark.django_db


def coding() -> TaxonomyVersion:
    return taxonomies.newest("coding")


def form(version: TaxonomyVersion, *, drop: str = "", **changed: Any) -> dict[str, Any]:
    """What the editor sends when one changes nothing, with what one changes of the first code."""
    content = taxonomies.content_of(version)
    codes = [code for code in content.codes if code.id != drop]
    rows = {
        "id": [code.id for code in codes],
        "name-of": [code.name for code in codes],
        "maps_to": [
            "; ".join(f"{slug}: {', '.join(ids)}" for slug, ids in code.maps_to.items()) for code in codes
        ],
        **{
            name: [getattr(code, name) for code in codes]
            for name in ("group", "definition", "use_when", "not_when", "example")
        },
    }
    for name, value in changed.items():
        rows[name.replace("name_of", "name-of")][0] = value
    return rows | {"name": content.name, "description": content.description, "note": "", "seen": version.n}


def test_a_version_shows_each_code_with_how_often_it_is_used(operator: Client) -> None:
    submitted(annotator()[0], failed_run())
    text = operator.get(f"/annotate/taxonomies/{coding().pk}/").content.decode()
    assert "Wrong root cause or layer" in text
    assert "in 1 error event<" in text
    assert "fm-2.6" in text, "what it is elsewhere"
    assert "Coding failures" in operator.get("/annotate/taxonomies/").content.decode()


def test_the_form_that_changes_nothing_makes_no_version(operator: Client) -> None:
    version = coding()
    answer = operator.post(f"/annotate/taxonomies/{version.pk}/edit", form(version), follow=True)
    assert "Nothing changed" in answer.content.decode()
    assert coding() == version


def test_an_edited_code_and_one_that_is_left_out_make_the_next_version(operator: Client) -> None:
    version = coding()
    label = submitted(annotator()[0], failed_run(), category="other")
    typed = form(version, drop="other", definition="Another behaviour than the one asked for.")
    answer = operator.post(f"/annotate/taxonomies/{version.pk}/edit", typed, follow=True)
    text = answer.content.decode()
    assert "Coding failures v2 is stored" in text
    assert "misread-specification: definition changed" in text
    assert "other is retired" in text
    label.refresh_from_db()
    assert label.guideline.taxonomy_version == version


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"id": "Not An Id"}, "Not An Id, id"),
        ({"name_of": ""}, "misread-specification, name"),
        ({"definition": ""}, "misread-specification, definition"),
        ({"maps_to": "mast"}, "is no mapping"),
        ({"id": "other"}, "stands twice"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_code_and_what_was_typed_stays(
    operator: Client, changed: dict[str, str], says: str
) -> None:
    version = coding()
    typed = form(version, **changed) | {"note": "typed by hand"}
    answer = operator.post(f"/annotate/taxonomies/{version.pk}/edit", typed)
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert "typed by hand" in answer.content.decode()
    assert coding() == version


def test_whoever_edits_an_older_version_is_told_and_may_save_over_it(operator: Client) -> None:
    version = coding()
    operator.post(f"/annotate/taxonomies/{version.pk}/edit", form(version, example="Ours."))
    answer = operator.post(f"/annotate/taxonomies/{version.pk}/edit", form(version, example="Mine."))
    assert answer.status_code == 409
    assert "misread-specification: example changed" in answer.content.decode()
    assert "Mine." in answer.content.decode()
    again = form(version, example="Mine.") | {"seen": 2}
    operator.post(f"/annotate/taxonomies/{version.pk}/edit", again)
    assert coding().n == 3


def test_a_code_that_somebody_else_added_meanwhile_is_not_retired_by_saving_again(operator: Client) -> None:
    version = coding()
    content = taxonomies.content_of(version)
    added = content.codes[0].model_copy(update={"id": "their-code", "name": "Theirs"})
    theirs = content.model_copy(update={"codes": (*content.codes, added)})
    taxonomies.save_version(by=builders.person(), content=theirs, seen_n=1)
    answer = operator.post(f"/annotate/taxonomies/{version.pk}/edit", form(version, example="Mine."))
    assert 'value="their-code"' in answer.content.decode()


def test_a_vocabulary_goes_out_as_yaml_and_comes_in_as_the_same(operator: Client) -> None:
    version = coding()
    text = operator.get(f"/annotate/taxonomies/{version.pk}/?format=yaml").content.decode()
    operator.post("/annotate/taxonomies/import", {"text": text})
    assert coding() == version
    own = taxonomies.content_of(version).model_copy(update={"slug": "ours", "name": "Ours"})
    file = SimpleUploadedFile("ours.yaml", to_yaml(own).encode())
    answer = operator.post("/annotate/taxonomies/import", {"file": file}, follow=True)
    assert "Ours v1 is stored" in answer.content.decode()
    bad = operator.post("/annotate/taxonomies/import", {"text": "slug: x\nname: y\ncodes: soon\n"})
    assert bad.status_code == 422
    assert "codes" in bad.content.decode()


def test_a_guideline_gets_its_next_version_and_bad_input_stays_typed(operator: Client) -> None:
    first = guidelines.default()
    typed = {
        "name": guidelines.DEFAULT_NAME,
        "taxonomy": first.taxonomy_version_id,
        "definition": "own",
        "root_cause": "",
        "instructions": "Look twice.",
        "seen": "1",
    }
    address = f"/annotate/guidelines/edit?of={first.pk}"
    refused = operator.post(address, typed)
    assert refused.status_code == 422
    assert "needs its sentence" in refused.content.decode()
    assert "Look twice." in refused.content.decode()
    answer = operator.post(address, typed | {"root_cause": "The step before the last."}, follow=True)
    assert "Root cause of failed runs v2 is stored" in answer.content.decode()
    assert GuidelineVersion.objects.count() == 2
    assert "is no taxonomy version" in operator.post(address, typed | {"taxonomy": "x"}).content.decode()
    assert operator.get("/annotate/guidelines/edit?of=99999").status_code == 404
    assert "The step before the last." in operator.get("/annotate/guidelines/").content.decode()
