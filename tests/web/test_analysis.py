"""The page of an analysis: its numbers are those of the formulas, and each leads to exactly its runs."""

from __future__ import annotations

import copy
import csv
import html
import io
import json
import re
import zipfile
from decimal import Decimal
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from lab.models import Call, Experiment, Flag, Model, Run, RunFacts, Task
from lab.services.analysis import Selection
from tests import builders
from tests.web import analysed
from tests.web.analysed import Analysed

pytestmark = pytest.mark.django_db


@pytest.fixture
def made(db: None) -> Analysed:
    return analysed.make()


def page_of(client: Client, address: str = "/analysis/") -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content.decode()[:2000]
    return answer.content.decode()


def table_of(client: Client, name: str, query: str = "") -> list[dict[str, str]]:
    answer = client.get(f"/analysis/{name}.csv?{query}")
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def runs_at(client: Client, address: str) -> set[int]:
    """All runs behind an address, page by page."""
    found: set[int] = set()
    for number in (1, 2, 3):
        text = page_of(client, f"{address}&page={number}")
        found |= analysed.listed(text)
        if 'rel="next"' not in text:
            break
    return found


def plots_of(page: str) -> dict[str, Any]:
    """The descriptions of its plots by their keys."""
    found = re.findall(r'<script id="description-([a-z0-9-]+)" type="application/json">(.*?)</script>', page)
    return {name: json.loads(html.unescape(body)) for name, body in found}


def close(text: str, expected: float) -> bool:
    return float(text) == pytest.approx(expected, abs=5e-7)


def test_rates_intervals_and_envelopes_are_those_of_the_formulas(viewer: Client, made: Analysed) -> None:
    first, second = table_of(viewer, "resolve-rate")
    assert close(first["resolve_rate"], 0.5)
    assert close(second["resolve_rate"], 0.375)
    # Student's t with 19 degrees of freedom on the standard error 0.094242.
    assert close(first["rate_low"], 0.302749)
    assert close(first["rate_high"], 0.697251)
    assert (first["resolved"], first["runs"], first["k"]) == ("40", "80", "4")
    assert close(first["pass_at_k"], 0.7)
    assert close(first["pass_hat_k"], 0.3)
    assert close(second["pass_at_k"], 0.6)
    assert close(second["pass_hat_k"], 0.15)
    line = table_of(viewer, "resolve-rate-sensitivity")[0]
    assert close(line["standard_error"], 0.094242)
    assert close(line["clustered_error"], 0.141145)
    assert line["clusters"] == "5"
    assert close(line["variance_between"], 0.150548)
    assert close(line["variance_within"], 0.108333)
    assert close(line["intraclass_correlation"], 0.581533)


def test_a_task_with_fewer_runs_leaves_pass_at_the_number_that_the_others_have(
    viewer: Client, made: Analysed
) -> None:
    gone = [made.runs["A", 0, seed] for seed in (1, 2, 3)]
    RunFacts.objects.filter(run__in=gone).delete()
    Run.objects.filter(pk__in=gone).delete()
    text = page_of(viewer)
    assert "pass@4" in text
    assert "1 of 20 tasks have fewer than 4 runs that count" in text


def test_the_paired_comparison_is_that_of_the_formulas_in_file_and_sentence(
    viewer: Client, made: Analysed
) -> None:
    (pair,) = table_of(viewer, "pairs")
    assert close(pair["difference"], 0.125)
    assert close(pair["difference_low"], 0.028218)
    assert close(pair["difference_high"], 0.221782)
    assert close(pair["p"], 0.014089)
    assert float(pair["minimum_detectable_difference"]) == pytest.approx(0.136574, abs=5e-6)
    text = page_of(viewer)
    for words in (
        "+12.5 points",
        "95 % interval +2.8 to +22.2",
        "p = 0.014",
        "Differences under 13.7 points",
        "power of the paired t test, by the noncentral t distribution",
    ):
        assert words in text
    assert "Over 5 repositories, as a sensitivity check: p = 0.047" in text


