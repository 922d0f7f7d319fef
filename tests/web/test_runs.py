"""The page of one run over HTTP."""

from __future__ import annotations

import html
import re
from decimal import Decimal

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from lab.engine.events import AttemptEnded, Event, HistoryRewritten, RunEnded
from lab.engine.limits import Limits
from lab.engine.llm.base import Cost, Usage
from lab.engine.verify.base import TestStatus
from lab.models import Role, Run
from tests import builders

pytestmark = pytest.mark.django_db
_TAG = re.compile(r"<[^>]*>")
_ITEM = re.compile(r'<li class="(?:step|moment)[^"]*" id="event-(\d+)" data-seqs="([\d,]+)"')


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(builders.person(Role.VIEWER))
    return client


def page(client: Client, run: Run, query: str = "") -> str:
    response = client.get(f"/runs/{run.pk}/{query}")
    assert response.status_code == 200
    return response.content.decode()


def words(markup: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", markup)).split())


def seqs(markup: str) -> list[int]:
    return [int(seq) for _, listed in _ITEM.findall(markup) for seq in listed.split(",")]


def long_run(steps: int, *, output: str = "ok\n", ended: bool = False) -> Run:
    run = builders.run()
    builders.start(run)
    events = [event for step in range(1, steps + 1) for event in builders.bash_step(step, "cat x", output)]
    builders.append(run, *events, *(builders.ending(steps=steps) if ended else []))
    run.refresh_from_db()
    return run


def test_nobody_sees_a_run_without_signing_in(client: Client) -> None:
    run = builders.run()
    for path in ("", "steps", "map", "patch", "tests", "events/1/body", "events/1/raw"):
        response = client.get(f"/runs/{run.pk}/{path}")
        assert response.status_code == 302
        assert response.headers["Location"].startswith("/sign-in/")


def test_a_script_that_is_signed_out_is_told_so_and_gets_no_sign_in_page(client: Client) -> None:
    run = builders.run()
    for headers in ({"HX-Request": "true"}, {"X-Requested-With": "fetch"}):
        response = client.get(f"/runs/{run.pk}/steps", headers=headers)
        assert response.status_code == 401
        assert response.content == b"Sign in again."


def test_an_unknown_run_event_or_part_is_not_found(viewer: Client) -> None:
    run = builders.run()
    builders.believable(run)
    for path in (
        "/runs/999999/",
        f"/runs/{run.pk}/events/9999/body",
        f"/runs/{run.pk}/events/1/raw?part=nothing",
    ):
        assert viewer.get(path).status_code == 404
    assert viewer.get(f"/runs/{run.pk}/events/1/body?part=messages.9.content").status_code == 404


def test_a_queued_run_says_what_will_appear(viewer: Client) -> None:
    text = words(page(viewer, builders.run()))
    assert "No event yet: the run is queued." in text
    assert "3 tests must start to pass" in text


def test_a_running_run_shows_what_is_used_so_far(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    builders.append(
        run,
        *builders.bash_step(1, "ls", "a\n"),
        builders.asked(2),
        builders.failed_request(2),
        builders.asked(2, request=2),
        builders.answered(2, ("Bash", "{}"), request=2),
        builders.called(2, "Bash", {"command": "python -m pytest -q"}),
    )
    text = words(page(viewer, run))
    assert "Bash is running" in text
    assert "2 of 150" in text
    assert "2,518 of 131,072" in text
    assert "at least $0.01 of $2.00" in text
    assert "1 failed request unknown unknown" in text
    assert "Total, at least 4,936 $0.0116" in text
    assert "Usage reported for 2 of 3 requests." in text
    assert "sandbox bubblewrap, isolated, no network" in text


def test_a_context_that_no_server_counted_is_marked_as_estimated(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    counted = builders.answered(1, ("Bash", "{}"))
    reply = counted.reply.model_copy(update={"usage": Usage()})
    estimated = {"reply": reply, "context_tokens": 728, "context_tokens_estimated": True}
    builders.append(run, builders.asked(1), counted.model_copy(update=estimated))
    assert "Context ≈ 728 estimated of 131,072" in words(page(viewer, run))
    builders.append(run, builders.asked(2), builders.answered(2, ("Bash", "{}")))
    assert "Context 2,518 of 131,072" in words(page(viewer, run))


def test_a_finished_run_shows_verdict_failing_tests_and_exit_reason_apart(viewer: Client) -> None:
    run = builders.run()
    builders.believable(run)
    markup = page(viewer, run)
    text = words(markup)
    assert "unresolved dst-schedule" in text
    assert "exit reason agent" in text
    assert "F2P 1 of 2 passed P2P 3 of 3 passed" in text
    assert "failed F2P tests/test_dst.py::test_spring assert 3 == 2 log" in text
    assert text.index("Verdict") < text.index("Attempt 1")
    assert "Cancel run" not in text


def test_every_event_is_on_the_page_once(viewer: Client) -> None:
    run = builders.run()
    last = builders.believable(run)
    assert sorted(seqs(page(viewer, run))) == list(range(1, last + 1))


def test_a_run_without_a_grading_is_not_graded(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    builders.append(run, *builders.ending()[-2:-1], builders.RunEnded(exit_reason="infrastructure_error"))
    text = words(page(viewer, run))
    assert "Not graded: the exit reason is infrastructure_error, which says nothing about the model." in text
    assert text.startswith("dst-schedule · infrastructure")


def test_a_scripted_model_is_labelled_and_free(viewer: Client) -> None:
    run = builders.run(scripted=True)
    text = words(page(viewer, run))
    assert "scripted, no intelligence" in text
    assert "$0, scripted" in text


def test_a_live_run_opens_at_its_end_and_a_finished_one_at_its_start(viewer: Client) -> None:
    live = page(viewer, long_run(120))
    assert max(seqs(live)) == 482
    assert len(seqs(live)) == 200
    assert 'id="more-before"' in live
    assert 'id="more-after"' not in live
    finished = page(viewer, long_run(120, ended=True))
    assert min(seqs(finished)) == 1
    assert 'id="more-after"' in finished


def test_a_permalink_opens_around_its_step(viewer: Client) -> None:
    run = long_run(300)
    markup = page(viewer, run, "?at=600")
    assert 600 in seqs(markup)
    assert 'id="more-before"' in markup
    assert 'id="more-after"' in markup


@pytest.mark.parametrize("direction", ["before", "after"])
def test_a_run_of_5000_events_is_read_in_windows_without_gap_or_repeat(
    viewer: Client, direction: str
) -> None:
    run = long_run(1_250)
    assert run.last_seq == 5_002
    at = 0 if direction == "after" else 5_003
    found: list[int] = []
    for _ in range(60):
        markup = viewer.get(f"/runs/{run.pk}/steps?{direction}={at}").content.decode()
        part = seqs(markup)
        assert len(part) <= 400
        found = found + part if direction == "after" else part + found
        if f'id="more-{direction}"' not in markup:
            break
        at = part[-1] if direction == "after" else part[0]
    assert found == list(range(1, 5_003))


def test_the_page_costs_the_same_however_long_the_run_is(viewer: Client) -> None:
    counts = []
    for steps in (60, 600):
        run = long_run(steps, output="line of output\n" * 2_000)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            markup = page(viewer, run)
        counts.append(len(queries))
        assert len(markup.encode()) < 300_000
    assert counts[1] <= counts[0]
    assert counts[0] <= 17


def test_a_long_body_is_fetched_whole_and_its_bytes_are_raw(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    output = "<script>alert(1)</script>\x1b[31mred\x1b[0m\x00\n" * 2_000
    builders.append(run, *builders.bash_step(1, "cat x", output))
    markup = viewer.get(f"/runs/{run.pk}/events/6/body?part=stdout").content.decode()
    assert "<script" not in markup
    assert markup.count("&lt;script&gt;") == 2_000
    raw = viewer.get(f"/runs/{run.pk}/events/6/raw?part=stdout")
    assert raw.content == output.encode()
    assert raw.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert raw.headers["X-Content-Type-Options"] == "nosniff"
    assert raw.headers["Content-Disposition"].startswith("attachment;")


def test_hostile_text_is_text_everywhere_on_the_page(viewer: Client) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b]52;c;x\x07\u202e"
    run = builders.run()
    run.task.title = run.task.statement = evil
    run.task.save()
    builders.start(run)
    builders.append(
        run,
        builders.asked(1),
        builders.answered(1, (evil, evil), content=evil, reasoning=evil),
        builders.called(1, evil, {"command": evil, evil: evil}),
        builders.printed(1, evil, stderr=evil, exit_code=1),
        *builders.final_step(2, evil),
    )
    markup = page(viewer, run)
    assert "<script>" not in markup
    assert "<img" not in markup
    assert "\x1b" not in markup
    steps = markup[markup.index('<ol class="steps"') :]
    assert "\u202e" not in steps


def test_a_body_that_is_gone_is_said_and_hides_nothing_else(viewer: Client) -> None:
    from lab.models import Blob
    from lab.services.blobs import path_of

    run = long_run(1, output="unique output of this test\n" * 1_000)
    for blob in Blob.objects.all():
        path_of(blob.sha256).unlink(missing_ok=True)
    markup = page(viewer, run)
    assert "[body missing]" in markup
    assert seqs(markup) == list(range(1, run.last_seq + 1))
    assert viewer.get(f"/runs/{run.pk}/events/6/body?part=stdout").status_code == 404


def test_the_patch_is_downloaded_and_shown(viewer: Client) -> None:
    run = builders.run()
    assert viewer.get(f"/runs/{run.pk}/patch").status_code == 404
    builders.believable(run)
    assert viewer.get(f"/runs/{run.pk}/patch").content.decode() == builders.PATCH
    assert 'class="line add"' in viewer.get(f"/runs/{run.pk}/patch?show=diff").content.decode()


def test_all_tests_are_listed_failed_first_with_their_logs(viewer: Client) -> None:
    run = builders.run()
    builders.believable(run)
    markup = viewer.get(f"/runs/{run.pk}/tests").content.decode()
    names = re.findall(r'title="([^"]+)"', markup)
    assert names[0] == "tests/test_dst.py::test_spring"
    assert len(names) == 5


def test_logs_of_hidden_tests_are_for_operators_and_admins(viewer: Client) -> None:
    run = builders.run()
    last = builders.believable(run)
    markup = viewer.get(f"/runs/{run.pk}/tests").content.decode()
    log = re.search(r'data-lazy="(/runs/tests/\d+/log)"', markup)
    assert log is not None
    grading = run.events.get(kind="verification_finished").seq
    assert grading < last
    paths = [log[1], *(f"/runs/{run.pk}/events/{grading}/{form}?part=log" for form in ("body", "raw"))]
    for path in paths:
        refused = viewer.get(path)
        assert refused.status_code == 403
        assert "needs the role operator" in refused.content.decode().lower()
    operator = Client()
    operator.force_login(builders.person(Role.OPERATOR))
    assert "assert 3 == 2" in operator.get(paths[0]).content.decode()
    whole = f'<a href="/runs/{run.pk}/events/{grading}/raw?part=log">Everything the test command printed</a>'
    assert whole in operator.get(f"/runs/{run.pk}/tests").content.decode()
    assert "Everything the test command" not in markup
    assert [operator.get(path).status_code for path in paths] == [200, 200, 200]


def test_no_log_of_a_grading_is_in_what_every_viewer_gets(viewer: Client) -> None:
    run = builders.run()
    builders.believable(run)
    markup = page(viewer, run) + viewer.get(f"/runs/{run.pk}/tests").content.decode()
    assert "assert 3 == 2" in markup
    assert "hidden source" in builders.FAILED_LOG
    assert "hidden source" not in markup


def test_the_minimap_names_each_step_and_what_failed(viewer: Client) -> None:
    run = builders.run()
    builders.believable(run)
    markup = viewer.get(f"/runs/{run.pk}/map").content.decode()
    assert re.findall(r'data-kind="(\w+)"', markup) == [
        "read",
        "test",
        "shell",
        "edit",
        "test",
        "edit",
        "final",
    ]
    assert markup.count("failed-test") == 1


def test_a_viewer_may_not_cancel(viewer: Client) -> None:
    run = builders.run()
    assert "Cancel run" not in page(viewer, run)
    assert viewer.post(f"/runs/{run.pk}/cancel").status_code == 403
    assert Run.objects.get(pk=run.pk).status == "queued"


def test_an_operator_cancels_by_form_or_by_script(client: Client) -> None:
    client.force_login(builders.person(Role.OPERATOR))
    run = builders.run()
    assert "Cancel run" in page(client, run)
    response = client.post(f"/runs/{run.pk}/cancel")
    assert response.headers["Location"] == f"/runs/{run.pk}/"
    assert "exit reason cancelled" in words(page(client, run))
    other = builders.run()
    response = client.post(f"/runs/{other.pk}/cancel", headers={"X-Requested-With": "fetch"})
    assert (response.status_code, response.content.decode()) == (200, f"Run {other.pk} is cancelled.")
    assert client.get(f"/runs/{other.pk}/cancel").status_code == 405


def test_earlier_attempts_fold_above_the_last_one(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    builders.append(
        run,
        *builders.bash_step(1, "ls", "a\n"),
        builders.AttemptEnded(exit_reason="infrastructure_error", steps=1, wall_seconds=3.0, retryable=True),
    )
    run.attempts.create(n=2)
    builders.append(run, *builders.opening(), *builders.final_step(1), *builders.ending(steps=1), attempt=2)
    markup = page(viewer, run)
    assert "Attempt 1 ended: infrastructure_error show it" in words(markup)
    assert min(seqs(markup)) == 8
    assert 'href="?at=1"' in markup
    assert 'id="part-earlier" data-start="8"' in markup
    assert "1 step in attempt 2" in words(markup)


def test_a_row_says_what_a_run_waits_for_and_how_it_ended(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    builders.append(
        run,
        builders.asked(1),
        builders.answered(1, ("Bash", "{}")),
        builders.called(1, "Bash", {"command": "make"}),
    )
    done = builders.another_run(run, seed=2)
    builders.believable(done, outcome="resolved")
    markup = viewer.get(f"/experiments/{run.experiment_id}/?as=list").content.decode()
    text = words(markup)
    assert "running dst-schedule , seed 1 make" in text
    assert "step 1 of 150" in text
    assert re.search(r"resolved dst-schedule , seed 2 .*F2P 2 of 2 7 steps", text)
    assert f'id="run-{run.pk}"' in markup


def test_a_row_says_that_something_broke_and_what_stopped_a_run_that_nobody_failed(viewer: Client) -> None:
    broke = builders.run()
    builders.start(broke)
    tests = builders.graded("unresolved")
    tests[-1] = tests[-1].model_copy(update={"status": TestStatus.FAILED})
    ending = builders.ending()
    ending[2] = ending[2].model_copy(update={"tests": tests})
    builders.append(broke, *ending)
    stopped = builders.another_run(broke, seed=2)
    builders.start(stopped)
    builders.append(stopped, *_broken_ending("the image lab/<b>none cannot be had"))
    whole = builders.another_run(broke, seed=3)
    builders.believable(whole)
    markup = viewer.get(f"/experiments/{broke.experiment_id}/?as=list").content.decode()
    text = words(markup)
    assert re.search(r"unresolved dst-schedule , seed 1 .*?F2P 1 of 2 P2P 2 of 3 9 steps", text)
    assert re.search(r"infrastructure dst-schedule , seed 2 .*?the image lab/<b>none cannot be had", text)
    assert re.search(r"unresolved dst-schedule , seed 3 [^,]*?F2P 1 of 2 7 steps", text)
    assert "<b>none" not in markup


def test_the_page_of_a_run_that_nobody_failed_says_what_happened_with_the_verdict(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    builders.append(run, *_broken_ending("the image lab/none cannot be had"))
    run.refresh_from_db()
    said = "which says nothing about the model. What happened: the image lab/none cannot be had"
    assert said in words(page(viewer, run))


def _broken_ending(error: str) -> list[Event]:
    reason = "infrastructure_error"
    return [
        AttemptEnded(exit_reason=reason, error=error, steps=0, wall_seconds=1.0),
        RunEnded(exit_reason=reason),
    ]


def test_tokens_reported_by_every_request_are_the_total_although_no_price_is_known(viewer: Client) -> None:
    run = builders.run(limits=Limits(max_steps=150, max_cost_usd=Decimal("0.01")))
    builders.start(run)
    unpriced = Cost(amount=None, basis="unknown")
    builders.append(run, builders.asked(1), builders.answered(1, ("Bash", "{}"), cost=unpriced))
    text = words(page(viewer, run))
    assert "unknown, so the limit of $0.01 cannot be checked" in text
    assert "Total 2,418 unknown" in text
    assert "total 2,418 tokens, unknown" in text


def test_tokens_of_which_a_request_told_nothing_are_at_least_what_is_known(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    builders.append(
        run,
        *builders.bash_step(1, "ls", "a\n"),
        builders.asked(2),
        builders.failed_request(2),
    )
    assert "Total, at least 2,418 $0.0058" in words(page(viewer, run))


def test_before_the_first_answer_nothing_is_spent_yet_wherever_it_is_said(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    builders.append(run, builders.asked(1))
    text = words(page(viewer, run))
    assert "Cost nothing yet of $2.00" in text
    assert "Tokens and cost so far nothing spent yet" in text
    assert "Nothing spent yet: no request has been answered." in text
    assert "Total" not in text


def test_of_thousands_of_changed_files_the_first_are_listed_and_the_rest_counted(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    files = [
        builders.FileChange(path=f"made/{number}.txt", change="added", added=1) for number in range(3_000)
    ]
    patch, *rest = builders.ending(steps=1)
    assert isinstance(patch, builders.PatchCaptured)
    builders.append(run, *builders.final_step(1), patch.model_copy(update={"files": files}), *rest)
    markup = page(viewer, run)
    text = words(markup)
    assert "3,000 files, +3,000 −0" in text
    assert "made/19.txt" in text
    assert "made/20.txt" not in text
    assert "2,980 more in the patch" in text
    assert len(markup) < 100_000


def test_the_raw_reply_and_a_call_that_was_not_executed_can_be_read_whole(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    long = "x" * 9_000
    builders.append(
        run, *builders.unread_step(1, "I look.\n<function=ls>", ("bash", f'{{"command": "{long}'), drops=True)
    )
    text = page(viewer, run)
    assert f"/runs/{run.pk}/events/4/body?part=tool_calls.0.arguments" in text
    whole = viewer.get(f"/runs/{run.pk}/events/4/body?part=tool_calls.0.arguments").content.decode()
    assert whole.count("x" * 9_000) == 1
    reply = viewer.get(f"/runs/{run.pk}/events/4/body?part=reply").content.decode()
    assert "&lt;function=ls&gt;" in reply
    assert viewer.get(f"/runs/{run.pk}/events/4/body?part=tool_calls.1.arguments").status_code == 404


def test_page_and_minimap_tell_the_same_of_every_step(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    review, handed_in = builders.told(4, "Look again."), builders.told(5, "Submitted.")
    builders.append(
        run,
        HistoryRewritten(step=1, reason="condensed", replaced={}),
        *builders.bash_step(1, "ls", "a\n"),
        *builders.unread_step(2, "I look."),
        builders.asked(3),
        builders.answered(3, ("execute_bash", "{}")),
        builders.called(3, "execute_bash", {"cmd": "python -m pytest -q"}),
        builders.printed(3, "1 failed\n", exit_code=1),
        *[
            builders.asked(4),
            builders.answered(4, ("submit", "{}")),
            builders.called(4, "submit", {}),
            review,
        ],
        *[builders.asked(5), builders.answered(5, ("submit", "{}")), builders.called(5, "submit", {})],
        handed_in.model_copy(update={"submitted": True}),
    )
    markup = viewer.get(f"/runs/{run.pk}/map").content.decode()
    found = re.findall(r'id="map-event-(\d+)" data-kind="(\w+)".*?#([\w-]+)"', markup)
    item = r'class="step" id="event-(\d+)" [^>]*data-kind="(\w+)" data-icon="([\w-]+)"'
    steps = re.findall(item, page(viewer, run))
    assert [kind for _, kind, _ in found] == ["read", "shell", "test", "read", "final"]
    assert found == steps
    assert markup.count("failed-test") == 1


def test_a_run_says_when_its_replies_hold_another_kind_of_calls_than_its_harness_takes(
    viewer: Client,
) -> None:
    run = builders.run()
    builders.start(run)
    builders.append(run, *builders.unread_step(1, "<tool_call>{}</tool_call>", form="markup"))
    text = words(page(viewer, run))
    assert "1 of 1 reply holds what looks like markup; this harness takes native calls only" in text
    assert "Format errors 1 of 1 reply" in text


def in_docker(**changes: object) -> Run:
    run = builders.run()
    run.attempts.create(n=1)
    Run.objects.filter(pk=run.pk).update(status=Run.Status.PREPARING)
    builders.append(run, builders.opening()[0], builders.in_docker(**changes))
    return run


def test_what_a_run_was_in_stands_on_its_page_with_a_hash_to_copy(viewer: Client) -> None:
    markup = page(viewer, in_docker())
    assert "sandbox docker, isolated, no network, image python:3.13" in words(markup)
    assert "Image python:3.13 412.0 MB" in words(markup)
    assert "Digest sha256:bbbbbbbbbbbb Copy" in words(markup)
    assert f'data-copy-text="sha256:{"b" * 64}"' in markup
    assert "Limits memory 2 GiB, processes 512, CPU no limit, disk 10.0 GB" in words(markup)


def test_a_run_whose_log_says_nothing_of_an_image_shows_none(viewer: Client) -> None:
    run = builders.run()
    builders.start(run)
    part = page(viewer, run).split('id="part-sandbox"')[1].split("</details>")[0]
    assert "Provider bubblewrap, isolated, no network" in words(part)
    assert "Image" not in part
    assert "Limits" not in part


def test_the_name_of_an_image_is_text_and_never_markup(viewer: Client) -> None:
    markup = page(viewer, in_docker(image=builders.image(reference="<script>alert(7)</script>")))
    assert "<script>alert(7)" not in markup
    assert "&lt;script&gt;alert(7)" in markup


def test_a_run_that_has_not_begun_has_no_part_for_its_sandbox(viewer: Client) -> None:
    assert re.search(r'id="part-sandbox"[^>]* hidden', page(viewer, builders.run()))
