"""What the form for endpoints is told about a URL, a key and a model id."""

from __future__ import annotations

import gzip
import json

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.llm.endpoint import ListedModel, NoModelListError, check_model, list_models, normal_base_url
from tests.fakes.openai_server import Answer, FakeOpenAI, html, models, plain, says


def refused(listed: Answer, *, base_url: str = "", timeout: float = 60.0) -> InvalidValueError:
    with FakeOpenAI(listed=listed) as server, pytest.raises(InvalidValueError) as caught:
        list_models(base_url or server.base_url, "secret-key", timeout=timeout, key_variable="MY_KEY")
    assert "secret-key" not in str(caught.value)
    return caught.value


class TestListing:
    @pytest.mark.parametrize(
        ("entry", "window"),
        [
            ({"id": "m", "max_model_len": 131_072}, 131_072),
            ({"id": "m", "context_length": 200_000}, 200_000),
            ({"id": "m", "context_window": 8192}, 8192),
            ({"id": "m", "context_window": 10**30}, None),
            ({"id": "m", "max_model_len": 10**30, "context_window": 8192}, 8192),
            ({"id": "m", "meta": {"n_ctx_train": 32_768}}, 32_768),
            ({"id": "m", "meta": {"n_ctx": 4096, "n_ctx_train": 32_768}}, 4096),
            ({"id": "m", "max_model_len": None}, None),
            ({"id": "m", "max_model_len": "many"}, None),
            ({"id": "m", "max_model_len": 10**30}, None),
            ({"id": "m"}, None),
        ],
    )
    def test_the_context_window_is_read_where_servers_write_it(self, entry: dict, window: int | None) -> None:
        with FakeOpenAI(listed=models(entry)) as server:
            assert list_models(server.base_url, "") == [ListedModel("m", window)]

    def test_key_and_headers_are_sent(self) -> None:
        with FakeOpenAI() as server:
            list_models(server.base_url + "/", "k", {"X-Team": "lab"})
        assert server.requests[0].path == "/v1/models"
        assert server.requests[0].headers["authorization"] == "Bearer k"
        assert server.requests[0].headers["x-team"] == "lab"

    def test_a_list_without_its_envelope_and_compressed_is_read(self) -> None:
        packed = gzip.compress(json.dumps([{"id": "a"}, {"no": "id"}, "b"]).encode())
        listed = Answer(
            pieces=[packed], content_type="application/json", headers={"Content-Encoding": "gzip"}
        )
        with FakeOpenAI(listed=listed) as server:
            assert list_models(server.base_url, "") == [ListedModel("a", None)]


class TestRefusals:
    def test_a_wrong_key_names_the_variable(self) -> None:
        error = refused(plain({"error": {"message": "bad key"}}, status=401))
        assert (error.field, error.value) == ("key", "MY_KEY")
        assert "status 401" in error.reason
        assert "bad key" in error.reason

    def test_a_web_page_hints_at_v1(self) -> None:
        error = refused(html())
        assert error.field == "base_url"
        assert "HTML page" in error.reason

    def test_a_base_url_without_v1_is_told_what_to_try(self) -> None:
        with FakeOpenAI(listed=html()) as server, pytest.raises(InvalidValueError) as caught:
            list_models(server.base_url.removesuffix("/v1"), "")
        assert f"try {server.base_url}" in caught.value.reason

    @pytest.mark.parametrize(
        "listed",
        [
            plain({"hello": 1}),
            Answer(pieces=[b"ok"]),
            plain({"error": "x"}, status=500),
            Answer(pieces=[b"[" * 99_999]),
        ],
        ids=["other json", "no json", "broken", "deep"],
    )
    def test_anything_else_that_is_no_list_is_a_wrong_base_url(self, listed: Answer) -> None:
        assert refused(listed).field == "base_url"

    def test_a_server_that_does_not_answer_in_time_is_named(self) -> None:
        error = refused(Answer(delay=60), timeout=0.4)
        assert error.field == "base_url"
        assert "did not answer within 0.4 s" in error.reason

    def test_a_server_that_drips_is_given_up_when_the_time_is_over(self) -> None:
        error = refused(Answer(pieces=[b" "] * 2000, pause=0.1), timeout=1.0)
        assert "did not answer within 1 s" in error.reason

    def test_a_redirect_loop_is_called_so(self) -> None:
        error = refused(Answer(status=302, headers={"Location": "/v1/models"}))
        assert (error.field, "redirects in a loop" in error.reason) == ("base_url", True)

    def test_a_key_that_was_not_sent_is_said_to_be_missing(self) -> None:
        denied = plain({"error": {"message": "no key"}}, status=401)
        with FakeOpenAI(listed=denied) as server, pytest.raises(InvalidValueError) as caught:
            list_models(server.base_url, "")
        assert str(caught.value).startswith(f"key: 'no key' was sent, and {server.base_url} wants one")
        assert "name the variable that holds the key" in caught.value.reason

    @pytest.mark.parametrize("sign", ["\u200b", "\u00ad", "\ufeff", "\t", " ", "\u00a0", "\x00"])
    def test_an_invisible_character_in_the_url_is_refused(self, sign: str) -> None:
        with pytest.raises(InvalidValueError, match="at position 10; write it without"):
            normal_base_url(f"http://x/{sign}v1")

    def test_a_list_that_never_ends_is_broken_off(self) -> None:
        assert refused(Answer(pieces=[b"[1, " * 20_000], endless=True)).field == "base_url"

    def test_a_closed_port_cannot_be_reached(self) -> None:
        with FakeOpenAI() as server:
            url = server.base_url
        error = refused(models(), base_url=url)
        assert (error.field, error.value) == ("base_url", url)
        assert "cannot be reached" in error.reason

    @pytest.mark.parametrize(
        "text",
        ["", "localhost:8000/v1", "ftp://x/v1", "http://", "/v1", "http://a:b:c/", "http://x:99999/v1"],
    )
    def test_what_is_no_url_says_how_one_looks(self, text: str) -> None:
        with pytest.raises(InvalidValueError) as caught:
            normal_base_url(text)
        assert caught.value.field == "base_url"

    def test_a_login_in_the_url_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(InvalidValueError, match="holds a login") as caught:
            normal_base_url("http://me:hidden-password@x:80/v1")
        assert "hidden-password" not in str(caught.value)

    def test_the_address_of_a_call_is_shortened_by_hint(self) -> None:
        with pytest.raises(InvalidValueError, match="write http://x/v1$"):
            normal_base_url("http://x/v1/chat/completions")

    def test_white_space_and_closing_slashes_do_no_harm(self) -> None:
        assert normal_base_url(" http://x:80/v1/ \n") == "http://x:80/v1"


