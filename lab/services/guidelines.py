"""Guidelines: which vocabulary people label with, and which step counts as the root cause."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from lab.engine.errors import InvalidValueError
from lab.engine.labels.guideline import DEFAULT, DEFINITIONS, OWN
from lab.engine.labels.vocabularies import DEFAULT_VOCABULARY
from lab.models import Guideline, GuidelineVersion, Role, TaxonomyVersion
from lab.services import taxonomies
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector
from lab.services.locks import one_at_a_time

DEFAULT_NAME = "Root cause of failed runs"
_INSTRUCTIONS = (
    "Read the verdict and the failing tests first, then the run from its start. Mark each step that went "
    "wrong, repaired or not, and quote the words that show it. Then point at the root cause as it is defined "
    "above and say in one sentence why it is that one. Choose “unsure” when another step would be as good; "
    "name it as also acceptable."
)


def default() -> GuidelineVersion:
    """The guideline that is used where nobody chooses one, in its newest version."""
    found = _newest_of(DEFAULT_NAME)
    return found or of_vocabulary(DEFAULT_VOCABULARY, name=DEFAULT_NAME, instructions=_INSTRUCTIONS)


def _newest_of(name: str) -> GuidelineVersion | None:
    rows = GuidelineVersion.objects.select_related("guideline", "taxonomy_version__taxonomy")
    return rows.filter(guideline__name=name).order_by("-n").first()


@transaction.atomic
def of_vocabulary(
    slug: str, *, name: str, definition: str = DEFAULT, instructions: str = ""
) -> GuidelineVersion:
    """The newest version of the guideline `name`, made on a vocabulary's newest version if there is none.

    For labels that come from elsewhere, too: under which definition they were made belongs to them.

    Raises:
        InvalidValueError: no such vocabulary, or no such definition.
    """
    one_at_a_time("taxonomies")
    found = _newest_of(name)
    if found is not None:
        return found
    if definition not in DEFINITIONS:
        raise InvalidValueError("definition", definition, f"is none of {', '.join(DEFINITIONS)}")
    guideline, _ = Guideline.objects.get_or_create(name=name)
    return GuidelineVersion.objects.create(
        guideline=guideline,
        n=1,
        taxonomy_version=taxonomies.newest(slug),
        definition=definition,
        root_cause=DEFINITIONS[definition][1],
        instructions=instructions,
    )


def all_newest() -> list[GuidelineVersion]:
    """The newest version of every guideline, in the order they were made."""
    rows = GuidelineVersion.objects.select_related("guideline", "taxonomy_version__taxonomy")
    newest = {row.guideline_id: row for row in rows.order_by("guideline_id", "n")}
    return list(newest.values())


@for_role(Role.OPERATOR)
@transaction.atomic
def save_version(
    *,
    by: User,
    name: str,
    taxonomy_version: TaxonomyVersion,
    definition: str,
    root_cause: str = "",
    instructions: str = "",
    seen_n: int | None = None,
) -> GuidelineVersion:
    """The next version of a guideline, or the first one of a new name. The same content is the same version.

    `root_cause` is needed for a definition of one's `own`; else the definition's sentence is taken where it
    is empty. `seen_n`: the version that the person saw, None for a new guideline.

    Raises:
        FieldErrors: a value cannot be used, the name is taken, or somebody made a version meanwhile.
    """
    one_at_a_time("taxonomies")
    name, root_cause = name.strip(), root_cause.strip()
    last = _newest_of(name)
    _check(name, definition, root_cause, last, seen_n)
    columns = {
        "taxonomy_version": taxonomy_version,
        "definition": definition,
        "root_cause": root_cause or DEFINITIONS[definition][1],
        "instructions": instructions.strip(),
    }
    if last is not None and all(getattr(last, field) == value for field, value in columns.items()):
        return last
    guideline, _ = Guideline.objects.get_or_create(name=name)
    n = last.n + 1 if last else 1
    return GuidelineVersion.objects.create(guideline=guideline, n=n, made_by=by, **columns)


def _check(
    name: str, definition: str, root_cause: str, last: GuidelineVersion | None, seen_n: int | None
) -> None:
    errors = FieldErrorCollector()
    if not 1 <= len(name) <= 200:
        errors.say("name", f"“{name[:40]}” has {len(name)} characters; a name has 1 to 200")
    if definition not in {*DEFINITIONS, OWN}:
        errors.say("definition", f"“{definition}” is none of {', '.join((*DEFINITIONS, OWN))}")
    elif definition == OWN and not root_cause:
        errors.say("root_cause", "A definition of your own needs its sentence: which step is the root cause?")
    if last is not None and seen_n is None:
        errors.say("name", f"“{name}” is taken; choose another, or make a version of that one")
    elif last is not None and seen_n != last.n:
        by = f" by {last.made_by}" if last.made_by else ""
        errors.say(
            "name", f"Version {last.n} was made{by} since you opened this; look at it, then save again"
        )
    errors.raise_if_any()
