from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from lab.engine.events import RunEnded
from lab.models import Control, Event, Preflight, Role, Run, RunFacts
from lab.services import records, tokens
from lab.services.runs import consent_without_isolation
from tests import builders

pytestmark = pytest.mark.django_db


def api(role: Role = Role.OPERATOR) -> Client:
    """A program with a token of this role."""
    secret = tokens.make(by=builders.person(role), name="program", role=role).secret
    return Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {secret}"})


def problems(answer: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer.json()["errors"]
    assert all(set(one) == {"field", "value", "message"} for one in found)
    return found


def ask(client: Client, run: Run, body: dict[str, Any]) -> Any:
    return client.post(f"/api/v1/runs/{run.pk}/controls", body, content_type="application/json")


def test_a_run_tells_its_status_verdict_limits_and_sums() -> None:
    run = builders.run()
    builders.believable(run, outcome="resolved")
    told = api(Role.VIEWER).get(f"/api/v1/runs/{run.pk}").json()
    run.refresh_from_db()
    facts = RunFacts.objects.get(run=run)
    assert (told["id"], told["status"]) == (run.pk, "ended")
    assert (told["verdict"], told["exit_reason"]) == ("resolved", "agent")
    assert (told["task"], told["model"], told["seed"]) == ("dst-schedule", run.arm.model.name, 1)
    assert told["limits"]["max_steps"] == 150
    assert told["limits"]["max_tokens_total"] is None
    assert told["last_seq"] == run.last_seq
    assert told["facts"]["steps"] == facts.steps == 7
    assert float(told["facts"]["cost"]) == float(facts.cost or 0)
    assert told["facts"]["fail_to_pass_total"] == facts.fail_to_pass_total


def test_what_is_unknown_is_null_and_never_0() -> None:
    told = api(Role.VIEWER).get(f"/api/v1/runs/{builders.run().pk}").json()
    assert {told["facts"][name] for name in ("cost", "input_total", "agent_seconds")} == {None}
    assert (told["status"], told["verdict"], told["ended_at"]) == ("queued", "", None)


def test_the_log_is_read_in_parts_every_record_once_and_in_order() -> None:
    run = builders.run()
    last = builders.believable(run)
    client, seen, after = api(), [], 0
    while True:
        part = client.get(f"/api/v1/runs/{run.pk}/events?after={after}&limit=7").json()
        seen += part["events"]
        assert part["last_seq"] == last
        if not part["events"]:
            break
        after = part["events"][-1]["seq"]
    assert [record["seq"] for record in seen] == list(range(1, last + 1))
    assert set(seen[0]) >= {"seq", "attempt", "at", "schema_version", "kind"}
    assert [record["kind"] for record in seen] == list(
        Event.objects.filter(run=run).order_by("seq").values_list("kind", flat=True)
    )


def test_a_long_text_comes_whole_and_a_long_answer_ends_between_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = builders.run()
    builders.start(run)
    for step in range(1, 4):
        builders.append(run, *builders.bash_step(step, "cat", f"{step}" * 20_000))
    monkeypatch.setattr(records, "ANSWER_CHARACTERS", 60_000)
    client, seen, after, parts = api(), [], 0, 0
    while part := client.get(f"/api/v1/runs/{run.pk}/events?after={after}").json()["events"]:
        seen += part
        after, parts = part[-1]["seq"], parts + 1
    assert parts > 1
    assert [record["seq"] for record in seen] == list(range(1, 15))
    outputs = [record["stdout"]["text"] for record in seen if record["kind"] == "tool_call_finished"]
    assert outputs == [f"{step}" * 20_000 for step in range(1, 4)]


def test_text_that_looks_like_a_key_is_masked() -> None:
    run = builders.run()
    builders.start(run)
    key = "sk-ant-" + "a1B2" * 12
    builders.append(run, *builders.bash_step(1, f"curl -H 'x-api-key: {key}'", f"KEY={key}\n" + "x" * 9000))
    text = api().get(f"/api/v1/runs/{run.pk}/events").content.decode()
    assert key not in text
    assert "[masked, looks like an Anthropic key]" in text


@pytest.mark.parametrize(
    ("query", "field", "value"),
    [
        ("after=-1", "after", "-1"),
        ("after=x", "after", "x"),
        ("limit=0", "limit", "0"),
        ("limit=501", "limit", "501"),
        ("limit=" + "9" * 5000, "limit", "9" * 200 + "…"),
    ],
)
def test_a_bad_value_is_named_with_what_would_do(query: str, field: str, value: str) -> None:
    answer = api().get(f"/api/v1/runs/{builders.run().pk}/events?{query}")
    assert answer.status_code == 422
    (problem,) = problems(answer)
    assert (problem["field"], problem["value"]) == (field, value)
    assert problem["message"].startswith(f"{field}: ")
    assert "“" not in problem["message"]


def test_an_absent_run_is_named() -> None:
    client = api()
    for number in ("987654321", "9" * 30):
        for path in ("", "/events"):
            answer = client.get(f"/api/v1/runs/{number}{path}")
            assert answer.status_code == 404
            assert problems(answer)[0]["message"] == f"There is no run {number}."
    assert client.get("/api/v1/runs/x").status_code == 422


def test_a_run_is_paused_and_resumed_under_the_persons_name() -> None:
    run, client = builders.run(), api()
    for control in ("pause", "resume"):
        answer = ask(client, run, {"control": control})
        assert answer.status_code == 202, answer.content
        assert answer.json()["run"] == run.pk
        assert answer.json()["new"] is True
    asked = Control.objects.order_by("pk").values_list("kind", "asked_by__username")
    assert [kind for kind, _ in asked] == ["pause", "resume"]
    assert all(name.startswith("operator-") for _, name in asked)


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        ({"control": "explode"}, "control", "explode"),
        ({}, "control", None),
        ({"control": "limit", "value": {"limit": "max_steps", "after": "many"}}, "max_steps", "many"),
        ({"control": "limit", "value": {"limit": "max_steps", "after": 0.5}}, "max_steps", 0.5),
        ({"control": "limit", "value": {"limit": "max_fun", "after": "3"}}, "limit", "max_fun"),
        ({"control": "message", "value": "x" * 1_000_000}, "message", "x" * 200 + "…"),
        ({"control": "half \ud800"}, "control", "half \ud800"),
    ],
)
def test_a_control_that_cannot_be_is_named_and_changes_nothing(
    body: dict[str, Any], field: str, value: Any
) -> None:
    run = builders.run()
    builders.start(run)
    answer = ask(api(), run, body)
    assert answer.status_code == 422
    (problem,) = problems(answer)
    assert (problem["field"], problem["value"]) == (field, value)
    assert not Control.objects.exists()


