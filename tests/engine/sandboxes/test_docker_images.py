"""Images are pulled from a real registry and built by a real daemon, broken off, refused, made room for."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import docker
import pytest

from lab.engine.errors import ExitReason, SandboxLostError
from lab.engine.sandboxes.base import Image, SandboxSpec
from lab.engine.sandboxes.docker_images import ensure_image, pack_context
from lab.engine.stop import StopSignal
from tests.docker_host import Registry, busybox_image

pytestmark = pytest.mark.requires("docker")
MEGABYTE = 1024**2

Build = Callable[..., SandboxSpec]


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env(timeout=60)
    yield client
    client.close()


@pytest.fixture
def build(tmp_path: Path, client: docker.DockerClient) -> Iterator[Build]:
    """A specification to build from these lines, unlike every other one; its image goes after the test."""
    made: list[str] = []

    def specify(*lines: str, files: dict[str, bytes] | None = None, network: bool = False) -> SandboxSpec:
        folder = tmp_path / f"folder-{len(made)}"
        folder.mkdir()
        own = secrets.token_hex(8)
        text = "\n".join([f"# {own}", f"FROM {busybox_image()}", *lines])
        (folder / "Dockerfile").write_text(text + "\n")
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content)
        made.append(f"lab-test/built:{own}")
        return SandboxSpec(
            label="test", scratch=tmp_path / "data" / "sandboxes", image=made[-1], build=folder,
            build_network=network,
        )  # fmt: skip

    yield specify
    for reference in made:
        _forget(client, reference)


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry()
    registry.start()
    yield registry
    registry.remove()


def _forget(client: docker.DockerClient, reference: str) -> None:
    with contextlib.suppress(docker.errors.NotFound):
        client.api.remove_image(reference, force=True)


def _has(client: docker.DockerClient, reference: str) -> bool:
    return bool(client.api.images(reference))


class Heard:
    """What progress was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int | None, int | None]] = []

    def __call__(self, text: str, done: int | None, total: int | None) -> None:
        self.told.append((text, done, total))

    @property
    def text(self) -> str:
        return "\n".join(text for text, _, _ in self.told)


def pullable(client: docker.DockerClient, build: Build, registry: Registry, size: int) -> SandboxSpec:
    """An image of `size` random bytes that only the registry has."""
    spec = build("COPY data /data", files={"data": secrets.token_bytes(size)})
    ensure_image(client, spec)
    pushed = registry.push(spec.image, f"test/{secrets.token_hex(4)}:1")
    _forget(client, spec.image)
    return SandboxSpec(label="test", scratch=spec.scratch, image=pushed)


class TestPresent:
    def test_one_that_is_there_is_had_at_once_and_told_to_nobody(
        self, client: docker.DockerClient, tmp_path: Path
    ) -> None:
        heard = Heard()
        spec = SandboxSpec(label="test", scratch=tmp_path / "sandboxes", image=busybox_image())
        image = ensure_image(client, spec, progress=heard)
        assert (image.reference, heard.told) == (busybox_image(), [])
        assert image.identifier == client.images.get(busybox_image()).id
        assert image.size_bytes

    def test_one_for_another_processor_is_refused_with_both(
        self, client: docker.DockerClient, tmp_path: Path
    ) -> None:
        reference = f"lab-test/foreign:{secrets.token_hex(4)}"
        _load_for(client, reference, "s390x")
        try:
            spec = SandboxSpec(label="test", scratch=tmp_path / "sandboxes", image=reference)
            with pytest.raises(
                SandboxLostError, match=r"is for linux/s390x, and .* machine is linux/"
            ) as caught:
                ensure_image(client, spec)
        finally:
            _forget(client, reference)
        assert not caught.value.retryable

    def test_no_image_at_all_says_what_to_write(self, client: docker.DockerClient, tmp_path: Path) -> None:
        with pytest.raises(SandboxLostError, match=r"\[environment\] image or build"):
            ensure_image(client, SandboxSpec(label="test", scratch=tmp_path / "sandboxes"))


