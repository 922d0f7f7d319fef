"""What daemons and registries say when an image cannot be had is told in words, with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.sandboxes.image_errors import build_failed, cannot_be_had, does_not_fit

SAID = [
    (
        "failed to register layer: Error processing tar file: write /a: no space left on device",
        "make room there",
        False,
    ),
    (
        "no matching manifest for linux/arm64/v8 in the manifest list entries",
        "not there for this machine's architecture",
        False,
    ),
    (
        "pull access denied for team/a, repository does not exist or may require 'docker login': denied: "
        "requested access to the resource is denied",
        "mend the name, run `docker login`",
        False,
    ),
    (
        'Head "https://r.example/v2/a/manifests/1": unauthorized: access token expired',
        "wants to know who",
        False,
    ),
    ('Head "http://127.0.0.1:5000/v2/a/manifests/1": no basic auth credentials', "wants to know who", False),
    ("toomanyrequests: You have reached your pull rate limit.", "no more for now; wait", True),
    ('Get "https://r.example/v2/": http: server gave HTTP response to HTTPS client', "speaks no TLS", False),
    (
        'Get "https://r.example/v2/": x509: certificate signed by unknown authority',
        "certificate is not trusted",
        False,
    ),
    (
        'Get "https://r.example/v2/": dial tcp: lookup r.example: no such host',
        "does not reach its registry",
        True,
    ),
    ('Get "https://r.example/v2/": net/http: TLS handshake timeout', "does not reach its registry", True),
    ('Get "https://r.example/v2/": EOF', "does not reach its registry", True),
    ("manifest for r.example/a:1 not found: manifest unknown: manifest unknown", "mend name and tag", False),
    ("something nobody has heard of", "bring it by `docker pull` or `docker load`", True),
]


@pytest.mark.parametrize(("message", "way_out", "retryable"), SAID, ids=[said[0][:30] for said in SAID])
def test_a_message_is_explained_and_kept(message: str, way_out: str, retryable: bool) -> None:
    error = cannot_be_had("r.example/a:1", message)
    for words in ("the image r.example/a:1 cannot be had", way_out, message):
        assert words in str(error)
    assert error.retryable is retryable


def test_a_hash_that_looks_like_a_status_is_none() -> None:
    error = cannot_be_had("a@sha256:4010", "manifest for a@sha256:4010401 not found: manifest unknown")
    assert "mend name and tag" in str(error)


def test_a_build_that_fills_the_disk_says_so_and_shows_its_end() -> None:
    spec = SandboxSpec(label="test", scratch=Path("/s"), build=Path("/tasks/a/environment"))
    error = build_failed("a:1", spec, "write /x: no space left on device", ["Step 1/2 : FROM b", "writing"])
    for words in ("'/tasks/a/environment'", "make room there", "Step 1/2 : FROM b\nwriting"):
        assert words in str(error)


def test_what_does_not_fit_is_told_in_gigabytes() -> None:
    error = does_not_fit("a:1", 5 * 10**9, 4 * 10**9, 10**9 // 2, "at least ")
    for words in ("at least 5.00 GB", "4.00 GB", "passed by 0.50 GB", "LAB_DOCKER_DISK_GB"):
        assert words in str(error)
