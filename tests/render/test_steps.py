"""Steps and events as fragments: what a reader must find in them, and the rules of the stream."""

from __future__ import annotations

import datetime as dt
import html
import re
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.events import (
    AttemptContinued,
    AttemptEnded,
    ControlAsked,
    Event,
    HistoryRewritten,
    LimitChanged,
    LimitReached,
    MessageSent,
    ModelCallInterrupted,
    Paused,
    Record,
    Resumed,
    SandboxLost,
    SandboxStarted,
    ToolCallFinished,
    ToolCallInterrupted,
)
from lab.engine.llm.base import Cost
from lab.engine.llm.replay import Difference
from lab.engine.sinks import ListSink
from lab.render.events import Fragment, LogEvent, MapStep, draft_html, fragments, minimap
from lab.render.kinds import call_kind, command_kind
from lab.render.results import counted_tests
from lab.render.text import Excerpt
from tests import builders

AT = dt.datetime(2026, 11, 29, 14, 32, 8, tzinfo=dt.UTC)
_TAG = re.compile(r"<[^>]*>")


def records(*events: Event, attempt: int = 1, first_seq: int = 1) -> list[Record]:
    sink = ListSink(attempt=attempt, first_seq=first_seq, clock=lambda: AT)
    for event in events:
        sink.append(event)
    return sink.records


def shown(*events: Event) -> list[Fragment]:
    return fragments(7, [LogEvent.of(record) for record in records(*events)])


def words(fragment: Fragment) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", fragment.html)).split())


def test_a_step_is_one_fragment_and_other_events_have_their_own() -> None:
    found = shown(*builders.opening(), *builders.bash_step(1, "ls", "a\n"), *builders.final_step(2))
    assert [(fragment.id, fragment.seqs) for fragment in found] == [
        ("event-1", (1,)),
        ("event-2", (2,)),
        ("event-3", (3, 4, 5, 6)),
        ("event-7", (7, 8)),
    ]
    assert 'data-seqs="3,4,5,6"' in found[2].html
    assert 'data-last-seq="6"' in found[2].html


def test_a_retried_request_stays_in_its_step() -> None:
    (step,) = shown(
        builders.asked(1),
        builders.failed_request(1),
        builders.asked(1, request=2),
        builders.answered(1, request=2),
    )
    assert "1 retry" in words(step)
    assert "failed (rate_limit 429), tried again after 2.0 s: slow down" in words(step)
    assert "≥ $0.0058" in words(step)


def test_a_request_that_is_not_tried_again_is_no_retry() -> None:
    (step,) = shown(builders.asked(1), builders.failed_request(1, retry_in=None))
    assert "not tried again" in words(step)
    assert "retry" not in words(step)


def test_where_a_replay_left_its_recording_stands_in_two_marked_lines_and_cost_nothing() -> None:
    difference = Difference(3, 5, "tool: a\nb", "tool: <b>It said</b>: a")
    failed = builders.failed_request(3, retry_in=None).model_copy(
        update={"error": "replay_diverged", "status": 400, "message": difference.beside("run 7")}
    )
    (step,) = shown(builders.asked(3), failed)
    assert "the conversation differs from run 7, step 3, message 5" in words(step)
    assert "recorded − tool: a⏎b asked now + tool: <b>It said</b>: a" in words(step)
    assert '<dd class="del">' in step.html
    assert '<dd class="add">' in step.html
    assert "left the recording" in words(step)
    assert words(step).count("$0") == 1
    assert "unknown" not in words(step)


def test_a_recording_that_has_no_further_turn_is_not_called_left() -> None:
    said = "the recording of run 7 has 8 turns, and one more is asked for"
    failed = builders.failed_request(9, retry_in=None).model_copy(
        update={"error": "replay_diverged", "status": 400, "message": said}
    )
    (step,) = shown(builders.asked(9), failed)
    assert "no further turn recorded" in words(step)
    assert said in words(step)


def test_steps_of_two_attempts_are_two_fragments() -> None:
    first = records(*builders.bash_step(1, "ls", "a\n"))
    second = records(*builders.bash_step(1, "ls", "a\n"), attempt=2, first_seq=5)
    found = fragments(7, [LogEvent.of(record) for record in first + second])
    assert [fragment.id for fragment in found] == ["event-1", "event-5"]