def test_cost_per_resolved_is_all_spend_over_what_was_resolved(viewer: Client, made: Analysed) -> None:
    first, second = table_of(viewer, "cost-per-resolved")
    assert close(first["cost_per_resolved"], 80 * 0.25 / 40)
    assert close(second["cost_per_resolved"], 80 * 0.25 / 30)
    assert (first["basis"], first["at_least"]) == ("price table", "False")
    spend = table_of(viewer, "spend")[0]
    assert (float(spend["resolved"]), float(spend["failed"]), float(spend["whole"])) == (10.0, 10.0, 20.0)


def test_reported_costs_are_a_switch_away_where_a_provider_reported_any(
    viewer: Client, made: Analysed
) -> None:
    assert "as providers reported" not in page_of(viewer)
    for number in made.of("A"):
        Call.objects.create(
            run_id=number,
            attempt=1,
            step=1,
            request=1,
            seq=2,
            state="finished",
            cost_reported=Decimal("0.125"),
            started_at=timezone.now(),
        )
    text = page_of(viewer)
    (address,) = re.findall(r'<a href="([^"]+)" data-switch="costs">as providers reported</a>', text)
    other = page_of(viewer, html.unescape(address))
    assert 'aria-current="true">as providers reported</a>' in other
    first, second = table_of(viewer, "cost-per-resolved", html.unescape(address).split("?")[1].split("#")[0])
    assert close(first["cost_per_resolved"], 80 * 0.125 / 40)
    assert (first["basis"], second["cost_per_resolved"]) == ("reported", "")


@pytest.mark.parametrize(("dollars", "why"), [(Decimal(0), "nothing was paid"), (None, "no cost is known")])
def test_where_nothing_was_paid_one_sentence_says_so_for_all_of_the_costs(
    viewer: Client, made: Analysed, dollars: Decimal | None, why: str
) -> None:
    RunFacts.objects.update(cost=dollars, cost_unknown=0 if dollars is not None else 10)
    text = page_of(viewer)
    costs = text[text.index('id="cost"') : text.index('id="tokens"')]
    assert costs.count("not-estimable") == 1
    assert 'id="title-dearest-failures"' not in costs or "table-dearest-failures" in costs
    assert f"No figure on cost is estimable here, because {why}." in costs
    assert costs.count("<table") >= 4
    assert "<table" not in re.sub(r"<details.*?</details>", "", costs, flags=re.DOTALL)
    assert len(table_of(viewer, "cost-per-resolved")) == 2


def test_the_page_shows_the_numbers_of_the_files(viewer: Client, made: Analysed) -> None:
    text = page_of(viewer)
    for words in ("50.0 %", "30.3 to 69.7 %", "40 of 80", "37.5 %", "30 of 80", "160 runs", "160 valid"):
        assert words in text
    assert "2 arms × 20 tasks × 4 seeds" in text


def test_what_has_numbers_takes_the_whole_row_and_methods_are_said_once(
    viewer: Client, made: Analysed
) -> None:
    text = page_of(viewer)
    panels = re.findall(r'<section class="panel([^"]*)" data-panel(.*?)</section>', text, re.DOTALL)
    assert len(panels) > 10
    narrow = [body for looks, body in panels if "wide-panel" not in looks]
    assert [body for body in narrow if "<table" in body or "data-plot" in body] == []
    (pair,) = table_of(viewer, "pairs")
    assert pair["method"] == "paired t test on task means"
    (head,) = re.findall(r'id="title-pairs">.*?</header>', text, re.DOTALL)
    assert "first minus second; paired t test on task means" in head
    assert ">method</th>" not in text
    tasks = text[text.index('id="table-tasks"') :]
    heads = re.findall(r'<th scope="col" class="number" title="([^"]+)">', tasks)
    assert len(heads) == 2
    assert heads[0] != heads[1]


