"""Live pages over real sockets of a real web process: every event once and in order, whatever happens."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from lab.models import Draft, Membership, Role, Run
from lab.services import controls
from tests import builders
from tests.live.lab_server import LabServer, running_lab, session_cookie
from tests.live.page import Page
from tests.timing import SOON

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def lab(django_db_setup: None) -> Iterator[LabServer]:
    with running_lab() as server:
        yield server


@pytest.fixture
def cookie() -> str:
    return session_cookie(builders.person(Role.VIEWER))


def page_of(lab: LabServer, run: Run, cookie: str, *, last_seq: int = 0) -> Page:
    page = Page(lab, run.pk, cookie, last_seq=last_seq)
    page.connect()
    return page


def everything(run: Run) -> list[int]:
    run.refresh_from_db()
    return list(range(1, run.last_seq + 1))


def test_a_page_that_opens_before_the_first_event_goes_from_queued_to_running(
    lab: LabServer, cookie: str
) -> None:
    run = builders.run()
    page = page_of(lab, run, cookie)
    page.read_until(lambda page: "queued" in page.parts.get("badge", ""))
    builders.start(run)
    page.read_until(lambda page: page.last_seq == 2 and page.status == "running")
    assert 'data-status="running"' in page.parts["badge"]
    assert list(page.items) == ["event-1", "event-2"]
    assert page.gaps == 0


def test_a_call_that_never_returns_is_shown_from_its_start_with_a_growing_clock(
    lab: LabServer, cookie: str
) -> None:
    run = builders.run()
    builders.start(run)
    page = page_of(lab, run, cookie)
    last = builders.append(
        run,
        builders.asked(1),
        builders.answered(1, ("Bash", "{}")),
        builders.called(1, "Bash", {"command": "sleep 9"}),
    )
    page.read_until(lambda page: page.last_seq == last and "sleep 9" in page.parts.get("pending", ""))
    html = page.items["event-3"][1]
    assert 'data-state="running"' in html
    assert 'class="clock"' in html
    assert 'data-allowed="120"' in html
    assert "sleep 9" in html


def test_a_dropped_socket_costs_nothing_but_the_time_without_it(lab: LabServer, cookie: str) -> None:
    run = builders.run()
    builders.start(run)
    page = page_of(lab, run, cookie)
    builders.append(run, *builders.bash_step(1, "ls", "a\n"))
    page.read_until(lambda page: page.last_seq == 6)
    page.drop()
    builders.append(run, *builders.bash_step(2, "ls", "b\n"), builders.asked(3))
    page.connect()
    page.read_until(lambda page: page.last_seq == 11)
    last = builders.append(run, builders.answered(3, content="done"))
    page.read_until(lambda page: page.last_seq == last)
    assert page.seqs == everything(run)
    assert page.gaps == 0
    assert page.items["event-11"][0] == [11, 12]


def test_after_300_steps_only_what_is_missing_is_sent_again(lab: LabServer, cookie: str) -> None:
    run = builders.run()
    builders.start(run)
    for first in range(1, 301, 50):
        steps = [
            event for step in range(first, first + 50) for event in builders.bash_step(step, "true", "ok\n")
        ]
        builders.append(run, *steps)
    page = page_of(lab, run, cookie)
    page.read_until(lambda page: page.last_seq == 1202)
    assert page.seqs == everything(run)
    page.drop()
    builders.append(run, *builders.bash_step(301, "true", "ok\n"))
    page.messages.clear()
    page.connect()
    page.read_until(lambda page: page.last_seq == 1206)
    sent = [message for message in page.messages if "steps" in message]
    assert [(message["after"], message["seq"]) for message in sent] == [(1202, 1206)]
    assert page.seqs == everything(run)


def test_every_event_comes_once_and_in_order_when_the_web_process_is_killed(
    lab: LabServer, cookie: str
) -> None:
    run = builders.run()
    builders.start(run)
    page = page_of(lab, run, cookie)
    builders.append(run, *builders.bash_step(1, "ls", "a\n"), builders.asked(2))
    page.read_until(lambda page: page.last_seq == 7)
    lab.kill()
    page.read_to_end_of_socket()
    builders.append(run, builders.answered(2, ("Bash", "{}")), builders.called(2, "Bash", {"command": "ls"}))
    lab.start()
    page.connect()
    page.read_until(lambda page: page.last_seq == 9)
    builders.append(run, builders.printed(2, "b\n"), *builders.ending(outcome="resolved", steps=2))
    page.read_until(lambda page: page.status == "ended" and page.last_seq == 15)
    assert "resolved" in page.parts["badge"]
    assert page.seqs == everything(run)
    assert page.gaps == 0


def test_500_events_missed_while_the_web_process_was_away_are_there_soon_after_its_return(
    lab: LabServer, cookie: str
) -> None:
    run = builders.run()
    builders.start(run)
    page = page_of(lab, run, cookie)
    builders.append(run, *builders.bash_step(1, "ls", "a\n"), builders.asked(2))
    page.read_until(lambda page: page.last_seq == 7)
    lab.kill()
    page.read_to_end_of_socket()
    builders.append(run, builders.answered(2, content="It is away."))
    for step in range(3, 128):
        builders.append(run, *builders.bash_step(step, f"echo {step}", f"{step}\n"))
    lab.start()
    returned = time.monotonic()
    page.connect()
    page.read_until(lambda page: page.last_seq == 508)
    assert time.monotonic() - returned < SOON
    assert page.seqs == everything(run)
    assert page.gaps == 0


def test_a_viewer_that_reads_slowly_misses_nothing_of_500_events(lab: LabServer, cookie: str) -> None:
    run = builders.run()
    builders.start(run)
    slow = page_of(lab, run, cookie)
    slow.read_until(lambda page: page.last_seq == 2)
    for step in range(1, 126):
        builders.append(run, *builders.bash_step(step, "cat big", "x" * 3_000 + "\n"))
    time.sleep(0.5)
    slow.read_until(lambda page: page.last_seq == 502)
    assert slow.seqs == everything(run)
    assert slow.gaps == 0


def test_a_streaming_answer_is_shown_until_its_event_replaces_it(lab: LabServer, cookie: str) -> None:
    run = builders.run()
    builders.start(run)
    last = builders.append(run, builders.asked(1))
    page = page_of(lab, run, cookie, last_seq=last)
    page.read_until(lambda page: page.messages[-1:] != [] and "live" in page.messages[-1])
    Draft.objects.create(run=run, after_seq=last, step=1, version=1, content="I look <b>at", characters=12)
    page.read_until(lambda page: "I look &lt;b&gt;at" in page.draft)
    assert "being written" in page.draft
    Draft.objects.filter(run=run).update(
        version=2, content="I look at it", characters=13, updated_at=timezone.now()
    )
    page.read_until(lambda page: "I look at it" in page.draft)
    last = builders.append(run, builders.answered(1, content="I look at it."))
    page.read_until(lambda page: page.last_seq == last)
    assert page.draft == ""


def test_hostile_output_arrives_as_text(lab: LabServer, cookie: str) -> None:
    run = builders.run()
    builders.start(run)
    page = page_of(lab, run, cookie)
    output = "<script>alert(1)</script>\x1b]52;c;aGk=\x07\x1b[31mred\x1b[0m\u202eevil\x00"
    last = builders.append(run, *builders.bash_step(1, "cat <img src=x onerror=alert(2)>", output))
    page.read_until(lambda page: page.last_seq == last)
    html = page.items["event-3"][1]
    assert "<script" not in html
    assert "<img" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert '<span class="fg-1">red</span>' in html


def test_only_people_of_the_lab_on_its_own_pages_may_watch(lab: LabServer, cookie: str) -> None:
    run = builders.run()
    page = Page(lab, run.pk, cookie)
    for wrong in (
        {"cookie": ""},
        {"cookie": "lab_session=made-up"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:1"},
    ):
        with pytest.raises(InvalidStatus) as refusal:
            page.connect(**wrong)
        assert refusal.value.response.status_code == 403
    absent = Page(lab, 999_999, cookie)
    with pytest.raises(InvalidStatus):
        absent.connect()


def test_an_unknown_address_is_closed_cleanly_and_refusals_print_at_most_a_line(
    lab: LabServer, cookie: str, capfd: pytest.CaptureFixture[str]
) -> None:
    headers = {"Cookie": cookie}
    origin = Origin(f"http://{lab.host}")
    with connect(
        f"ws://{lab.host}/ws/nowhere/", additional_headers=headers, origin=origin, open_timeout=60
    ) as socket:
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)
        assert socket.close_code == 4404
    with pytest.raises(InvalidStatus):
        Page(lab, builders.run().pk, cookie).connect(cookie="")
    assert len(capfd.readouterr().err.splitlines()) <= 2


def test_whoever_signs_out_or_leaves_the_lab_stops_watching(lab: LabServer) -> None:
    run = builders.run()
    leaver, quitter = (session_cookie(builders.person(Role.VIEWER)) for _ in range(2))
    pages = [page_of(lab, run, cookie) for cookie in (leaver, quitter)]
    for page in pages:
        page.read_until(lambda page: "queued" in page.parts.get("badge", ""))
    sessions = [Session.objects.get(pk=cookie.partition("=")[2]) for cookie in (leaver, quitter)]
    sessions[0].delete()
    Membership.objects.filter(user_id=sessions[1].get_decoded()["_auth_user_id"]).delete()
    for page in pages:
        page.read_to_end_of_socket()


def test_a_cancel_is_shown_while_the_worker_has_not_seen_it(lab: LabServer, cookie: str) -> None:
    run = builders.run()
    builders.start(run)
    page = page_of(lab, run, cookie)
    page.read_until(lambda page: page.last_seq == 2)
    controls.ask(run=run, by=builders.person(Role.OPERATOR), control="cancel")
    page.read_until(lambda page: "Cancelling" in page.parts.get("pending", ""))


def test_a_quiet_socket_says_that_it_lives(lab: LabServer, cookie: str) -> None:
    page = page_of(lab, builders.run(), cookie)
    page.read_until(lambda page: "live" in (page.messages or [{}])[-1])
    page.read_until(lambda page: page.messages[-1].keys() == {"now"}, seconds=SOON)