def test_a_pending_call_has_a_clock_and_says_what_it_may_take() -> None:
    (step,) = shown(
        builders.asked(1),
        builders.answered(1, ("Bash", "{}")),
        builders.called(1, "Bash", {"command": "make"}),
    )
    assert f'data-since="{int(AT.timestamp() * 1000)}"' in step.html
    assert "of 2:00 allowed" in words(step)
    assert "<details open>" in step.html


def test_a_model_that_is_answering_says_how_far_its_turn_may_go() -> None:
    (step,) = shown(builders.asked(1, max_tokens=8192))
    assert "Model is answering" in words(step)
    assert "at most 8,192 tokens a turn" in words(step)
    assert 'data-draft="1"' in step.html


def test_an_edit_is_shown_as_a_diff_and_open() -> None:
    (step,) = shown(*builders.edit_step(1))
    assert "+2 −2 · 1 replacement" in words(step)
    assert 'class="line del"' in step.html
    assert 'data-kind="edit"' in step.html
    assert "data-keep-open" in step.html


def test_a_test_run_is_told_by_its_command_and_by_what_it_counted() -> None:
    (step,) = shown(
        *builders.bash_step(1, "cd x && python -m pytest -q", "1 failed, 41 passed in 1.2s\n", exit_code=1)
    )
    assert 'data-kind="test"' in step.html
    assert "exit 1 · 1 failed, 41 passed" in words(step)
    assert 'data-marks="failed-test failed"' in step.html


def test_what_the_model_did_not_see_is_marked() -> None:
    step = shown(
        builders.asked(1),
        builders.answered(1, ("Bash", "{}")),
        builders.called(1, "Bash", {"command": "cat big"}),
        builders.printed(1, "x" * 9_000, seen=1_000),
    )[0]
    assert "the model saw the first 1,000 of 9,030 characters · show the rest" in words(step)
    assert "/runs/7/events/4/body?part=whole" in step.html


def test_long_output_is_folded_with_its_size() -> None:
    (step,) = shown(*builders.bash_step(1, "cat big", "line\n" * 500))
    assert words(step).count("line line") == 12
    assert "show all: 500 lines, 2.5 KB" in words(step)


def test_output_that_is_no_text_says_so() -> None:
    ended = builders.printed(1, "").model_copy(
        update={"stdout": builders.stream("", binary=True, total=2_100_000)}
    )
    (step,) = shown(
        builders.asked(1),
        builders.answered(1, ("Bash", "{}")),
        builders.called(1, "Bash", {"command": "cat x"}),
        ended,
    )
    assert "not text, 2.1 MB" in words(step)


def test_arguments_that_were_not_understood_are_shown_raw() -> None:
    (step,) = shown(
        builders.asked(1),
        builders.answered(1, ("Bash", '{"command": "ls')),
        builders.called(1, "Bash", {}, malformed="no JSON", raw='{"command": "ls'),
        builders.told(1, "Your arguments were no JSON object.", failed=True),
    )
    assert "not understood, told the model" in words(step)
    assert '{"command": "ls' in words(step)
    assert "Your arguments were no JSON object." in words(step)


def test_reasoning_shows_two_lines_and_how_much_more_there_is() -> None:
    (step,) = shown(builders.asked(1), builders.answered(1, content="ok", reasoning="word " * 100))
    assert re.search(r"\d+ more words", words(step))
    (short,) = shown(builders.asked(1), builders.answered(1, content="ok", reasoning="short"))
    assert "more word" not in words(short)


def test_unknown_is_written_as_unknown_and_scripted_as_free() -> None:
    reply = builders.answered(1, content="ok", cost=Cost())
    blind = reply.model_copy(
        update={"reply": reply.reply.model_copy(update={"usage": type(reply.reply.usage)()})}
    )
    (step,) = shown(builders.asked(1), blind)
    assert words(step).count("unknown") == 2
    free = builders.answered(1, content="ok", cost=Cost(amount=Decimal(0), basis="scripted"))
    (step,) = shown(builders.asked(1), free)
    assert "$0" in words(step)


def test_an_answer_cut_by_its_length_is_said() -> None:
    (step,) = shown(
        builders.asked(1), builders.answered(1, ("Bash", "{}"), content="…", finish_reason="length")
    )
    assert "cut by its length; 1 call not executed" in words(step)


