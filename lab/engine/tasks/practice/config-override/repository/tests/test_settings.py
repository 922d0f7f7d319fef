import pytest

from layered import Settings

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