def test_a_number_leads_to_exactly_its_runs(viewer: Client, made: Analysed) -> None:
    query = f"/analysis/runs/?experiment={made.experiment.pk}&arm={made.keys['A']}"
    assert query + "&outcome=resolved" in analysed.links_of(page_of(viewer))
    assert runs_at(viewer, query + "&outcome=resolved") == made.resolved("A")
    assert runs_at(viewer, query + "&outcome=counted") == made.of("A")
    assert runs_at(viewer, query + "&outcome=unresolved") == made.of("A") - made.resolved("A")
    assert runs_at(viewer, query + "&seed=1&outcome=resolved") == made.resolved("A") & {
        run for (_, _, seed), run in made.runs.items() if seed == 1
    }


def test_invalid_and_flagged_runs_are_apart_and_the_switches_move_them(
    viewer: Client, made: Analysed
) -> None:
    broken, flagged = made.runs["A", 0, 1], made.runs["B", 0, 1]
    Run.objects.filter(pk=broken).update(exit_reason="tool_error")
    RunFacts.objects.filter(run=broken).update(verdict="infrastructure")
    Flag.objects.create(run_id=flagged, code="leaked_calls", event_seq=1)
    text = page_of(viewer)
    assert "159 valid" in text
    assert "1 invalid, shown apart" in text
    assert "1 flagged" in text
    assert "39 of 79" in text
    as_failures = page_of(viewer, "/analysis/?invalid=failures")
    assert "39 of 80" in as_failures
    assert "1 invalid, counted as failures" in as_failures
    assert "29 of 79" in page_of(viewer, "/analysis/?flagged=out")
    assert runs_at(viewer, "/analysis/runs/?outcome=invalid") == {broken}
    assert runs_at(viewer, "/analysis/runs/?outcome=flagged") == {flagged}


def test_plots_name_colours_by_role_and_every_point_has_its_interval(viewer: Client, made: Analysed) -> None:
    plots = plots_of(page_of(viewer))
    assert {"resolve-rate", "cost-rate", "spend"} <= plots.keys()
    assert not re.search(r"#[0-9a-fA-F]{6}\b|rgba?\(", json.dumps(plots))
    for point in plots["resolve-rate"]["data"]:
        assert point["error_x"]["array"][0] > 0
        assert point["error_x"]["arrayminus"][0] > 0
    rate = plots["resolve-rate"]["data"][0]
    assert rate["x"] == [50.0]
    assert rate["marker"]["color"] == "@plot-1"
    assert plots["resolve-rate"]["layout"]["xaxis"]["range"] == [0, 100]


def test_stacked_bars_are_the_shares_of_the_table_where_tasks_have_unequal_runs(
    viewer: Client, made: Analysed
) -> None:
    of_first = Run.objects.filter(arm=made.arms["A"])
    of_first.exclude(task__slug="task-00").filter(seed__gt=1).delete()
    of_first.filter(task__slug="task-00").update(exit_reason="max_turns")
    first = table_of(viewer, "exit-reasons")[0]
    assert close(first["exit_max_turns"], 1 / 20)
    drawn = {trace["name"]: trace["x"][0] for trace in plots_of(page_of(viewer))["exit-reasons"]["data"]}
    assert drawn == {"agent": pytest.approx(95.0), "max turns": pytest.approx(5.0)}


def test_all_tables_come_in_one_file_and_say_their_selection(viewer: Client, made: Analysed) -> None:
    answer = viewer.get(f"/analysis/all.zip?experiment={made.experiment.pk}&flagged=out")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)) > 15
        rows = list(csv.DictReader(io.StringIO(archive.read("analysis/tasks.csv").decode())))
    assert len(rows) == 20
    assert rows[0]["selection"] == f"experiment={made.experiment.pk}&flagged=out"
    assert (rows[0]["resolved"], rows[0]["runs"]) == ("8", "8")


def test_the_list_of_tasks_is_narrowed_to_those_that_are_resolved_sometimes(
    viewer: Client, made: Analysed
) -> None:
    def tasks_in(text: str) -> list[str]:
        return re.findall(r">(task-\d\d)</a></th>", text)

    assert len(tasks_in(page_of(viewer))) == 20
    sometimes = [f"task-{place:02}" for place in (1, 2, 3, 5, 7, 8, 13, 14, 15, 16, 19)]
    assert tasks_in(page_of(viewer, "/analysis/?band=sometimes")) == sometimes


