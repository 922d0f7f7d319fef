"""Vocabularies of failures and guidelines: versions that never change, ids that keep their meaning."""

from __future__ import annotations

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.labels.changes import from_yaml, to_yaml
from lab.engine.labels.taxonomy import Taxonomy
from lab.engine.labels.vocabularies import load_vocabulary, vocabulary_names
from lab.models import TaxonomyVersion
from lab.services import guidelines, taxonomies
from lab.services.errors import FieldErrors
from tests import builders

pytestmark = pytest.mark.django_db


def coding() -> Taxonomy:
    return taxonomies.content_of(taxonomies.newest("coding"))


def test_what_comes_with_the_lab_is_stored_once() -> None:
    first = taxonomies.sync_presets()
    assert taxonomies.sync_presets() == first
    assert [version.n for version in first] == [1] * len(vocabulary_names())


@pytest.mark.parametrize("slug", vocabulary_names())
def test_a_vocabulary_that_comes_with_the_lab_names_codes_that_exist_elsewhere(slug: str) -> None:
    content = load_vocabulary(slug)
    assert len({code.id for code in content.codes}) == len(content.codes)
    for code in content.codes:
        for other, ids in code.maps_to.items():
            assert all(load_vocabulary(other).code(one) for one in ids), (code.id, other)
    assert from_yaml(to_yaml(content)) == content


def test_the_default_vocabulary_says_of_each_code_when_to_use_it() -> None:
    assert len(coding().codes) == 15
    assert all(code.use_when and code.not_when and code.example for code in coding().codes)


def test_a_code_that_is_left_out_is_retired_and_older_versions_stay() -> None:
    before = coding()
    fewer = before.model_copy(update={"codes": before.codes[:3]})
    version = taxonomies.save_version(by=builders.person(), content=fewer, seen_n=1)
    after = taxonomies.content_of(version)
    assert (version.n, len(after.codes), sum(code.retired for code in after.codes)) == (2, 15, 12)
    assert taxonomies.content_of(TaxonomyVersion.objects.get(taxonomy__slug="coding", n=1)) == before


def test_a_version_that_people_made_is_not_replaced_by_the_one_that_comes_with_the_lab() -> None:
    content = coding().model_copy(update={"name": "Ours"})
    own = taxonomies.save_version(by=builders.person(), content=content, seen_n=1)
    taxonomies.sync_presets()
    assert taxonomies.newest("coding") == own


def test_whoever_saves_over_an_unseen_version_is_told_what_differs() -> None:
    mara, content = builders.person(), coding()
    named = content.codes[0].model_copy(update={"name": "Read it wrongly"})
    taxonomies.save_version(
        by=mara, content=content.model_copy(update={"codes": (named, *content.codes[1:])}), seen_n=1
    )
    with pytest.raises(taxonomies.NewerTaxonomyError, match="misread-specification: name changed"):
        taxonomies.save_version(by=mara, content=content, seen_n=1)


def test_an_id_twice_and_a_vocabulary_without_a_choice_are_refused() -> None:
    mara, content = builders.person(), coding()
    twice = content.model_copy(update={"codes": (*content.codes, content.codes[0])})
    with pytest.raises(InvalidValueError, match="misread-specification.*stands twice"):
        taxonomies.save_version(by=mara, content=twice, seen_n=1)
    retired = tuple(code.model_copy(update={"retired": True}) for code in content.codes)
    with pytest.raises(InvalidValueError, match="nothing to choose"):
        taxonomies.save_version(by=mara, content=content.model_copy(update={"codes": retired}), seen_n=1)


def test_codes_are_translated_both_ways() -> None:
    own, theirs = taxonomies.newest("coding"), taxonomies.newest("agentrx")
    assert taxonomies.translate(own, "invented-fact", "agentrx") == ("invention-of-new-information",)
    assert "invented-fact" in taxonomies.translate(theirs, "invention-of-new-information", "coding")
    assert taxonomies.translate(own, "other", "other-world") == ()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Instruction Adherence Failure", "instruction-plan-adherence"),
        ("instruction/plan adherence failure", "instruction-plan-adherence"),
        ("Misinterpretation of Tool Output", "misinterpretation-of-tool-output"),
        ("SYSTEM FAILURE", "system-failure"),
        ("Intent", None),
        ("", None),
    ],
)
def test_a_category_is_found_however_a_file_spells_it(words: str, code: str | None) -> None:
    assert taxonomies.find_code(taxonomies.newest("agentrx"), words) == code


def test_a_file_that_is_no_vocabulary_is_refused_by_field() -> None:
    with pytest.raises(InvalidValueError, match=r"codes\.0\.id"):
        from_yaml("slug: own\nname: Own\ncodes:\n- {id: 'Not an id', name: x, definition: y}\n")
    with pytest.raises(InvalidValueError, match="is not YAML"):
        from_yaml("slug: [")


def test_the_default_guideline_is_made_once_and_shows_its_definition() -> None:
    first = guidelines.default()
    assert guidelines.default() == first
    assert "never recovered" in first.root_cause
    assert first in guidelines.all_newest()


def test_a_guideline_is_changed_by_a_next_version() -> None:
    mara, first = builders.person(), guidelines.default()
    values = {"name": guidelines.DEFAULT_NAME, "taxonomy_version": first.taxonomy_version}
    second = guidelines.save_version(by=mara, definition="inevitable", seen_n=1, **values)
    assert (second.n, guidelines.default()) == (2, second)
    with pytest.raises(FieldErrors, match="Version 2 was made"):
        guidelines.save_version(by=mara, definition="own", root_cause="The last one.", seen_n=1, **values)
    with pytest.raises(FieldErrors, match="needs its sentence"):
        guidelines.save_version(by=mara, definition="own", seen_n=2, **values)
