"""Where layers come from. Each function returns a nested dict."""

import json
from pathlib import Path

from layered.values import read_value


def from_json(path):
    """Read a JSON file; a file that does not exist is an empty layer."""
    file = Path(path)
    if not file.exists():
        return {}
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected an object at the top, not {type(content).__name__}")
    return content


def from_environment(prefix, environ):
    """Take the variables that begin with the prefix; two underscores lead into a section.

    >>> from_environment("APP", {"APP_SERVER__PORT": "9000", "HOME": "/root"})
    {'server': {'port': 9000}}
    """
    start = prefix + "_"
    layer = {}
    for name in sorted(environ):
        value = read_value(environ[name])
        if name.startswith(start) and value:
            _put(layer, name[len(start) :].lower().split("__"), value)
    return layer


def from_options(options):
    """Read the arguments of --set, such as "cache.ttl=300"."""
    layer = {}
    for option in options:
        name, found, text = option.partition("=")
        if not found or not name:
            raise ValueError(f"--set {option}: expected name=value")
        _put(layer, name.split("."), read_value(text))
    return layer


def _put(layer, path, value):
    for part in path[:-1]:
        layer = layer.setdefault(part, {})
        if not isinstance(layer, dict):
            raise ValueError(f"{'.'.join(path)}: {part} is a value already and no section")
    layer[path[-1]] = value
