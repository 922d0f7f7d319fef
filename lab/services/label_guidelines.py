"""Guideline versions as files of labels name or bring them."""

from __future__ import annotations

from django.db import transaction
from django.db.models import QuerySet

from lab.engine.errors import InvalidValueError
from lab.engine.labels.formats.base import GuidelineNamed, GuidelineRead
from lab.engine.labels.taxonomy import Taxonomy as Vocabulary
from lab.models import Guideline, GuidelineVersion, Taxonomy, TaxonomyVersion
from lab.services import guidelines, taxonomies
from lab.services.locks import one_at_a_time


def brought(version: GuidelineVersion) -> GuidelineRead:
    """The version whole, as a file brings it to another lab."""
    return GuidelineRead(
        name=version.guideline.name,
        n=version.n,
        definition=version.definition,
        root_cause=version.root_cause,
        instructions=version.instructions,
        taxonomy_n=version.taxonomy_version.n,
        content=taxonomies.content_of(version.taxonomy_version).model_dump(mode="json"),
    )


@transaction.atomic
def of_file(read: GuidelineRead) -> GuidelineVersion:
    """The version that says the same here, else a new one of that name and number.

    Where the number is taken by another content, the name gets a mark: nobody's labels change their meaning.
    """
    one_at_a_time("taxonomies")
    vocabulary = Vocabulary.model_validate(read.content)
    for name in (read.name, f"{read.name[:180]} ({vocabulary.digest[:8]})"):
        there = _rows().filter(guideline__name=name, n=read.n).first()
        if there is None:
            guideline, _ = Guideline.objects.get_or_create(name=name)
            return GuidelineVersion.objects.create(
                guideline=guideline,
                n=read.n,
                taxonomy_version=_taxonomy(vocabulary, read.taxonomy_n),
                definition=read.definition,
                root_cause=read.root_cause,
                instructions=read.instructions,
            )
        if brought(there) == read or (name != read.name and _same_words(there, read)):
            return there
    raise InvalidValueError("guideline", read.name, f"is there with another content as version {read.n}")


def _same_words(version: GuidelineVersion, read: GuidelineRead) -> bool:
    own = brought(version)
    return (own.definition, own.root_cause, own.instructions) == (
        read.definition,
        read.root_cause,
        read.instructions,
    )


def _rows() -> QuerySet[GuidelineVersion]:
    return GuidelineVersion.objects.select_related("guideline", "taxonomy_version__taxonomy")


def _taxonomy(vocabulary: Vocabulary, n: int) -> TaxonomyVersion:
    for slug in (vocabulary.slug, f"{vocabulary.slug[:55]}-{vocabulary.digest[:8]}"):
        taxonomy, _ = Taxonomy.objects.get_or_create(slug=slug, defaults={"name": vocabulary.name})
        content = vocabulary.model_dump(mode="json")
        there, _ = TaxonomyVersion.objects.get_or_create(
            taxonomy=taxonomy,
            n=n,
            defaults={"content": content, "digest": vocabulary.digest, "note": "came with labels"},
        )
        if there.digest == vocabulary.digest:
            return there
    raise InvalidValueError("taxonomy", vocabulary.slug, f"is there with another content as version {n}")


def named(wanted: GuidelineNamed) -> GuidelineVersion:
    """The version that a file names; one of a published collection is made when it is first needed.

    Raises:
        InvalidValueError: there is no such version, or no such vocabulary.
    """
    if wanted.n is None:
        return guidelines.of_vocabulary(wanted.taxonomy, name=wanted.name, definition=wanted.definition)
    rows = _rows().filter(guideline__name=wanted.name, n=wanted.n, definition=wanted.definition)
    found = rows.filter(taxonomy_version__taxonomy__slug=wanted.taxonomy).first()
    if found is None:
        what = f"version {wanted.n} on {wanted.taxonomy}"
        raise InvalidValueError(
            "guideline", wanted.name, f"is not here as {what}; the JSON lines of these labels bring it"
        )
    return found
