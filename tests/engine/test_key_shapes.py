"""What looks like a key is masked where it is shown, and nothing else is."""

from __future__ import annotations

import tracemalloc
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.key_shapes import (
    PASSWORD,
    SECRET_VALUE,
    mask_key_shapes,
    masked,
    masked_beginning,
    masked_end,
)
from tests.timing import require_growth

# Made up: the shape of each provider's keys, joined here so that no scanner takes them for real ones.
KEYS = {
    "an Anthropic key": "sk-" + "ant-api03-" + "Ab1_" * 10,
    "an OpenAI key": "sk-" + "proj-" + "a1B2" * 10,
    "an OpenRouter key": "sk-" + "or-v1-" + "0a" * 32,
    "a Langfuse key": "sk-" + "lf-" + "0a1b-" * 6,
    "a Groq key": "gsk_" + "aB1" * 15,
    "a Cerebras key": "csk-" + "a1b2" * 12,
    "an xAI key": "xai-" + "aB1" * 15,
    "an NVIDIA key": "nvapi-" + "aB1_" * 12,
    "a Replicate key": "r8_" + "aB1" * 12,
    "a Hugging Face token": "hf_" + "aB1" * 11,
    "a GitHub token": "ghp_" + "aB1" * 12,
    "a GitLab token": "glpat-" + "aB1-" * 6,
    "a Slack token": "xoxb-" + "123-456-" + "aB1" * 6,
    "a Slack address": "https://hooks.slack.com/services/" + "T0123ABCD/" + "B0123ABCD/" + "aB1" * 8,
    "a Discord address": "https://discord.com/api/webhooks/" + "1234567890123/" + "aB1_" * 10,
    "a Google key": "AIza" + "aB1_-" * 7,
    "a Google token": "ya29." + "aB1_" * 10,
    "an AWS key": "AKIA" + "ABCD1234" * 2,
    "an Azure key": "AccountKey=" + "aB1+" * 20 + "==",
    "an Azure secret": "aB1" + "8Q~" + "aB1_" * 8,
    "an npm token": "npm_" + "aB1" * 12,
    "a PyPI token": "pypi-" + "AgEI" * 12,
    "a SendGrid key": "SG." + "aB1_" * 5 + "." + "aB1_" * 5,
    "a Stripe key": "sk_" + "live_" + "aB1" * 8,
    "a Stripe secret": "whsec_" + "aB1" * 11,
    "a Telegram token": "123456789" + ":AA" + "aB1" * 11,
    "a Databricks token": "dapi" + "0a1b" * 8,
    "a Vault token": "hvs." + "aB1_" * 10,
    "a signed token": "eyJ" + "hbGciOiJI" + "." + "eyJ" + "zdWIiOiIx" + "." + "c2lnbmF0dXJl",
    "a token of this lab": "tlab_" + "aB1_" * 10,
    "a sign-in link": "http://127.0.0.1:8000/sign-in/" + "aB1_" * 11 + "/",
}
AROUND = {
    "alone": "{}",
    "variable": "MY_VARIABLE={}\n",
    "json": '{{"api": "{}"}}',
    "sentence": "key: {}.",
    "escaped line": "x\\n{}\\n",
    "percent": "q=%3D{}",
    "coloured": "\x1b[01;31m\x1b[K{}\x1b[m\x1b[K",
    "added line": "+{}\n",
}
PEM = "\n".join(
    ["-----BEGIN RSA PRIVATE KEY-----", *["aB1+" * 16] * 5, "aB1=", "-----END RSA PRIVATE KEY-----"]
)


def secret_part(kind: str) -> str:
    """What must not be seen of a key: all but its beginning, which names the provider."""
    return KEYS[kind][-14:].rstrip("/=")