def test_tasks_that_one_arm_alone_resolves_are_a_short_list_that_leads_to_all(
    viewer: Client, made: Analysed
) -> None:
    places = [place for place in range(20) if place not in (0, 3, 4, 8)]
    RunFacts.objects.filter(run__in=[made.runs["A", place, 1] for place in places]).update(verdict="resolved")
    RunFacts.objects.filter(run__arm=made.arms["B"]).exclude(run__task__slug="task-00").update(
        verdict="unresolved"
    )
    long = f"instance_{'o' * 40}__middle__{'p' * 40}-the-end"
    Task.objects.filter(slug="task-01").update(slug=long)
    text = page_of(viewer)
    only = re.findall(r'<div class="only">(.*?)</div>', text, re.DOTALL)[0]
    number = int(re.findall(r"<b>(\d+) tasks only", only)[0])
    assert number > 10
    items = re.findall(r"<li>(.*?)</li>", only)
    assert len(items) == 11
    (named,) = [item for item in items if f'title="{long}"' in item]
    assert "-the-end</a>" in named
    assert f">{long}<" not in named
    assert f"all {number}" in items[-1]
    (address,) = re.findall(r'href="([^"]+)"', items[-1])
    assert len(runs_at(viewer, html.unescape(address))) == number * 2 * analysed.SEEDS


@pytest.mark.parametrize("name", ["unknown program (imported)", "harness not recorded (imported)", ""])
def test_arms_whose_harness_or_model_nobody_recorded_are_on_no_slope(
    viewer: Client, made: Analysed, name: str
) -> None:
    assert len(table_of(viewer, "one-harness")) == 1
    if name:
        harness = made.arms["A"].harness_version.harness
        type(harness).objects.filter(pk=harness.pk).update(name=name)
    else:
        model = made.arms["B"].model
        type(model).objects.filter(pk=model.pk).update(model_id="")
    assert "no harness ran with more than one model" in page_of(viewer)


def test_replies_in_which_no_call_was_understood_stand_beside_malformed_calls(
    viewer: Client, made: Analysed
) -> None:
    RunFacts.objects.filter(run__arm=made.arms["A"]).update(replies=10, format_errors=1)
    first, second = table_of(viewer, "calls")
    assert close(first["format_errors"], 0.1)
    assert (first["format_errors_count"], first["format_errors_of"]) == ("80.0", "800.0")
    assert second["format_errors"] == ""


def test_many_arms_are_held_against_one_that_the_reader_chooses(viewer: Client, made: Analysed) -> None:
    last = ""
    for letter in "CDEFGHIJKLM":
        model = Model.objects.create(
            endpoint=made.arms["A"].model.endpoint, name=f"m-{letter}", model_id=letter
        )
        arm = made.arms["A"]
        arm.pk, arm.letter, arm.model = None, letter, model
        arm.save(force_insert=True)
        last = f"{arm.harness_version_id}.{model.pk}.{arm.limits_digest[:12]}"
    text = page_of(viewer)
    assert "13 arms make 78 pairs: these are the 12 with A" in text
    assert "the reference arm, and Holm corrects for these alone" in text
    assert "All arms against A" in text
    assert "First, the reference of all arms" in text
    address = f"/analysis/?experiment={made.experiment.pk}&pair={last}&pair={made.keys['A']}"
    other = page_of(viewer, address)
    assert "these are the 12 with M m-M, the reference arm" in other
    assert "All arms against" not in page_of(viewer, f"{address}&arm={last}&arm={made.keys['A']}")