EVERY_OTHER_KIND: list[tuple[Event, str]] = [
    (SandboxLost(message="the container is gone"), "Sandbox lost: the container is gone"),
    (
        MessageSent(person="mara", message={"role": "user", "content": "try again"}),
        "mara wrote to the agent: try again",
    ),
    (
        MessageSent(person="mara", message={"role": "user", "content": "first\nsecond"}),
        "mara wrote to the agent event 1 · 14:32:08 first second",
    ),
    (ControlAsked(control="cancel", person="mara"), "mara asked to cancel"),
    (ControlAsked(control="pause", person="mara"), "mara asked to pause"),
    (ControlAsked(control="resume", person="mara"), "mara asked to go on"),
    (ControlAsked(control="attempt", person="mara"), "mara asked for another attempt"),
    (ControlAsked(control="again", person="mara", value={"run": 12}), "mara ran it again as run 12"),
    (
        ControlAsked(control="message", person="mara", value={"text": "try again"}),
        "mara sent a message: “try again”",
    ),
    (
        ControlAsked(control="limit", person="mara", value={"limit": "max_steps", "after": 1200}),
        "mara asked for another limit of steps: 1,200",
    ),
    (
        LimitChanged(limit="max_steps", before=100, after=None, person="mara"),
        "Limit of steps changed by mara : 100 → no limit",
    ),
    (
        LimitChanged(limit="max_cost_usd", before="2", after="2.50", person="mara"),
        "Limit of cost changed by mara : $2.00 → $2.50",
    ),
    (
        LimitChanged(limit="max_total_time_sec", before=60.0, after=7200.0, person="mara"),
        "Limit of wall time changed by mara : 1:00 → 2:00:00",
    ),
    (
        LimitReached(limit="max_cost_usd", used=Decimal("2.01"), allowed=Decimal(2)),
        "Limit of cost reached: $2.01 of $2.00",
    ),
    (Paused(person="mara"), "Paused by mara"),
    (Resumed(person="mara"), "Resumed by mara"),
    (
        AttemptContinued(continuation=1, reason="the worker died"),
        "Attempt 1 goes on with another worker: the worker died",
    ),
    (AttemptContinued(continuation=2, orderly=True), "Attempt 1 goes on with another worker event"),
    (
        AttemptEnded(exit_reason="infrastructure_error", error="worker died", steps=3, wall_seconds=62.0),
        "ended, exit reason infrastructure_error · 3 steps · 1:02 · peak memory unknown · worker died",
    ),
    (
        SandboxStarted(
            sandbox="process", isolation="none", identifier="x", workspace="/w", network=True, seconds=0.01
        ),
        "Sandbox process, not isolated , with network, up in 0.01 s",
    ),
    (
        SandboxStarted(
            sandbox="process",
            isolation="none",
            identifier="x",
            workspace="/w",
            network=True,
            seconds=0.01,
            rebuilt=True,
        ),
        "its workspace as it was after the last stored change, up in 0.01 s",
    ),
]


@pytest.mark.parametrize(("event", "said"), EVERY_OTHER_KIND, ids=[said for _, said in EVERY_OTHER_KIND])
def test_every_event_outside_a_step_is_said_in_words(event: Event, said: str) -> None:
    (moment,) = shown(event)
    assert said in words(moment)
    assert 'data-seqs="1"' in moment.html


def test_infrastructure_is_marked_as_nobodys_failure() -> None:
    (moment,) = shown(SandboxLost(message="gone"))
    assert 'class="moment infrastructure"' in moment.html


def test_interruptions_are_part_of_their_step() -> None:
    (step,) = shown(
        builders.asked(1),
        ModelCallInterrupted(step=1, request=1, reason="the worker died", partial="I was say"),
        builders.asked(1, request=2),
        builders.answered(1, ("Bash", "{}"), request=2),
        builders.called(1, "Bash", {"command": "make"}),
        ToolCallInterrupted(
            step=1, index=1, call_id="call-1-1", reason="cancelled", stdout=builders.stream("half\n")
        ),
        HistoryRewritten(step=1, reason="condensed", messages=[]),
    )
    assert "was interrupted, its cost is unknown: the worker died" in words(step)
    assert "Interrupted (cancelled); its effect is unknown" in words(step)
    assert "half" in words(step)
    assert "The history was rewritten: condensed" in words(step)


