import pytest

from layered import from_environment, from_json, from_options


def test_environment_takes_only_its_prefix():
    environ = {"APP_SERVER__PORT": "9000", "APPLE": "1", "HOME": "/root", "APP_DEBUG": "on"}
    assert from_environment("APP", environ) == {"debug": True, "server": {"port": 9000}}


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("-2.5", -2.5), ("yes", True), ("[a,1]", ["a", 1]), ("1.2.3", "1.2.3"), ("text", "text")],
)
def test_values_are_what_they_look_like(text, value):
    assert from_environment("APP", {"APP_X": text}) == {"x": value}


def test_options():
    assert from_options(["cache.ttl=300", "name=a=b"]) == {"cache": {"ttl": 300}, "name": "a=b"}


@pytest.mark.parametrize("option", ["cache.ttl", "=5"])
def test_options_without_name_or_value(option):
    with pytest.raises(ValueError, match="expected name=value"):
        from_options([option])


def test_a_missing_file_is_an_empty_layer(tmp_path):
    assert from_json(tmp_path / "none.json") == {}


def test_a_file_must_hold_an_object(tmp_path):
    file = tmp_path / "settings.json"
    file.write_text("[1]")
    with pytest.raises(ValueError, match="expected an object"):
        from_json(file)
