"""Short names and where their code is, imported when first asked for.

A full dotted path (`package.module:Name`) is accepted everywhere too, so that people plug in their own.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, cast

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import Family
from lab.engine.sandboxes.base import SandboxProvider
from lab.engine.tools.base import Executor

FAMILIES = {
    "leaf": "lab.engine.harnesses.leaf:Leaf",
    "mini": "lab.engine.harnesses.mini:Mini",
    "r2e": "lab.engine.harnesses.r2e:R2E",
    "swe-agent": "lab.engine.harnesses.swe_agent:SWEAgent",
}

PROVIDERS = {
    "bubblewrap": "lab.engine.sandboxes.bubblewrap:BubblewrapProvider",
    "docker": "lab.engine.sandboxes.docker:DockerProvider",
    "process": "lab.engine.sandboxes.process:ProcessProvider",
}

EXECUTORS = {
    "bash": "lab.engine.tools.bash:Bash",
    "edit": "lab.engine.tools.edit:Edit",
    "execute_bash": "lab.engine.tools.execute_bash:ExecuteBash",
    "file_editor": "lab.engine.tools.file_editor:FileEditor",
    "finish": "lab.engine.tools.finish:Finish",
    "glob": "lab.engine.tools.glob:Glob",
    "read": "lab.engine.tools.read:Read",
    "search": "lab.engine.tools.search:Search",
    "shell": "lab.engine.tools.shell:Shell",
    "str_replace_editor": "lab.engine.tools.str_replace_editor:StrReplaceEditor",
    "submit": "lab.engine.tools.submit:Submit",
    "write": "lab.engine.tools.write:Write",
}


def family(name: str) -> Family:
    """Raises: InvalidValueError for a name nobody knows."""
    return cast(Family, _load("family", FAMILIES, name)())


def provider(name: str) -> SandboxProvider:
    """A provider of sandboxes; each call makes a new one. Raises: InvalidValueError."""
    return cast(SandboxProvider, _load("sandbox", PROVIDERS, name)())


def executor(name: str) -> Executor:
    """Raises: InvalidValueError for a name nobody knows."""
    return cast(Executor, _load("executor", EXECUTORS, name)())


@functools.cache
def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _load(field: str, table: dict[str, str], name: str) -> Any:
    path = table.get(name, name)
    if ":" not in path:
        known = ", ".join(sorted(table))
        raise InvalidValueError(
            field, name, f"is not known; choose one of {known}, or give package.module:Name"
        )
    try:
        return _import(path)
    except (ImportError, AttributeError) as error:
        raise InvalidValueError(field, name, f"cannot be loaded: {error}") from error