def test_a_call_that_was_run_again_is_one_call_with_its_last_result() -> None:
    (step,) = shown(
        builders.asked(1),
        ModelCallInterrupted(step=1, request=1, reason="the worker died"),
        builders.asked(1, request=2).model_copy(update={"again": True}),
        builders.answered(1, ("Bash", "{}"), request=2),
        builders.called(1, "Bash", {"command": "make"}),
        ToolCallInterrupted(
            step=1, index=1, call_id="call-1-1", reason="the worker died", stdout=builders.stream("half\n")
        ),
        builders.called(1, "Bash", {"command": "make"}).model_copy(update={"again": True}),
        builders.printed(1, "all of it\n"),
    )
    text = words(step)
    assert "Request 1 was interrupted, its cost is unknown: the worker died; asked again as request 2" in text
    assert "Interrupted (the worker died) and run again on the workspace as it was before" in text
    assert text.index("half") < text.index("all of it")
    assert "exit 0 · 1 line · 2 interruptions" in text
    assert "parallel" not in text


def test_a_command_that_wrote_only_errors_has_no_empty_output_block() -> None:
    (step,) = shown(
        builders.asked(1),
        builders.answered(1, ("Bash", "{}")),
        builders.called(1, "Bash", {"command": "make"}),
        builders.printed(1, "", stderr="no rule\n", exit_code=2),
    )
    text = words(step)
    assert "Error output exit 2 · 1 line" in text
    assert "Output 0 lines" not in text
    assert "Output exit 2 · 0 lines" not in text


def test_a_command_that_wrote_nothing_says_so() -> None:
    (step,) = shown(
        builders.asked(1),
        builders.answered(1, ("Bash", "{}")),
        builders.called(1, "Bash", {"command": "true"}),
        builders.printed(1, ""),
    )
    assert "No output exit 0" in words(step)
    assert "0 lines" not in words(step)


def test_what_a_harness_puts_around_an_output_is_no_line_of_it() -> None:
    around = "344\n\n(Open file: n/a)\n(Current directory: /testbed)\nbash-$"
    (step,) = shown(
        builders.asked(1),
        builders.answered(1, ("Bash", "{}")),
        builders.called(1, "Bash", {"command": "python a.py"}),
        builders.printed(1, "344\n").model_copy(update={"observation": around, "exit_code": None}),
    )
    row = words(step).partition("Output")[0]
    assert "1 line" in row
    assert "5 lines" not in row


def test_a_kind_of_a_newer_version_is_named_and_hides_nothing() -> None:
    (moment,) = fragments(7, [LogEvent(1, 1, None, "moon_phase<b>", AT, {})])
    assert "moon_phase<b> (an event of a newer version of the lab)" in words(moment)


def test_an_excerpt_of_a_stored_body_counts_the_whole() -> None:
    record = records(*builders.bash_step(1, "cat big", "x"))
    events = [LogEvent.of(item) for item in record]
    body = Excerpt("line\n" * 100, 2_000_000, 400_000, 2_000_000, "the end")
    payload = {**events[3].payload, "stdout": {"text": body, "total_bytes": 2_000_000}}
    events[3] = LogEvent(4, 1, 1, "tool_call_finished", AT, payload)
    (step,) = fragments(7, events)
    assert "exit 0 · 400,000 lines" in words(step)
    assert "show all: 400,000 lines, 2.0 MB" in words(step)
    assert len(step.html) < 8_000