@pytest.mark.requires("docker registry")
class TestPulling:
    def test_bytes_are_summed_over_layers_and_the_digest_is_kept(
        self, client: docker.DockerClient, build: Build, registry: Registry
    ) -> None:
        spec = pullable(client, build, registry, 6 * MEGABYTE)
        heard = Heard()
        image = ensure_image(client, spec, progress=heard)
        try:
            assert heard.told[0] == (f"pulling {spec.image}", None, None)
            assert max(done or 0 for _, done, _ in heard.told) >= 6 * MEGABYTE
            assert all(total is None or total >= (done or 0) for _, done, total in heard.told)
            assert image.digest.startswith(f"{spec.image.rpartition(':')[0]}@sha256:")
            by_digest = SandboxSpec(label="test", scratch=spec.scratch, image=image.digest)
            assert ensure_image(client, by_digest).identifier == image.identifier
        finally:
            _forget(client, spec.image)

    def test_a_name_the_registry_does_not_have(
        self, client: docker.DockerClient, registry: Registry, tmp_path: Path
    ) -> None:
        spec = SandboxSpec(label="test", scratch=tmp_path / "s", image=f"{registry.url}/nobody/nothing:1")
        with pytest.raises(
            SandboxLostError, match=r"nobody/nothing:1 .* does not have it; mend name"
        ) as caught:
            ensure_image(client, spec)
        assert not caught.value.retryable

    def test_a_registry_that_lets_nobody_in_asks_for_a_login(
        self, client: docker.DockerClient, tmp_path: Path
    ) -> None:
        with _guarded_registry() as address:
            spec = SandboxSpec(label="test", scratch=tmp_path / "s", image=f"{address}/team/private:1")
            with pytest.raises(SandboxLostError, match="who asks; run `docker login`") as caught:
                ensure_image(client, spec)
        assert not caught.value.retryable

    def test_what_a_build_begins_from_is_pulled_with_progress_and_counts_as_brought(
        self, client: docker.DockerClient, build: Build, registry: Registry, tmp_path: Path
    ) -> None:
        below = pullable(client, build, registry, 3 * MEGABYTE)
        folder = tmp_path / "above"
        folder.mkdir()
        (folder / "Dockerfile").write_text(f"FROM {below.image}\nRUN true\n")
        above = SandboxSpec(label="test", scratch=below.scratch, build=folder)
        heard = Heard()
        image = ensure_image(client, above, progress=heard)
        try:
            assert max(done or 0 for _, done, _ in heard.told) >= 3 * MEGABYTE
            brought = [
                json.loads(file.read_text()) for file in (below.scratch.parent / "images").glob("*.json")
            ]
            assert {below.image, image.reference} <= {one["reference"] for one in brought}
        finally:
            _forget(client, image.reference)
            _forget(client, below.image)