def test_the_usual_pair_shares_most_tasks_and_its_corrected_p_is_the_same_the_other_way_round(
    viewer: Client, made: Analysed
) -> None:
    arm = copy.copy(made.arms["A"])
    model = Model.objects.create(endpoint=arm.model.endpoint, name="m-C", model_id="C")
    arm.pk, arm.letter, arm.model = None, "C", model
    arm.save(force_insert=True)
    one = Run.objects.filter(arm=made.arms["A"]).order_by("pk").values_list("task", flat=True)[0]
    Run.objects.filter(arm=made.arms["A"]).exclude(task=one).update(arm=arm)
    key = f"{arm.harness_version_id}.{model.pk}.{arm.limits_digest[:12]}"
    assert "19 tasks tried by both" in page_of(viewer)
    corrected = set()
    for pair in ((made.keys["B"], key), (key, made.keys["B"])):
        address = f"experiment={made.experiment.pk}&pair={pair[0]}&pair={pair[1]}"
        rows = table_of(viewer, "pairs", address)
        assert len(rows) == 3
        corrected |= {row["p_holm"] for row in rows if row["tasks"] == "19"}
    assert len(corrected) == 1


def test_one_arm_alone_is_no_comparison_and_the_page_says_why(viewer: Client, made: Analysed) -> None:
    text = page_of(viewer, f"/analysis/?experiment={made.experiment.pk}&arm={made.keys['B']}")
    assert "Not estimable, because one arm alone has nothing to be held against." in text
    assert "40 of 80" not in text


def test_a_lab_without_runs_names_the_next_action(viewer: Client) -> None:
    text = page_of(viewer)
    assert "no run has ended yet" in text
    assert 'href="/">Launch runs' in text
    assert table_of(viewer, "resolve-rate") == []
    assert viewer.get("/analysis/all.zip").status_code == 200


def test_an_experiment_that_has_only_begun_is_preliminary_and_breaks_nothing(viewer: Client) -> None:
    run = builders.run(status=Run.Status.RUNNING)
    text = page_of(viewer, f"/analysis/?experiment={run.experiment_id}")
    assert "1 open, so all of this is preliminary" in text
    assert "Not estimable, because there is no task." in text
    assert viewer.get(f"/analysis/all.zip?experiment={run.experiment_id}").status_code == 200


@pytest.mark.parametrize("outcome", ["resolved", "unresolved", "infrastructure"])
def test_one_run_of_one_task_is_shown_with_what_cannot_be_said(viewer: Client, outcome: str) -> None:
    run = builders.run()
    builders.believable(run, outcome=outcome)
    text = page_of(viewer, f"/analysis/?experiment={run.experiment_id}")
    assert "Not estimable, because" in text
    for link in analysed.links_of(text):
        assert viewer.get(link).status_code == 200, link


def test_a_selection_that_cannot_be_read_is_told_with_the_way_out(viewer: Client, made: Analysed) -> None:
    answer = viewer.get("/analysis/?experiment=seven&seed=1")
    assert answer.status_code == 400
    assert "is not the number of an experiment" in html.unescape(answer.content.decode())
    assert viewer.get("/analysis/choose/?experiment=seven").status_code == 400
    assert viewer.get("/analysis/runs/?outcome=made-up").status_code == 400
    assert viewer.get("/analysis/runs/?figure=made-up").status_code == 400
    assert viewer.get("/analysis/runs/?effect=made-up").status_code == 400
    assert viewer.get("/analysis/resolve-rate.csv?seed=x").status_code == 400
    assert viewer.get("/analysis/no-such-table.csv").status_code == 404


def test_the_form_holds_the_selection_and_leads_to_its_analysis(viewer: Client, made: Analysed) -> None:
    address = f"/analysis/choose/?experiment={made.experiment.pk}&arm={made.keys['A']}&seed=2&flagged=out"
    text = page_of(viewer, address)
    for name, value in (
        ("experiment", str(made.experiment.pk)),
        ("arm", made.keys["A"]),
        ("seed", "2"),
        ("flagged", "out"),
    ):
        assert f'name="{name}" value="{value}" checked' in text
    assert f'value="{made.keys["B"]}" checked' not in text
    assert '<form method="get" action="/analysis/"' in text