class TestMasked:
    @pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
    @pytest.mark.parametrize("kind", KEYS)
    def test_the_keys_of_many_providers_are_masked_and_named(self, kind: str, around: str) -> None:
        shown = mask_key_shapes(around.format(KEYS[kind]))
        assert secret_part(kind) not in shown
        assert f"[masked, looks like {kind}]" in shown

    def test_what_stands_around_a_key_stays(self) -> None:
        key = KEYS["an OpenAI key"]
        assert mask_key_shapes(f"a {key} b\n{key}!") == (
            "a sk-…[masked, looks like an OpenAI key] b\nsk-…[masked, looks like an OpenAI key]!"
        )

    def test_a_printed_environment_shows_no_value_of_a_key(self) -> None:
        printed = "HOME=/root\nMISTRAL_API_KEY=abcdefghijklmnop\nDB_PASSWORD='hunter2hunter2'\nLANG=C.UTF-8\n"
        assert mask_key_shapes(printed) == (
            f"HOME=/root\nMISTRAL_API_KEY={SECRET_VALUE}\nDB_PASSWORD='{SECRET_VALUE}'\nLANG=C.UTF-8\n"
        )

    @pytest.mark.parametrize(
        "line", ["{}", "+{}", "12. {}", "  3\t{}", "export {}", "ENV {}", 'x\\n{}\\n"', "PORT=1 {} run"]
    )
    def test_an_environment_is_known_in_a_diff_a_numbered_file_and_an_escaped_text(self, line: str) -> None:
        shown = mask_key_shapes("first\n" + line.format("COHERE_API_KEY=correct-horse"))
        assert "correct-horse" not in shown

    def test_bearer_tokens_and_passwords_in_addresses_are_masked(self) -> None:
        shown = mask_key_shapes("Authorization: Bearer " + "a1" * 15 + "\npostgres://me:secret123@db/lab")
        assert shown == f"Authorization: Bearer {SECRET_VALUE}\npostgres://me:{PASSWORD}@db/lab"

    @pytest.mark.parametrize(
        "written",
        [
            '"client_secret": "{}"',
            "api-key: {}",
            "apiKey = '{}'",
            "aws_secret_access_key = {}",
            'x-api-key":"{}"',
            '{{\\"auth_token\\": \\"{}\\"}}',
            "authorization: Basic {}",
        ],
    )
    def test_a_random_value_of_a_secret_name_is_masked(self, written: str) -> None:
        value = "aB3dE5fG7hJ9kL1mN3pQ"
        assert value not in mask_key_shapes(written.format(value))

    def test_a_key_with_colours_in_the_middle_is_found_and_the_colours_go_on(self) -> None:
        key = KEYS["a GitHub token"]
        shown = mask_key_shapes(f"\x1b[32mok \x1b[31m{key[:6]}\x1b[1m{key[6:]}\x1b[0m end")
        assert shown == "\x1b[32mok \x1b[31mghp_…[masked, looks like a GitHub token]\x1b[1m\x1b[0m end"

    @pytest.mark.parametrize("sign", ["", "+", "-", " ", "17. "])
    def test_a_private_key_keeps_its_lines_and_their_signs(self, sign: str) -> None:
        text = "\n".join(sign + line for line in ["before", *PEM.split("\n"), "after"])
        shown = mask_key_shapes(text).split("\n")
        assert len(shown) == text.count("\n") + 1
        assert all(line.startswith(sign) for line in shown)
        assert "aB1+" not in "".join(shown)
        assert shown[2] == sign + "[masked, looks like a private key]"
        assert (shown[0], shown[-1]) == (sign + "before", sign + "after")

    def test_nested_json_is_masked_and_what_is_clean_stays_the_same_object(self) -> None:
        clean = {"deep": ["nothing at all here", 1, None]}
        key = KEYS["a Groq key"]
        assert masked({"a": [clean, key], key: 1})["a"][0] is clean
        assert key not in repr(masked({"a": [clean, key], key: (key,)}))
        assert masked(clean) is clean


class TestLeftAlone:
    @pytest.mark.parametrize(
        "text",
        [
            "task-oriented sk-learn risk-assessment-of-everything-there-is",
            "sk-learn-contrib-is-a-long-name-of-packages",
            "TOKEN = lexer.next_token()\n",
            "git show 8ae6ea7e5bc7f06d53d1e1b9 https://example.org/a:b/c@d hf_hub_download(x)\n",
            "call(self, SECRET_KEY=settings.SECRET, API_KEY=DEFAULT_KEY)",
            "MAX_TOKEN=12\nimport xai; AKIAN; PASSWORD=$HOME_PASSWORD\n",
            "token = self.token_v2_encoder_layer1\n",
            "api_key: ${API_KEY}, password: {{ password }}, secret: <your-secret-here>",
            f"commit {'0a1b2c3d4e' * 4}\nsha256: {'0a1b2c3d' * 8}\nid={uuid.UUID(int=7)}\n",
            "cache_key = " + "0a1b2c3d" * 8,
            "data:image/png;base64," + "aB1+" * 60,
            "--hash=sha256:" + "0a1b2c3d" * 8,
            "http://127.0.0.1:8000/@scope/package and git@github.com:owner/name.git",
            "def authenticate(username, password, request=None): Bearer authentication is required",
            "-----BEGIN PRIVATE KEY----- is how such a file begins, and an_identifier_of_some_length follows",
            "sk-…[masked, looks like an OpenAI key] stays as it is",
        ],
    )
    def test_ordinary_text_and_code(self, text: str) -> None:
        assert mask_key_shapes(text) == text

    def test_the_labs_own_sources(self) -> None:
        folder = Path(__file__).parents[2] / "lab"
        changed = [
            path for path in folder.rglob("*.py") if mask_key_shapes(path.read_text()) != path.read_text()
        ]
        # Its advice shows how an address with a password is written.
        assert [path.name for path in changed] in ([], ["checks.py"])