@pytest.mark.parametrize("after", [40, "40"])
def test_a_limit_is_asked_for_as_a_number_or_as_it_would_be_typed(after: int | str) -> None:
    run = builders.run()
    builders.start(run)
    answer = ask(api(), run, {"control": "limit", "value": {"limit": "max_steps", "after": after}})
    assert answer.status_code == 202, answer.content
    assert Control.objects.get().value == {"limit": "max_steps", "after": 40}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"x"', b"null"])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    run = builders.run()
    answer = api().generic("POST", f"/api/v1/runs/{run.pk}/controls", body, content_type="application/json")
    assert answer.status_code in (400, 422)
    assert problems(answer)


def test_a_control_for_a_finished_run_says_why_not() -> None:
    run = builders.run()
    builders.believable(run)
    answer = ask(api(), run, {"control": "pause"})
    assert answer.status_code == 422
    assert "ended" in problems(answer)[0]["message"]


def test_running_again_despite_a_failing_preflight_names_it() -> None:
    consent_without_isolation(by=builders.person(Role.ADMIN))
    run = builders.run()
    builders.append(run, RunEnded(exit_reason="agent"))
    failing = Preflight.objects.create(model=run.arm.model, state="ended", outcome="failing")
    client = api()
    (problem,) = problems(ask(client, run, {"control": "again"}))
    assert problem["field"] == "despite"
    assert f"launch despite {failing.pk}" in problem["message"]
    body = {"control": "again", "value": {"despite": [failing.pk]}}
    assert ask(client, run, body).json()["new"] is True
    assert Run.objects.count() == 2


def test_another_method_is_refused() -> None:
    run = builders.run()
    assert api().post(f"/api/v1/runs/{run.pk}", {}, content_type="application/json").status_code == 405
    assert api().delete(f"/api/v1/runs/{run.pk}/controls").status_code == 405


def test_the_description_of_the_api_is_for_everybody_and_names_each_operation() -> None:
    told = Client().get("/api/v1/openapi.json").json()
    assert told["info"]["title"] == "Trajectory Lab"
    assert set(told["paths"]) == {
        "/api/v1/runs/{run_id}",
        "/api/v1/runs/{run_id}/events",
        "/api/v1/runs/{run_id}/controls",
    }
    for path in told["paths"].values():
        for operation in path.values():
            assert operation["security"], operation
            assert operation["summary"]


def test_every_answer_carries_the_content_security_policy() -> None:
    for path in ("openapi.json", f"runs/{builders.run().pk}"):
        assert "default-src 'self'" in api().get(f"/api/v1/{path}").headers["Content-Security-Policy"]


def test_a_run_is_found_for_the_whole_team() -> None:
    run = builders.run()
    assert Run.objects.filter(pk=run.pk).exists()
    for role in Role:
        assert api(role).get(f"/api/v1/runs/{run.pk}").status_code == 200


def test_errors_are_json() -> None:
    answer = Client().get("/api/v1/runs/1")
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(answer.content)["errors"][0]["field"] == "Authorization"
    assert re.search("tlab_", answer.content.decode())
