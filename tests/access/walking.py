"""Walks the lab's addresses, and finds an object that exists for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from lab.models import Event, HiddenTaskPart, Import, JudgeRun, PriceCard, Role, Run, TestResult
from lab.services import access, taxonomies, tokens
from tests import builders
from tests.access import labelling
from tests.access.people import Visitor

GOLD = "the-gold-patch-itself"
PLAN = "the-plan-of-a-scripted-model"
ENDPOINT_PAGES = ("endpoint", "endpoint_edit", "endpoint_retire", "model_list")
MODEL_PAGES = (
    *("model", "model_runs", "model_edit", "model_retire", "model_basis"),
    *("price_card_new", "price_card_end", "price_card_remove"),
)
JUDGE_PAGES = ("judge", "judge_cancel")
IMPORT_PAGES = ("import", "import_cancel", "import_again")
HARNESS_PAGES = ("harness", *(f"harness_{name}" for name in ("request", "runs", "yaml", "clone", "edit")))


QUEUE_PAGES = ("queue", "queue_next", "queue_change")
LABEL_ACTS = ("edit", "undo", "redo", "submit", "skip", "discard", "alive", "correct", "take", "steps")
LABEL_PAGES = ("label", *(f"label_{name}" for name in LABEL_ACTS))


class Page(NamedTuple):
    """One address as the lab knows it."""

    name: str
    route: str
    view: Any
    parameters: tuple[str, ...]

    @property
    def decision(self) -> access.Decision | None:
        found: access.Decision | None = getattr(self.view, "access", None)
        return found


def walk(resolver: URLResolver, before: str = "", space: str = "") -> Iterator[Page]:
    for entry in resolver.url_patterns:
        route = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            inner = f"{space}{entry.namespace}:" if entry.namespace else space
            yield from walk(entry, route, inner)
        elif isinstance(entry, URLPattern):
            yield Page(f"{space}{entry.name}", route, entry.callback, tuple(entry.pattern.converters))


PAGES = list(walk(get_resolver()))


def whole_run() -> Run:
    """A run of every sort of step, graded, of a task with a gold patch."""
    run = builders.run()
    builders.believable(run)
    HiddenTaskPart.objects.create(
        task=run.task, verification={"fail_to_pass": []}, gold_patch=GOLD, plans={"solver": PLAN}
    )
    PriceCard.objects.create(
        endpoint=run.arm.model.endpoint, model_id="of the matrix", basis="card", valid_from=timezone.now()
    )
    Import.objects.create(state=Import.State.ENDED)
    return Run.objects.get(pk=run.pk)


class Addresses:
    """An address that exists for each page. A page with a new parameter names its object here."""

    def __init__(self, run: Run, owner: Visitor) -> None:
        assert owner.user is not None
        self._run, self._owner = run, owner.user
        known = tokens.visible(by=owner.user).filter(user=owner.user).first()
        self._token = known or tokens.make(by=owner.user, name="of the matrix", role=owner.kind).token
        self._by_page = {
            "experiment": run.experiment_id,
            "experiment_ask": run.experiment_id,
            **dict.fromkeys(("experiment_clone", "experiment_yaml"), run.experiment_id),
            "experiment_export": run.experiment_id,
            "compare_arms": run.experiment_id,
            "task": run.task_id,
            **dict.fromkeys(IMPORT_PAGES, Import.objects.get().pk),
            **dict.fromkeys(HARNESS_PAGES, run.arm.harness_version_id),
            **dict.fromkeys(MODEL_PAGES, run.arm.model_id),
            **dict.fromkeys(ENDPOINT_PAGES, run.arm.model.endpoint_id),
            **dict.fromkeys(JUDGE_PAGES, self._reading()),
            **dict.fromkeys(QUEUE_PAGES, labelling.queue(run).pk),
            **dict.fromkeys(LABEL_PAGES, self._label()),
            **dict.fromkeys(("taxonomy", "taxonomy_edit"), taxonomies.newest("coding").pk),
        }

    def _label(self) -> int:
        """A draft of the person, where they may have one, else what somebody submitted."""
        if not access.holds(self._owner, Role.ANNOTATOR):
            return labelling.submitted(builders.person(Role.ANNOTATOR), self._run).pk
        return labelling.draft(self._owner, self._run).pk

    def _reading(self) -> int:
        """A reading of the run by a judge that waits for its worker."""
        found, _ = JudgeRun.objects.get_or_create(
            run=self._run,
            model=self._run.arm.model,
            defaults={"asked_by": self._owner, "rubric": {"name": "x"}, "rubric_digest": "x"},
        )
        return found.pk

    def of(self, page: Page) -> str:
        address = page.route
        for name in page.parameters:
            for converter in ("<int:", "<str:", "<"):
                address = address.replace(f"{converter}{name}>", str(self._value(page, name)))
        assert "<" not in address, f"{page.name}: say what its parameters {page.parameters} are in Addresses"
        return f"/{address}"

    def _value(self, page: Page, name: str) -> Any:
        known = {
            "pk": self._by_page.get(page.name),
            "run_id": self._run.pk,
            "model_id": self._run.arm.model_id,
            "arm_id": self._run.arm_id,
            "card_id": PriceCard.objects.get().pk,
            "seq": Event.objects.filter(run=self._run, kind="tool_call_finished").first().seq,
            "test_id": TestResult.objects.exclude(log="").get().pk,
            "person_id": self._owner.pk,
            "token_id": self._token.pk,
            "token": "made-up",
            "table": "resolve-rate",
            "what": "budget",
        }
        return known[name] if known.get(name) is not None else f"<{name}>"


def client_of(visitor: Visitor) -> Client:
    client = Client(raise_request_exception=True)
    if visitor.user is not None:
        client.force_login(visitor.user)
    return client


def outcome(answer: HttpResponse, method: str = "GET") -> str:
    """ "sign in", "refused" or "let in"."""
    if answer.status_code == 401 or answer.headers.get("Location", "").startswith("/sign-in/?next="):
        return "sign in"
    if answer.status_code == 403 and method == "HEAD":
        return "refused"
    if answer.status_code == 403:
        text = answer.content.decode()
        return "refused" if "needs the role" in text or "do not belong to this lab" in text else "let in"
    return "let in"