@given(
    st.text(max_size=200),
    st.text(max_size=200),
    st.dictionaries(st.text(max_size=8), st.text(max_size=30), max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_whatever_a_model_writes_makes_no_markup(tool: str, text: str, arguments: dict[str, str]) -> None:
    (step,) = shown(
        builders.asked(1),
        builders.answered(1, (tool, text), content=text, reasoning=text),
        builders.called(1, tool, dict(arguments)),
        builders.printed(1, text, stderr=text),
    )
    names = "li article details summary svg use span b code div section header pre p a dl dt dd time"
    allowed = rf"</?(?:{'|'.join(names.split())})[\s/>]"
    for tag in _TAG.findall(step.html):
        assert re.match(allowed, tag)
        assert not re.search(r"\son\w+\s*=", tag)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("python -m pytest -q", "test"),
        ("cd app && ./manage.py test", "test"),
        ("python3 -m unittest -v", "test"),
        ("npm run test", "test"),
        ("cat a.py | head -3", "read"),
        ("cd src && grep -rn 'x' . | sort", "read"),
        ("git log --oneline && git diff", "read"),
        ("sed -n 1,20p a.py", "read"),
        ("sed -i s/a/b/ a.py", "edit"),
        ("cat > a.py <<'EOF'\nx\nEOF", "edit"),
        ("cat <<'EOF' > a.py\nx\nEOF", "edit"),
        ("cat <<-EOF >> a.py\n\tx", "edit"),
        ('cd src && cat << "END" | tee a.py\nx\nEND', "edit"),
        ("cat <<'EOF'\nx > y\npytest\nEOF", "read"),
        ("cat <<'EOF' > test_a.py\nx\nEOF\npytest -q test_a.py", "test"),
        ("python3 - <<'EOF'\nprint(1 > 0)\nEOF\nls", "shell"),
        ("grep x <<< 'a > b'", "read"),
        ("echo x >> notes.txt", "edit"),
        ("git apply fix.patch", "edit"),
        ("ls 2>/dev/null", "read"),
        ("python script.py", "shell"),
        ("cd /testbed && python test_edge_cases.py", "test"),
        (
            "PYTHONPATH=. timeout 60 /opt/env/bin/python3.11 -X dev -u ./a/widget_test.py -v 2>&1 | head",
            "test",
        ),
        ("python -W error -m doctest README.rst", "test"),
        ("python -m doctest -v a.py", "test"),
        ("python -mpytest", "test"),
        ("python contest.py && python latest.py", "shell"),
        ("python make.py test_a.py", "shell"),
        ("python -c 'print(1)' test_a.py", "shell"),
        ("python -m black test_a.py", "shell"),
        ("python - test_a.py", "shell"),
        ("python reproduce_error.py", "shell"),
        ("python test_data.json", "shell"),
        ("cat test_a.py", "read"),
        ("echo python test_a.py", "read"),
        ("git add test_a.py", "shell"),
        ("rm test_a.py", "shell"),
        ("cat > test_a.py <<'EOF'\nx\nEOF\npython test_a.py", "test"),
        ("cat > test_a.py <<'EOF'\nx\nEOF", "edit"),
        ("python " + "-u " * 2_000, "shell"),
        ("edit 3:5\nx = open(1)\nend_of_edit\n", "edit"),
        ("create reproduce.py", "edit"),
        ("open src/a.py 12", "read"),
        ('find_file "a.py" src', "read"),
        ("scroll_down", "read"),
        ("submit\n", "final"),
        ("edit the file", "shell"),
        ("submit --now", "shell"),
        ("pip install x", "shell"),
        ("", "shell"),
    ],
)
def test_the_kind_of_a_command(command: str, kind: str) -> None:
    assert command_kind(command) == kind


def test_the_kind_of_a_call_comes_from_tool_and_command() -> None:
    assert call_kind("Read", "read", {}) == "read"
    assert call_kind("Write", "write", {}) == "edit"
    assert call_kind("file_editor", "", {"command": "view"}) == "read"
    assert call_kind("file_editor", "", {"command": "str_replace"}) == "edit"
    assert call_kind("finish", "", {}) == "final"


@pytest.mark.parametrize(
    ("ending", "words_"),
    [
        ("=== 1 failed, 2 passed, 1 skipped in 0.1s ===\n", "1 failed, 2 passed, 1 skipped"),
        ("42 passed in 1.2s\n", "42 passed"),
        ("Ran 3 tests in 0.1s\n\nOK\n", "3 run, all ok"),
        ("Ran 3 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n", "3 run, 1 failures, 1 errors"),
        ("no tests here", ""),
    ],
)
def test_what_a_test_run_counted(ending: str, words_: str) -> None:
    assert counted_tests(ending) == words_


def test_the_minimap_has_at_most_400_links_and_keeps_failed_test_runs() -> None:
    steps = [MapStep(seq, seq, "shell", "prompt", seq == 1_234) for seq in range(1, 5_001)]
    markup = minimap(steps)
    assert markup.count("<li") == 385
    assert markup.count('class="failed-test"') == 1
    assert 'aria-label="steps 1 to 13' in markup


def test_a_draft_is_bounded_text() -> None:
    markup = draft_html(content="<b>" + "x" * 50_000, reasoning="", calls='{"a', characters=50_006)
    assert "<b>" not in markup.replace("<b>Reasoning</b>", "")
    assert len(markup) < 8_000
    assert "being written · 50,006 characters so far" in markup


def test_finished_call_without_streams_shows_what_the_model_was_told() -> None:
    ended = ToolCallFinished(
        step=1,
        index=1,
        call_id="call-1-1",
        observation="Unknown tool: Fly",
        message={},
        failed=True,
        seconds=0.0,
    )
    (step,) = shown(
        builders.asked(1),
        builders.answered(1, ("Fly", "{}")),
        builders.called(1, "Fly", {"to": "moon"}),
        ended,
    )
    assert "Unknown tool: Fly" in words(step)
    assert "moon" in words(step)