def test_the_form_gives_back_all_that_it_was_given(viewer: Client, made: Analysed) -> None:
    a, b = made.keys["A"], made.keys["B"]
    query = (
        f"experiment={made.experiment.pk}&arm={a}&arm={b}&task=task-03&repository=repository-0&seed=2"
        f"&origin=launched&invalid=failures&flagged=out&stepped_in=in&costs=reported&pair={b}&pair={a}"
    )
    text = page_of(viewer, f"/analysis/choose/?{query}")
    sent = re.findall(r'<input type="(?:checkbox|radio)" name="(\w+)" value="([^"]*)" checked', text)
    for side in re.findall(r'<select class="control" name="pair">(.*?)</select>', text, re.DOTALL):
        sent += [("pair", value) for value in re.findall(r'value="([^"]*)" selected', side)]
    given: dict[str, list[str]] = {}
    for name, value in sent:
        given.setdefault(name, []).append(value)
    assert Selection.from_query(given) == Selection.from_query(QueryDict(query))
    assert len(given) == 11


def test_a_pair_outside_the_chosen_arms_is_refused(viewer: Client, made: Analysed) -> None:
    a, b = made.keys["A"], made.keys["B"]
    answer = viewer.get(f"/analysis/?experiment={made.experiment.pk}&arm={a}&pair={a}&pair={b}")
    assert answer.status_code == 400
    assert "is not among the arms of this selection" in html.unescape(answer.content.decode())


def test_tasks_that_inform_are_counted_among_those_with_several_runs(viewer: Client, made: Analysed) -> None:
    Run.objects.filter(seed__gt=1).delete()
    text = page_of(viewer)
    assert "tasks with two runs or more" in text
    assert "tasks tried</th>" not in text


def test_names_that_hold_markup_are_text(viewer: Client, made: Analysed) -> None:
    model = made.arms["A"].model
    model.name = "</script><script>alert(1)</script>"
    model.save(update_fields=["name"])
    text = page_of(viewer)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_what_imported_verdicts_without_a_request_cost_is_unknown_and_never_nothing(
    viewer: Client, made: Analysed
) -> None:
    Experiment.objects.update(kind=Experiment.Kind.IMPORTED)
    RunFacts.objects.update(calls=0, cost=None, cost_basis="unknown")
    query = f"experiment={made.experiment.pk}"
    text = page_of(viewer, f"/analysis/?{query}")
    assert "no request is recorded" in text
    assert "there was no request" not in text
    assert "$0.00" not in text
    first = table_of(viewer, "spend", query)[0]
    assert (first["whole"], first["whole_unknown_requests"], first["whole_unrecorded_runs"]) == ("", "", "80")
    assert (first["resolved"], first["failed"], first["invalid"]) == ("", "", "0.0")
    assert table_of(viewer, "tokens", query)[0]["requests"] == ""
    Experiment.objects.update(kind=Experiment.Kind.LAUNCHED)
    first = table_of(viewer, "spend", query)[0]
    assert (first["whole"], first["whole_unknown_requests"], first["whole_unrecorded_runs"]) == (
        "0.0",
        "0",
        "0",
    )


def test_runs_that_nobody_graded_are_no_failures_and_show_what_they_cost(
    viewer: Client, made: Analysed
) -> None:
    RunFacts.objects.update(verdict="")
    text = page_of(viewer)
    assert "0 valid" in text
    assert "160 not graded" in text
    assert "none of its runs was graded" in text
    assert "no run was graded" in text
    for wrong in ("invalid, shown apart", "nothing was paid", "no run has a known cost", "no run failed"):
        assert wrong not in text
    first = table_of(viewer, "resolve-rate", "invalid=failures")[0]
    assert (first["resolve_rate"], first["rate_invalid_as_failures"]) == ("", "")
    spent = table_of(viewer, "spend")[0]
    assert (spent["not_graded"], spent["invalid"], spent["whole"]) == ("20.0", "0.0", "20.0")
    assert close(table_of(viewer, "cost-rate")[0]["mean_cost"], 0.25)
    assert runs_at(viewer, "/analysis/runs/?outcome=not_graded") == made.of("A") | made.of("B")
