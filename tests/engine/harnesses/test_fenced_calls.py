"""Commands in the text of a reply: found as expressions find them, in time that grows with the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.harnesses.fenced_calls import commands_in

FENCE = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)
ELEMENT = re.compile(r"<bash>(.*?)</bash>", re.DOTALL)
PARTS = [
    "```bash",
    "```",
    "\n",
    "\n```",
    " ",
    "\t",
    "\u2028",
    "x",
    "ls -l",
    "<bash>",
    "</bash>",
    "</",
    "`",
    "é",
]


@given(st.lists(st.sampled_from(PARTS), max_size=24).map("".join))
def test_what_is_found_is_what_the_expressions_find(text: str) -> None:
    assert commands_in(text, tag="bash", form="fence") == [found.strip() for found in FENCE.findall(text)]
    assert commands_in(text, tag="bash", form="element") == [found.strip() for found in ELEMENT.findall(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```bash\nls\n```", ["ls"]),
        ("I look.\n\n```bash  \n\nls -l\ncat a\n\n```\nDone.", ["ls -l\ncat a"]),
        ("```bash\nls\n```\n```bash\npwd\n```", ["ls", "pwd"]),
        (
            "```bash\ncat <<'EOF' > a.md\n``` begins a line\nEOF\n```",
            ["cat <<'EOF' > a.md"],
        ),
        ("```bash\n\n```", [""]),
        ("```bash\n```", []),
        ("```bash ls\n```", []),
        ("```sh\nls\n```", []),
        ("```bash\nls", []),
        ("ls", []),
    ],
)
def test_a_block_is_a_command_from_the_line_after_its_tag_to_the_closing_fence(
    text: str, found: list[str]
) -> None:
    assert commands_in(text, tag="bash", form="fence") == found


@pytest.mark.parametrize(
    "text", ["```bash\nx" * 300_000, "```bash" + "\n" * 2_000_000, "```bash" * 300_000, "<bash>" * 300_000]
)
def test_a_large_reply_that_closes_nothing_is_read_in_one_pass(text: str) -> None:
    begin = time.process_time()
    for form in ("fence", "element"):
        assert commands_in(text, tag="bash", form=form) == []  # type: ignore[arg-type]
    # The expressions would take hours.
    assert time.process_time() - begin < 20
