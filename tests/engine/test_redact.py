"""Known secrets never enter the log or a conversation."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.events import ModelCallFailed, ModelCallStarted
from lab.engine.redact import DRAFT_CHARACTERS, RedactingSink, Redactor
from lab.engine.sandboxes.base import Output
from lab.engine.sinks import ListSink
from tests.timing import require_growth

KEY = "an-endpoint-key-0123456789"
REDACTOR = Redactor({"ENDPOINT_KEY": KEY, "LAB_SECRET_KEY": 'quo"ted\\secret/ä+value'})


class TestKnownSecrets:
    def test_a_secret_is_replaced_by_its_name_wherever_it_stands(self) -> None:
        assert REDACTOR.text(f"a {KEY}, and{KEY}again") == (
            "a [redacted: ENDPOINT_KEY], and[redacted: ENDPOINT_KEY]again"
        )

    @pytest.mark.parametrize(
        "written",
        ['quo"ted\\secret/ä+value', 'quo\\"ted\\\\secret/ä+value', 'quo\\"ted\\\\secret/\\u00e4+value',
         'quo\\\\\\"ted\\\\\\\\secret/ä+value', "quo%22ted%5Csecret%2F%C3%A4%2Bvalue",
         "quo%22ted%5csecret%2f%c3%a4%2bvalue", "quo%22ted%5Csecret/%C3%A4%2Bvalue",
         "quo&quot;ted\\secret/ä+value"],
        ids=["plain", "json", "ascii json", "json in json", "url", "url in lower case", "path", "html"],
    )  # fmt: skip
    def test_a_secret_is_found_as_json_and_urls_write_it(self, written: str) -> None:
        assert REDACTOR.text(f"<{written}>") == "<[redacted: LAB_SECRET_KEY]>"

    def test_the_longer_of_two_secrets_that_overlap_is_replaced_whole(self) -> None:
        redactor = Redactor({"SHORT": "0123456789ab", "LONG": "0123456789ab-and-more"})
        assert redactor.text("0123456789ab-and-more 0123456789ab") == "[redacted: LONG] [redacted: SHORT]"

    def test_values_below_twelve_characters_are_left_alone_and_named(self) -> None:
        redactor = Redactor({"PIN": "1234", "EMPTY": "", "KEY": KEY})
        assert redactor.text("1234") == "1234"
        assert redactor.too_short == ["PIN"]

    def test_json_is_redacted_at_every_depth_and_what_is_clean_stays_the_same_object(self) -> None:
        clean = {"deep": ["nothing", 1, None, {"a": True}]}
        dirty = {"list": [clean, f"x{KEY}"], KEY: 1}
        result = REDACTOR.json(dirty)
        assert result == {"list": [clean, "x[redacted: ENDPOINT_KEY]"], "[redacted: ENDPOINT_KEY]": 1}
        assert result["list"][0] is clean
        assert REDACTOR.json(clean) is clean
        assert dirty[KEY] == 1

    def test_bytes_are_redacted_without_being_decoded_and_keep_their_number(self) -> None:
        assert REDACTOR.data(b"\xff" + KEY.encode() + b"\x00") == b"\xff" + b"*" * len(KEY) + b"\x00"

    def test_without_secrets_nothing_is_touched(self) -> None:
        value = {"a": [KEY]}
        assert Redactor({}).json(value) is value
        assert Redactor({}).data(KEY.encode()) == KEY.encode()

    @pytest.mark.serial
    def test_the_time_of_fifty_megabytes_of_output_grows_with_their_length_only(self) -> None:
        line = "some line of output that holds no secret\n"
        require_growth(lambda lines: REDACTOR.text(line * lines), whole=1_250_000)


class TestStreams:
    @given(st.integers(0, len(KEY)), st.text(alphabet="xyz \n", max_size=20))
    def test_no_cut_of_a_growing_text_ever_shows_the_beginning_of_a_secret(
        self, cut: int, before: str
    ) -> None:
        shown = REDACTOR.streaming(before + KEY[:cut])
        assert shown == (before + "[redacted: ENDPOINT_KEY]" if cut == len(KEY) else before)

    @given(st.integers(0, len(KEY)), st.integers(0, len(KEY)), st.sampled_from([1, 5, 100]))
    def test_no_part_of_a_secret_is_left_where_an_output_was_cut(
        self, kept: int, from_there: int, dropped: int
    ) -> None:
        head, tail = f"head {KEY} {KEY[:kept]}".encode(), f"{KEY[from_there:]} {KEY} tail".encode()
        shown = REDACTOR.output(Output(head, tail, len(head) + len(tail) + dropped, ""))
        assert shown.removeprefix("head [redacted: ENDPOINT_KEY] ").removesuffix(
            " [redacted: ENDPOINT_KEY] tail"
        ) in {
            f"{before}\n[{dropped} bytes of output were dropped here]\n{after}"
            for before in ["[redacted: ENDPOINT_KEY]" if kept == len(KEY) else ""]
            for after in ["[redacted: ENDPOINT_KEY]" if from_there == 0 else ""]
        }

    def test_a_secret_across_head_and_tail_of_a_whole_output_is_replaced(self) -> None:
        output = Output(KEY[:9].encode(), KEY[9:].encode(), len(KEY), "")
        assert REDACTOR.output(output) == "[redacted: ENDPOINT_KEY]"

    @given(st.integers(0, len(KEY)), st.integers(4, len(KEY)))
    def test_of_several_texts_that_grow_at_once_none_shows_the_beginning_of_a_secret(
        self, last: int, other: int
    ) -> None:
        shown = REDACTOR.streaming_lines(f"Bash x{KEY[:other]}\nRead y{KEY[:last]}")
        assert KEY[:4] not in shown
        assert shown.startswith("Bash x")
        assert REDACTOR.streaming_lines("this\nis a plain\ntext") == "this\nis a plain\ntext"

    @given(st.integers(0, 60))
    def test_a_shortened_text_is_redacted_before_it_is_cut(self, characters: int) -> None:
        text = f"say {KEY} and {KEY}"
        clean = REDACTOR.text(text)
        assert REDACTOR.shortened(text, characters) == clean[: min(characters, len(clean))]

    def test_text_without_the_beginning_of_a_secret_is_shown_whole(self) -> None:
        assert REDACTOR.streaming("as it is.") == "as it is."


class TestSink:
    def test_events_drafts_and_blobs_reach_the_inner_sink_redacted(self) -> None:
        inner = ListSink()
        sink = RedactingSink(inner, REDACTOR)
        sink.append(
            ModelCallFailed(step=1, request=1, error="server", message=f"no {KEY}", raw=KEY, seconds=0.5)
        )
        sink.draft(step=1, content=f"{KEY} an-endpoint-k", reasoning="", calls="", characters=9)
        sink.put_blob(KEY.encode())
        sink.flush()
        assert KEY not in repr(inner.events) + repr(inner.blobs) + repr(inner.drafts)
        failed = inner.events[0]
        assert isinstance(failed, ModelCallFailed)
        assert failed.message == "no [redacted: ENDPOINT_KEY]"
        assert inner.drafts == ["[redacted: ENDPOINT_KEY] "]

    @pytest.mark.parametrize("cut", [1, 5, len(KEY) - 1, len(KEY)])
    def test_a_draft_that_is_the_end_of_a_longer_text_begins_with_no_part_of_a_secret(self, cut: int) -> None:
        inner = ListSink()
        sink = RedactingSink(inner, REDACTOR)
        text = (KEY + "x" * DRAFT_CHARACTERS)[cut:][:DRAFT_CHARACTERS]
        sink.draft(step=1, content=text, reasoning="", calls="", characters=99_999)
        assert inner.drafts == ["x" * (DRAFT_CHARACTERS - len(KEY) + cut)]
        sink.draft(step=1, content="9 files", reasoning="", calls="", characters=7)
        assert inner.drafts[-1] == "9 files"

    def test_an_event_without_a_secret_passes_unchanged(self) -> None:
        inner = ListSink()
        event = ModelCallStarted(step=1, request=1, body_sha256="0" * 64, message_count=2)
        record = RedactingSink(inner, REDACTOR).append(event)
        assert record.event is event
        assert record.seq == 1

    def test_a_blob_is_named_by_what_is_kept(self) -> None:
        inner = ListSink()
        digest = RedactingSink(inner, REDACTOR).put_blob(b"x" + KEY.encode())
        assert digest == hashlib.sha256(b"x" + b"*" * len(KEY)).hexdigest()

    def test_nul_is_shown_and_lone_surrogates_are_replaced_because_no_database_takes_them(self) -> None:
        inner = ListSink()
        sink = RedactingSink(inner, REDACTOR)
        for message in ("a\0b", "a\ud800b", "a\\u0000b"):
            sink.append(ModelCallFailed(step=1, request=1, error="server", message=message, seconds=0.5))
        sink.draft(step=1, content="a\0b", reasoning="", calls="", characters=3)
        kept = [event.message for event in inner.events if isinstance(event, ModelCallFailed)]
        assert kept == ["a\u2400b", "a\ufffdb", "a\\u0000b"]
        assert inner.drafts == ["a\u2400b"]