class TestPullingFromNowhere:
    def test_a_registry_that_is_not_there_may_come_back(
        self, client: docker.DockerClient, tmp_path: Path
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        spec = SandboxSpec(label="test", scratch=tmp_path / "s", image=f"127.0.0.1:{port}/a/b:1")
        with pytest.raises(
            SandboxLostError, match=r"does not reach its registry; .* `docker load`"
        ) as caught:
            ensure_image(client, spec)
        assert caught.value.retryable

    def test_one_that_never_answers_is_broken_off(self, client: docker.DockerClient, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            name = f"127.0.0.1:{silent.getsockname()[1]}/a/b:1"
            spec = SandboxSpec(label="test", scratch=tmp_path / "s", image=name)
            with pytest.raises(SandboxLostError, match="broken off"):
                ensure_image(client, spec, stop=_set_soon())

    def test_no_daemon_says_so(self, tmp_path: Path) -> None:
        nobody = docker.DockerClient(base_url=f"unix://{tmp_path}/nobody.sock", version="1.41")
        spec = SandboxSpec(label="test", scratch=tmp_path / "s", image="a/b:1")
        with pytest.raises(SandboxLostError, match="no Docker daemon answers there; install Docker"):
            ensure_image(nobody, spec)


class TestBuilding:
    def test_the_same_folder_is_built_once(self, client: docker.DockerClient, build: Build) -> None:
        spec = build("RUN echo made > /made")
        first, second = Heard(), Heard()
        image = ensure_image(client, spec, progress=first)
        assert ensure_image(client, spec, progress=second) == image
        assert "Step 2/" in first.text
        assert second.told == []

    def test_without_a_name_of_its_own_it_is_named_by_its_content(
        self, client: docker.DockerClient, build: Build
    ) -> None:
        spec = build("RUN true")
        assert spec.build is not None
        unnamed = SandboxSpec(label="test", scratch=spec.scratch, build=spec.build)
        image = ensure_image(client, unnamed)
        try:
            assert image.reference.startswith("trajectory-lab/folder-0:")
            (spec.build / "more").write_text("content")
            other = ensure_image(client, unnamed)
            _forget(client, other.reference)
            assert other.reference != image.reference
        finally:
            _forget(client, image.reference)

    def test_asked_for_by_several_at_once_it_is_built_once(
        self, client: docker.DockerClient, build: Build
    ) -> None:
        spec = build("RUN sleep 1; cat /proc/sys/kernel/random/uuid > /made")
        heard, images = [Heard() for _ in range(3)], []

        def ask(progress: Heard) -> None:
            images.append(ensure_image(docker.from_env(), spec, progress=progress))

        threads = [threading.Thread(target=ask, args=(one,)) for one in heard]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert len({image.identifier for image in images}) == 1
        assert len(images) == 3
        assert sum("Step 2/" in one.text for one in heard) == 1
        assert sum("which another run gets" in one.text for one in heard) == 2

    def test_a_command_that_fails_shows_the_end_of_what_was_said(
        self, client: docker.DockerClient, build: Build
    ) -> None:
        spec = build("RUN echo before the end && exit 3")
        with pytest.raises(
            SandboxLostError, match=r"cannot be built .* code: 3; mend the Dockerfile"
        ) as caught:
            ensure_image(client, spec)
        assert "before the end" in str(caught.value)
        assert not caught.value.retryable

    def test_one_that_fails_leaves_no_nameless_image_and_not_one_image_less(
        self, client: docker.DockerClient, build: Build
    ) -> None:
        own = secrets.token_hex(8)
        for lines in ([f"RUN echo {own} > /own", "RUN false"], ["RUN false"]):
            with pytest.raises(SandboxLostError, match="cannot be built"):
                ensure_image(client, build(*lines))
        nameless = client.api.images(filters={"dangling": True}, quiet=True)
        assert [one for one in nameless if own in str(client.api.history(one))] == []
        assert client.images.get(busybox_image())

    def test_a_line_that_is_none_of_a_dockerfile(self, client: docker.DockerClient, build: Build) -> None:
        with pytest.raises(SandboxLostError, match="cannot be built .*unknown instruction: RAN"):
            ensure_image(client, build("RAN true"))

    def test_it_reaches_no_network_unless_the_task_says_so(
        self, client: docker.DockerClient, build: Build
    ) -> None:
        assert _network_of_build(client, build("RUN echo begun; sleep 600")) == "none"
        # A daemon without its bridge says so instead of making one.
        assert _network_of_build(client, build("RUN echo begun; sleep 600", network=True)) in (
            "default",
            "network bridge",
        )

    def test_a_command_that_needed_it_is_told_of_the_key(
        self, client: docker.DockerClient, build: Build
    ) -> None:
        with pytest.raises(SandboxLostError, match=r"reach no network; write build_network = true"):
            ensure_image(client, build("RUN wget http://example.invalid/"))

    def test_stop_ends_it_and_what_it_ran(self, client: docker.DockerClient, build: Build) -> None:
        own = secrets.token_hex(8)
        spec = build(f"RUN echo begun; sleep 600 # {own}")
        stop, heard = StopSignal(), Heard()

        def hear(text: str, done: int | None, total: int | None) -> None:
            heard(text, done, total)
            if text.endswith("begun"):
                stop.set(ExitReason.CANCELLED)

        with pytest.raises(SandboxLostError, match="broken off"):
            ensure_image(client, spec, progress=hear, stop=stop)
        deadline = time.monotonic() + 60
        while own in str(client.api.containers(all=True)):
            assert time.monotonic() < deadline, "its container is still there"
            time.sleep(0.1)
        assert not _has(client, spec.image)

    def test_what_dockerignore_names_is_not_sent(self, build: Build) -> None:
        spec = build("COPY . /all", files={".dockerignore": b"# no\n*.log\n", "a.log": b"", "b": b""})
        assert spec.build is not None
        (spec.build / "link").symlink_to("b")
        with tarfile.open(fileobj=io.BytesIO(pack_context(spec.build))) as tar:
            assert sorted(tar.getnames()) == [".dockerignore", "Dockerfile", "b", "link"]
            assert tar.getmember("link").linkname == "b"


class TestDisk:
    """Sizes are those of the layer that each image adds to a base of some megabytes."""

    @pytest.fixture
    def three(self, client: docker.DockerClient, build: Build) -> list[Image]:
        """Three images of ten megabytes, the first used longest ago."""
        images = []
        for number in range(3):
            spec = build("COPY data /data", files={"data": secrets.token_bytes(10 * MEGABYTE)})
            images.append(ensure_image(client, spec))
            _used(spec, images[-1], hours_ago=10 - number)
        return images

    def test_what_was_used_longest_ago_goes_first(
        self, client: docker.DockerClient, build: Build, three: list[Image]
    ) -> None:
        spec = build("COPY data /data", files={"data": secrets.token_bytes(10 * MEGABYTE)})
        size = three[0].size_bytes or 0
        ensure_image(client, spec, budget_bytes=3 * size + MEGABYTE)
        assert [_has(client, image.reference) for image in three] == [False, True, True]

    def test_what_a_container_is_made_from_stays(
        self, client: docker.DockerClient, build: Build, three: list[Image]
    ) -> None:
        container = client.containers.create(three[0].reference, ["true"])
        try:
            spec = build("COPY data /data", files={"data": secrets.token_bytes(10 * MEGABYTE)})
            ensure_image(client, spec, budget_bytes=3 * (three[0].size_bytes or 0) + MEGABYTE)
            assert [_has(client, image.reference) for image in three] == [True, False, True]
        finally:
            container.remove(force=True)

    def test_using_one_again_keeps_it(
        self, client: docker.DockerClient, build: Build, three: list[Image], tmp_path: Path
    ) -> None:
        again = SandboxSpec(label="test", scratch=tmp_path / "data" / "sandboxes", image=three[0].reference)
        ensure_image(client, again)
        spec = build("COPY data /data", files={"data": secrets.token_bytes(10 * MEGABYTE)})
        ensure_image(client, spec, budget_bytes=3 * (three[0].size_bytes or 0) + MEGABYTE)
        assert [_has(client, image.reference) for image in three] == [True, False, True]

    def test_what_the_lab_did_not_bring_is_never_removed(
        self, client: docker.DockerClient, build: Build
    ) -> None:
        theirs = f"lab-test/theirs:{secrets.token_hex(4)}"
        _load_for(client, theirs, "amd64")
        try:
            spec = build("RUN true")
            with pytest.raises(SandboxLostError, match="does not fit"):
                ensure_image(client, spec, budget_bytes=1)
            assert _has(client, theirs)
            assert _has(client, busybox_image())
        finally:
            _forget(client, theirs)

    def test_what_others_are_built_on_stays(
        self, client: docker.DockerClient, build: Build, three: list[Image], tmp_path: Path
    ) -> None:
        folder = tmp_path / "above"
        folder.mkdir()
        (folder / "Dockerfile").write_text(f"FROM {three[0].reference} AS base\nFROM base\nRUN true\n")
        above = SandboxSpec(label="test", scratch=tmp_path / "data" / "sandboxes", build=folder)
        image = ensure_image(client, above)
        try:
            _used(above, image, hours_ago=0)
            _used(above, three[0], hours_ago=10)
            ensure_image(client, build("RUN true"), budget_bytes=4 * (three[0].size_bytes or 0) + MEGABYTE)
            assert [_has(client, one.reference) for one in (*three, image)] == [True, False, True, True]
        finally:
            _forget(client, image.reference)

    def test_one_that_does_not_fit_is_refused_with_numbers_and_gone(
        self, client: docker.DockerClient, build: Build
    ) -> None:
        spec = build("COPY data /data", files={"data": bytes(30 * MEGABYTE)})
        with pytest.raises(
            SandboxLostError, match=r"takes 0\.03 GB, .* may take 0\.01 GB.*LAB_DOCKER_DISK_GB"
        ):
            ensure_image(client, spec, budget_bytes=10 * MEGABYTE)
        assert not _has(client, spec.image)

    @pytest.mark.requires("docker registry")
    def test_a_pull_that_will_not_fit_is_broken_off(
        self, client: docker.DockerClient, build: Build, registry: Registry
    ) -> None:
        spec = pullable(client, build, registry, 6 * MEGABYTE)
        with pytest.raises(SandboxLostError, match="does not fit"):
            ensure_image(client, spec, budget_bytes=2 * MEGABYTE)
        assert not _has(client, spec.image)


@contextlib.contextmanager
def _guarded_registry() -> Iterator[str]:
    """A registry that asks everybody for a password; its address."""

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _network_of_build(client: docker.DockerClient, spec: SandboxSpec) -> str:
    """The network that the commands of this build are given, which says “begun” and then waits."""
    stop, modes = StopSignal(), []

    def hear(text: str, done: int | None, total: int | None) -> None:
        if "Running in " in text:
            with contextlib.suppress(docker.errors.NotFound):
                container = client.api.inspect_container(text.rpartition(" ")[2])
                modes.append(str(container["HostConfig"]["NetworkMode"]))
        if text.endswith("begun"):
            stop.set(ExitReason.CANCELLED)

    with pytest.raises(SandboxLostError, match="broken off|network bridge") as caught:
        ensure_image(client, spec, progress=hear, stop=stop)
    return "network bridge" if "network bridge" in str(caught.value) else modes[0]


def _set_soon() -> StopSignal:
    stop = StopSignal()
    timer = threading.Timer(1.0, stop.set, (ExitReason.CANCELLED,))
    timer.daemon = True
    timer.start()
    return stop


def _used(spec: SandboxSpec, image: Image, *, hours_ago: float) -> None:
    for file in (spec.scratch.parent / "images").glob("*.json"):
        if json.loads(file.read_text())["reference"] == image.reference:
            then = time.time() - 3600 * hours_ago
            os.utime(file, (then, then))


def _load_for(client: docker.DockerClient, reference: str, processor: str) -> None:
    """Bring an empty image that says it is for this processor."""
    layer = io.BytesIO()
    tarfile.open(fileobj=layer, mode="w").close()
    content = layer.getvalue()
    config = {
        "architecture": processor,
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in (
            ("layer.tar", content),
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    client.images.load(packed.getvalue())
