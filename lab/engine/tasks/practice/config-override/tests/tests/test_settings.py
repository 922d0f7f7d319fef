import pytest

from layered import Settings, from_environment, from_json, from_options

DEFAULTS = {"server": {"host": "127.0.0.1", "port": 8000}, "cache": {"enabled": True, "ttl": 60}}


def test_the_last_layer_wins():
    settings = Settings(DEFAULTS, {"server": {"port": 9000}}, {"server": {"port": 9001}})
    assert settings["server.port"] == 9001
    assert settings.origin("server.port") == 2


def test_sections_are_merged_key_by_key():
    settings = Settings(DEFAULTS, {"server": {"port": 9000}})
    assert settings.section("server") == {"host": "127.0.0.1", "port": 9000}
    assert settings.origin("server.host") == 0


def test_lists_are_replaced_as_a_whole():
    assert Settings({"tags": ["a", "b"]}, {"tags": ["c"]})["tags"] == ["c"]


def test_null_leaves_the_decision_to_earlier_layers():
    settings = Settings(DEFAULTS, {"server": {"port": None}})
    assert settings["server.port"] == 8000
    assert settings.origin("server.port") == 0
    assert Settings(DEFAULTS, {"server": None}).section("server") == DEFAULTS["server"]


def test_an_empty_section_changes_nothing():
    assert Settings(DEFAULTS, {"server": {}}).section("server") == DEFAULTS["server"]


def test_a_value_replaces_a_section():
    settings = Settings(DEFAULTS, {"cache": "none"})
    assert settings["cache"] == "none"
    assert "cache.ttl" not in settings


def test_falsy_defaults_are_there():
    settings = Settings({"debug": False, "workers": 0})
    assert settings["debug"] is False
    assert settings["workers"] == 0


def test_unknown_names():
    assert Settings(DEFAULTS).get("server.name", "x") == "x"
    with pytest.raises(KeyError):
        Settings(DEFAULTS)["server.name"]


@pytest.mark.parametrize("value", [False, 0, 0.0, "", []], ids=["false", "zero", "float", "empty", "list"])
def test_a_value_that_means_nothing_still_wins(value):
    settings = Settings({"x": "before"}, {"x": value})
    assert settings["x"] == value
    assert settings.origin("x") == 1


def test_null_over_a_falsy_value_keeps_it():
    settings = Settings({"x": True}, {"x": False}, {"x": None})
    assert settings["x"] is False
    assert settings.origin("x") == 1


def test_options_can_switch_off():
    settings = Settings(DEFAULTS, from_options(["cache.enabled=off", "server.port=0"]))
    assert settings["cache.enabled"] is False
    assert settings["server.port"] == 0


def test_the_environment_can_switch_off():
    environ = {"APP_CACHE__ENABLED": "false", "APP_CACHE__TTL": "0", "APP_SERVER__HOST": ""}
    settings = Settings(DEFAULTS, from_environment("APP", environ))
    assert settings["cache.enabled"] is False
    assert settings["cache.ttl"] == 0
    assert settings["server.host"] == ""
    assert settings.origin("cache.enabled") == 1


def test_json_can_switch_off(tmp_path):
    file = tmp_path / "settings.json"
    file.write_text('{"cache": {"enabled": false, "ttl": null}}')
    settings = Settings(DEFAULTS, from_json(file))
    assert settings["cache.enabled"] is False
    assert settings["cache.ttl"] == 60
