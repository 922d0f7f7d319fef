"""Vocabularies of failures: versions that never change, those that come with the lab among them."""

from __future__ import annotations

import functools
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count

from lab.engine.errors import InvalidValueError
from lab.engine.labels import changes
from lab.engine.labels.taxonomy import Code
from lab.engine.labels.taxonomy import Taxonomy as Vocabulary
from lab.engine.labels.vocabularies import load_vocabulary, vocabulary_names
from lab.models import ErrorEvent, Role, Taxonomy, TaxonomyVersion
from lab.services.access import for_role
from lab.services.label_visibility import hidden_runs
from lab.services.locks import one_at_a_time


class NewerTaxonomyError(InvalidValueError):
    """Somebody else stored a version since this one was opened; `newest` is it."""

    def __init__(self, newest: TaxonomyVersion, differences: list[str]) -> None:
        self.newest = newest
        self.differences = differences
        what = "; ".join(differences[:5]) or "only words around the codes differ"
        by = f" by {newest.made_by}" if newest.made_by else ""
        super().__init__(
            "version",
            newest.n,
            f"was made{by} since you opened this ({what}); look at it, then save again to make the next one",
        )


@transaction.atomic
def sync_presets() -> list[TaxonomyVersion]:
    """The vocabularies that come with the lab; a changed one becomes a new version, of nobody.

    One that people of the lab have a newer version of stays theirs.
    """
    one_at_a_time("taxonomies")
    return [_sync(load_vocabulary(slug)) for slug in vocabulary_names()]


def _sync(content: Vocabulary) -> TaxonomyVersion:
    taxonomy, _ = Taxonomy.objects.get_or_create(slug=content.slug, defaults={"name": content.name})
    last = taxonomy.versions.order_by("-n").first()
    own = last is not None and last.made_by_id is not None
    if last is not None and (own or _same(last, content)):
        return last
    return _store(taxonomy, last, content, note="comes with the lab", by=None)


def _same(version: TaxonomyVersion, content: Vocabulary) -> bool:
    return version.digest == changes.next_version(content_of(version), content).digest


def _store(
    taxonomy: Taxonomy, last: TaxonomyVersion | None, content: Vocabulary, *, note: str, by: User | None
) -> TaxonomyVersion:
    whole = changes.next_version(content_of(last) if last else None, content)
    return TaxonomyVersion.objects.create(
        taxonomy=taxonomy,
        n=last.n + 1 if last else 1,
        content=whole.model_dump(mode="json"),
        digest=whole.digest,
        note=note,
        made_by=by,
    )


def content_of(version: TaxonomyVersion) -> Vocabulary:
    """What a version holds. Versions never change, so that reading one once is enough."""
    return _content(version.pk, version.digest)


@functools.lru_cache(maxsize=256)
def _content(pk: int, digest: str) -> Vocabulary:
    return Vocabulary.model_validate(TaxonomyVersion.objects.values_list("content", flat=True).get(pk=pk))


def newest(slug: str) -> TaxonomyVersion:
    """The newest version of a vocabulary; one that comes with the lab is stored when it is first asked for.

    Raises:
        InvalidValueError: there is no such vocabulary.
    """
    versions = TaxonomyVersion.objects.select_related("taxonomy").filter(taxonomy__slug=slug)
    found = versions.order_by("-n").first()
    if found is None and slug in vocabulary_names():
        sync_presets()
        found = versions.order_by("-n").first()
    if found is None:
        known = ", ".join(Taxonomy.objects.values_list("slug", flat=True)) or "none yet"
        raise InvalidValueError("taxonomy", slug, f"does not exist; there are: {known}")
    return found


@for_role(Role.OPERATOR)
@transaction.atomic
def save_version(
    *, by: User, content: Vocabulary, seen_n: int, note: str = "", new: bool = False
) -> TaxonomyVersion:
    """The next version of the vocabulary that `content.slug` names, or a vocabulary of its own (`new`).

    The same content again is the same version. Codes that are left out are retired: labels hold their ids.

    Raises:
        InvalidValueError: a slug that is taken or missing, an id twice, no code to choose.
        NewerTaxonomyError: there is a newer version than `seen_n`, the one that the person saw.
    """
    one_at_a_time("taxonomies")
    taxonomy = Taxonomy.objects.filter(slug=content.slug).first()
    if taxonomy is None and not new:
        raise InvalidValueError("slug", content.slug, "is no taxonomy of this lab; make it as a new one")
    if taxonomy is not None and new:
        raise InvalidValueError(
            "slug", content.slug, "is taken; choose another, or make a version of that one"
        )
    if taxonomy is None:
        taxonomy = Taxonomy.objects.create(slug=content.slug, name=content.name)
    last = taxonomy.versions.order_by("-n").first()
    if last is not None and last.n != seen_n:
        raise NewerTaxonomyError(last, changes.differences(content_of(last), content))
    if last is not None and _same(last, content):
        return last
    stored = _store(taxonomy, last, content, note=note, by=by)
    if taxonomy.name != content.name:
        taxonomy.name = content.name
        taxonomy.save(update_fields=["name"])
    return stored


class Used(NamedTuple):
    """A code of a version, and in how many submitted labels of the vocabulary it stands."""

    code: Code
    events: int


def usage(person: User, version: TaxonomyVersion) -> list[Used]:
    """Every code with how many error events, under any version of its vocabulary, have it.

    Those of runs whose labels are hidden from the person are not counted.
    """
    events = ErrorEvent.objects.filter(
        annotation__guideline__taxonomy_version__taxonomy_id=version.taxonomy_id
    ).exclude(category="")
    runs = set(events.values_list("annotation__run_id", flat=True))
    events = events.exclude(annotation__run_id__in=hidden_runs(person, runs))
    counted = dict(events.values_list("category").annotate(n=Count("pk")).order_by())
    return [Used(code, counted.get(code.id, 0)) for code in content_of(version).codes]


def translate(version: TaxonomyVersion, code_id: str, to_slug: str) -> tuple[str, ...]:
    """What a code is called in another vocabulary; itself in its own, nothing where no word is known.

    A mapping is read backwards too: of AgentRx's codes those of the lab's own that name it.
    """
    own = content_of(version)
    if own.slug == to_slug:
        return (code_id,)
    code = own.code(code_id)
    if code is not None and to_slug in code.maps_to:
        return code.maps_to[to_slug]
    other = Taxonomy.objects.filter(slug=to_slug).first()
    if other is None:
        return ()
    codes = content_of(newest(to_slug)).codes
    return tuple(one.id for one in codes if code_id in one.maps_to.get(own.slug, ()))


def find_code(version: TaxonomyVersion, words: str) -> str | None:
    """The code that a file calls `words`, whatever its spelling; None where none or several are meant."""
    return changes.find_code(content_of(version), words)