class TestAnyText:
    @settings(max_examples=300)
    @given(st.text())
    def test_no_text_breaks_it_and_it_keeps_its_lines(self, text: str) -> None:
        assert mask_key_shapes(text).count("\n") == text.count("\n")
        assert mask_key_shapes(text, growing=True).count("\n") == text.count("\n")

    @settings(max_examples=300)
    @given(
        st.lists(
            st.sampled_from([
                *KEYS.values(), PEM, "sk-", "eyJ", "://a:", "@b ", "KEY=", "\x1b[31m", "\x1b", "\n", " ", "é",
                "\ud800", "Bearer ", "secret: '", "-----BEGIN PRIVATE KEY-----", "abc", "1234567890", "\\n",
                "%3D", '"',
            ]),
            max_size=12,
        ).map(" ".join)
    )  # fmt: skip
    def test_what_is_masked_stays_masked_and_lines_stay(self, text: str) -> None:
        once = mask_key_shapes(text)
        assert mask_key_shapes(once) == once
        assert once.count("\n") == text.count("\n")

    @pytest.mark.serial
    @pytest.mark.parametrize(
        "piece",
        ["sk-", "eyJ", "eyJaaaaaaaaa.", "://", "://:aaa", "key=", "KEY=a", "token: ", "A", "8Q~", "\x1b[31m",
         "secret:\"a1b2c3d4e5f6g7h8\" ", "-----BEGIN PRIVATE KEY-----", "Authorization: ", "Bearer a", "AKIA",
         "SG.aaaaaaaaaaaaaaaaa.", "\x1b", "\x1b[", "sk-a1B2c3D4e5F6g7H8i9J0 "],
    )  # fmt: skip
    def test_the_time_of_a_hostile_text_grows_with_its_length_only(self, piece: str) -> None:
        def mask(characters: int) -> None:
            mask_key_shapes((piece * (characters // len(piece) + 1))[:characters], growing=True)

        require_growth(mask, whole=1_000_000)

    @pytest.mark.parametrize("key", ["", "sk-a1B2c3D4e5F6g7H8i9J0 "], ids=["no key", "a key"])
    def test_colours_are_not_kept_in_memory_one_by_one(self, key: str) -> None:
        text = key + "\x1b[31m" * 200_000
        tracemalloc.start()
        try:
            mask_key_shapes(text)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # An object for each of them is thirty times the text; what is shown is made with three times.
        assert most < 6 * len(text)


class TestCuts:
    @pytest.mark.parametrize("kind", sorted(KEYS.keys() - {"an Azure secret", "a Telegram token"}))
    def test_no_cut_of_a_text_that_is_being_written_shows_a_part_of_a_key(self, kind: str) -> None:
        key = KEYS[kind]
        whole = mask_key_shapes(key)
        seen = whole[: whole.index("…")]
        for end in range(len(seen) + 1, len(key)):
            shown = mask_key_shapes(f"so it is {key[:end]}", growing=True)
            left, mark, _ = shown.partition("…[masked, looks like")
            assert mark, end
            assert f"so it is {seen}".startswith(left), end

    @pytest.mark.parametrize("begun", ["COHERE_API_KEY=c", "db://me:s", PEM[:60], PEM[:100], PEM[:200]])
    def test_values_and_private_keys_that_are_being_written_are_masked_from_their_first_character(
        self, begun: str
    ) -> None:
        shown = mask_key_shapes("see this:\n" + begun, growing=True)
        assert "masked" in shown
        assert "aB1+" not in shown

    def test_a_key_across_a_cut_is_masked_as_a_whole(self) -> None:
        key = KEYS["a GitHub token"]
        text = "x" * 90 + " " + key + " end"
        assert key[:12] not in masked_beginning(text, 105)
        assert masked_beginning(text, 105).startswith("x" * 90)
        assert key[-12:] not in masked_end(text, 20)
        assert masked_beginning("short", 100) == masked_end("short", 100) == "short"
