"""Task sets whose repositories are downloaded when somebody asks for them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import httpx2
from django.conf import settings
from packaging.utils import InvalidSdistFilename, parse_sdist_filename
from packaging.version import Version

from lab.engine.errors import InfrastructureError, InvalidValueError
from lab.engine.tasks.releases import make_release_fixes, release_fixes
from lab.models import TaskSet
from lab.services.tasks import sync_task_set

_SECONDS = 60.0
_JSON = "application/vnd.pypi.simple.v1+json"


def known_sets() -> list[str]:
    """The names of the task sets that can be fetched."""
    return [release_fixes().name]


def fetch(name: str) -> TaskSet:
    """The task set of this name, its repositories downloaded into the data folder when they are not there.

    Raises:
        InvalidValueError: a name nobody knows, or a data folder that cannot be written.
        InfrastructureError: something cannot be downloaded, or is not what it should be.
    """
    if name not in known_sets():
        raise InvalidValueError("set", name, f"cannot be fetched; choose one of {', '.join(known_sets())}")
    try:
        folder = make_release_fixes(Path(settings.LAB_DATA_DIR) / "task-sets", source_distribution)
    except OSError as error:
        raise InvalidValueError(
            "LAB_DATA_DIR",
            str(settings.LAB_DATA_DIR),
            f"cannot hold the task set ({error.strerror}); name a folder the lab may write",
        ) from error
    return sync_task_set(folder=folder)


def source_distribution(package: str, version: str) -> bytes:
    """A package's source distribution from the package index of the settings.

    Raises:
        InfrastructureError: the index does not answer, or has none of this version.
        InvalidValueError: as `package_index`.
    """
    index = package_index()
    page = _got(f"{index}/{package}/", accept=_JSON)
    try:
        files: list[dict[str, Any]] = page.json()["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(
            f"LAB_PACKAGE_INDEX: {index} has no list of {package}'s files as JSON; name an index that does",
            retryable=False,
        ) from error
    for file in files:
        if _version_of(str(file["filename"])) == Version(version):
            return _got(str(page.url.join(str(file["url"])))).content
    raise InfrastructureError(
        f"{package} {version}: {index} has no source distribution of it", retryable=False
    )


def package_index() -> str:
    """The address of the index: the setting's, else the one that pip asks when nothing else is configured.

    Raises:
        InvalidValueError: neither is there.
    """
    if settings.LAB_PACKAGE_INDEX:
        return str(settings.LAB_PACKAGE_INDEX).rstrip("/")
    try:
        # It has stood there since 2018; pip tells it nowhere else.
        public = importlib.import_module("pip._internal.models.index").PyPI.simple_url
    except (ImportError, AttributeError) as error:
        raise InvalidValueError(
            "LAB_PACKAGE_INDEX", "", "is not set, and pip, which knows one, is not installed; name an index"
        ) from error
    return str(public).rstrip("/")


def _version_of(filename: str) -> Version | None:
    try:
        return parse_sdist_filename(filename)[1]
    except InvalidSdistFilename:
        return None


def _got(url: str, *, accept: str = "*/*") -> httpx2.Response:
    try:
        answer = httpx2.get(url, headers={"Accept": accept}, follow_redirects=True, timeout=_SECONDS)
        return answer.raise_for_status()
    except httpx2.HTTPError as error:
        raise InfrastructureError(
            f"{url} cannot be downloaded: {error or type(error).__name__}; check the network, or let "
            "LAB_PACKAGE_INDEX name a package index that can be reached"
        ) from error