class TestModels:
    @pytest.mark.parametrize("listed", [html(), models()])
    def test_a_list_that_says_nothing_is_made_up_for_by_a_token(self, listed: Answer) -> None:
        with FakeOpenAI(says("Hi"), listed=listed) as server:
            assert check_model(server.base_url, "any", "") == ListedModel("any", None)
            assert server.calls[0].body["max_tokens"] == 1
        with FakeOpenAI(html(), listed=listed) as server, pytest.raises(InvalidValueError) as caught:
            check_model(server.base_url, "any", "")
        assert caught.value.field == "base_url"
        assert "A chat request failed as well" in caught.value.reason

    def test_a_listed_model_is_found_with_its_window(self) -> None:
        with FakeOpenAI(listed=models("a", {"id": "b", "max_model_len": 9})) as server:
            assert check_model(server.base_url, "b", "") == ListedModel("b", 9)

    def test_an_unknown_model_is_answered_with_what_there_is(self) -> None:
        many = models(*[f"model-{number}" for number in range(30)])
        with FakeOpenAI(listed=many) as server, pytest.raises(InvalidValueError) as caught:
            check_model(server.base_url, "modle-1", "")
        assert (caught.value.field, caught.value.value) == ("model_id", "modle-1")
        assert "model-0, model-1" in caught.value.reason
        assert "and 18 more" in caught.value.reason

    def test_a_server_without_a_list_is_asked_for_one_token(self) -> None:
        missing = plain({"error": {"message": "nothing here"}}, status=404)
        with FakeOpenAI(says("Hi", finish="length"), listed=missing) as server:
            with pytest.raises(NoModelListError):
                list_models(server.base_url, "")
            assert check_model(server.base_url, "any", "") == ListedModel("any", None)
        assert server.calls[0].body["max_tokens"] == 1

    @pytest.mark.parametrize(
        "listed", [plain({"detail": "not for you"}, status=403), html(status=403), html(status=404)]
    )
    def test_a_list_that_is_refused_says_nothing_of_the_model(self, listed: Answer) -> None:
        with FakeOpenAI(says("Hi", finish="length"), listed=listed) as server:
            with pytest.raises(NoModelListError, match=f"status {listed.status}"):
                list_models(server.base_url, "")
            assert check_model(server.base_url, "any", "") == ListedModel("any", None)

    def test_a_key_for_which_list_and_answer_are_refused_is_wrong(self) -> None:
        forbidden = plain({"error": {"message": "bad key"}}, status=403)
        with FakeOpenAI(forbidden, listed=forbidden) as server, pytest.raises(InvalidValueError) as caught:
            check_model(server.base_url, "any", "sk-1234567890", key_variable="MY_KEY")
        assert (caught.value.field, caught.value.value) == ("key", "MY_KEY")
        assert "(status 403): bad key" in caught.value.reason

    def test_a_refusal_for_another_reason_than_the_key_says_so(self) -> None:
        forbidden = plain({"error": {"message": "Access denied for this region."}}, status=403)
        with FakeOpenAI(forbidden, listed=forbidden) as server, pytest.raises(InvalidValueError) as caught:
            check_model(server.base_url, "any", "sk-1234567890", key_variable="MY_KEY")
        assert caught.value.field == "base_url"
        assert "refuses access (status 403): Access denied for this region;" in caught.value.reason
        assert "was refused by" not in caught.value.reason

    def test_a_server_that_knows_neither_call_is_a_wrong_base_url(self) -> None:
        missing = plain({"error": {"message": "nothing here"}}, status=404)
        with FakeOpenAI(missing, listed=missing) as server, pytest.raises(InvalidValueError) as caught:
            check_model(server.base_url, "any", "")
        assert caught.value.field == "base_url"
        assert "; check the path. A chat request failed as well: " in caught.value.reason

    def test_the_time_is_for_both_requests_together(self) -> None:
        missing = plain({"error": {"message": "nothing here"}}, status=404)
        drip = Answer(pieces=[b": wait\n\n"] * 2000, pause=0.1)
        with FakeOpenAI(drip, listed=missing) as server, pytest.raises(InvalidValueError) as caught:
            check_model(server.base_url, "any", "", timeout=1.0)
        assert "did not answer within 1 s" in caught.value.reason
