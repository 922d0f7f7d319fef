"""The Docker of tests: whether a daemon answers, images made without a registry, servers of a test's own.

The images come from this machine: busybox-static in a folder of its own, and a small Debian made by
debootstrap from the mirror that apt is set to. They stay in the daemon under the hash of how they were made,
so that each machine makes them once:

    python -m tests.docker_host
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers import Server

if TYPE_CHECKING:
    from docker import DockerClient

BUSYBOX = "lab-test/busybox"
DEBIAN = "lab-test/debian"
# A user of both images, beside root and nobody.
IMAGE_USER, IMAGE_UID = "agent", 1000
_PACKAGES = ("bash", "ca-certificates", "git", "python3")
# What nobody reads in a test, and what makes an image larger.
_NOT_KEPT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
_BUSYBOX_VERSION = "1"
_DEBIAN_VERSION = "1"
_PASSWD = (
    f"root:x:0:0:root:/root:/bin/sh\n{IMAGE_USER}:x:{IMAGE_UID}:{IMAGE_UID}::/home/{IMAGE_USER}:/bin/sh\n"
)
_GROUP = f"root:x:0:\n{IMAGE_USER}:x:{IMAGE_UID}:\n"
_PATH = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ANSWER_SECONDS = 60
# Debian's packages are fetched and unpacked within it on a slow machine.
_DEBOOTSTRAP_SECONDS = 1500


def docker_missing() -> str | None:
    """What sandboxes in Docker lack here, None when a daemon answers that has or can be given an image."""
    if find_spec("docker") is None:
        return "the docker package is not installed (make test-environment)"
    import docker
    import requests

    try:
        _client().ping()
    except (docker.errors.DockerException, requests.RequestException) as error:
        way_out = "apt-get install --no-install-recommends docker.io iptables, and start dockerd"
        return f"no Docker daemon answers ({way_out}): {error}"
    if not _has(busybox_reference()) and shutil.which("busybox") is None:
        return "busybox is not installed (apt-get install busybox-static)"
    return None


def debian_missing() -> str | None:
    """What the image of a small Debian lacks here, None when it is in the daemon or can be made."""
    if reason := docker_missing():
        return reason
    if _has(debian_reference()):
        return None
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed (apt-get install debootstrap)"
    if os.geteuid() != 0:
        return "only root can make a Debian with debootstrap (python -m tests.docker_host, once, as root)"
    return None


def dockerd_missing() -> str | None:
    """What a daemon of a test's own lacks here, None when one can be started."""
    if reason := docker_missing():
        return reason
    if shutil.which("dockerd") is None:
        return "dockerd is not installed (apt-get install --no-install-recommends docker.io)"
    return None if os.geteuid() == 0 else "only root can start a Docker daemon"


def registry_missing() -> str | None:
    """What a registry of a test's own lacks here, None when one can be started."""
    if reason := docker_missing():
        return reason
    if shutil.which("docker-registry") is None:
        return "docker-registry is not installed (apt-get install docker-registry)"
    return None


def busybox_reference() -> str:
    """The name of the small image, which holds a shell and coreutils in one program and nothing else."""
    return f"{BUSYBOX}:{_digest(_BUSYBOX_VERSION, _PASSWD, _GROUP)}"


def debian_reference() -> str:
    """The name of the larger image: Debian with bash, git and Python."""
    return f"{DEBIAN}:{_digest(_DEBIAN_VERSION, *_PACKAGES, _PASSWD, _GROUP)}"


@functools.cache
def busybox_image() -> str:
    """The reference of the small image, made when the daemon does not have it."""
    with _one_at_a_time():
        if not _has(busybox_reference()):
            _import(io.BytesIO(busybox_root()), busybox_reference(), _client())
    return busybox_reference()


@functools.cache
def debian_image() -> str:
    """The reference of the larger image, made when the daemon does not have it, which takes minutes."""
    with _one_at_a_time():
        if not _has(debian_reference()):
            _make_debian()
    return debian_reference()


def busybox_root() -> bytes:
    """A tar of a root file system with busybox alone, every one of its commands linked to it."""
    program = Path(str(shutil.which("busybox"))).read_bytes()
    listed = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for folder in ("bin", "etc", "home", "usr", "usr/bin", "var", "proc", "sys", "dev"):
            _add(tar, folder, mode=0o755, kind=tarfile.DIRTYPE)
        for folder, mode in (("root", 0o700), ("tmp", 0o1777), ("var/tmp", 0o1777)):
            _add(tar, folder, mode=mode, kind=tarfile.DIRTYPE)
        _add(tar, f"home/{IMAGE_USER}", mode=0o755, kind=tarfile.DIRTYPE, owner=IMAGE_UID)
        _add(tar, "bin/busybox", program, mode=0o755)
        for name in listed.stdout.split():
            if name != "busybox":
                _add(tar, f"bin/{name}", kind=tarfile.SYMTYPE, target="busybox")
        _add(tar, "usr/bin/env", kind=tarfile.SYMTYPE, target="../../bin/busybox")
        _add(tar, "etc/passwd", _PASSWD.encode())
        _add(tar, "etc/group", _GROUP.encode())
    return stream.getvalue()


def _add(
    tar: tarfile.TarFile,
    name: str,
    content: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    target: str = "",
    owner: int = 0,
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size, member.linkname = kind, mode, len(content), target
    member.uid = member.gid = owner
    tar.addfile(member, io.BytesIO(content))


def _make_debian() -> None:
    mirror, suite = _mirror()
    # Not under /tmp, which may be mounted without devices.
    root = Path(tempfile.mkdtemp(prefix="lab-test-debian-", dir="/var/tmp"))  # noqa: S108
    try:
        log = root / "debootstrap.log"
        command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(_PACKAGES)}",
            suite,
            str(root / "root"),
            mirror,
        ]
        with log.open("wb") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, timeout=_DEBOOTSTRAP_SECONDS, check=False
            )
        if done.returncode != 0:
            raise RuntimeError(f"debootstrap ended with {done.returncode}:\n{log.read_text()[-3000:]}")
        for folder in _NOT_KEPT:
            shutil.rmtree(root / "root" / folder, ignore_errors=True)
        for name, lines in (("passwd", _PASSWD), ("group", _GROUP)):
            with (root / "root" / "etc" / name).open("a") as file:
                file.write(lines.splitlines()[-1] + "\n")
        home = root / "root" / "home" / IMAGE_USER
        home.mkdir()
        os.chown(home, IMAGE_UID, IMAGE_UID)
        with (root / "root.tar").open("w+b") as packed:
            subprocess.run(["tar", "-C", str(root / "root"), "-c", "."], stdout=packed, check=True)
            packed.seek(0)
            _import(packed, debian_reference(), _client())
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _mirror() -> tuple[str, str]:
    """Address and suite of the Debian (or Ubuntu) that apt installs from here.

    Raises:
        LookupError: apt knows none that debootstrap knows.
    """
    fields = ("REPO_URI", "CODENAME", "COMPONENT")
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", f"$({') $('.join(fields)})", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in listed.stdout.splitlines():
        address, suite, component = line.split(" ", 2)
        if component == "main" and (Path("/usr/share/debootstrap/scripts") / suite).exists():
            return address, suite
    raise LookupError(
        f"apt's sources name nothing that debootstrap knows; run apt-get update:\n{listed.stdout}"
    )


def exists(container: str) -> bool:
    """Whether the daemon knows this container, by name or identifier."""
    return _state(container) is not None


def is_running(container: str) -> bool:
    state = _state(container)
    return state is not None and bool(state["Running"])


def kill(container: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal its first process from outside; killed, it takes all others with it, as the kernel does it."""
    state = _state(container)
    if state is not None and state["Pid"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(state["Pid"], number)


def freeze(container: str) -> None:
    """Let nothing in it go on, and nothing end."""
    _client().api.pause(container)


def remove(container: str) -> None:
    """Remove it, whatever runs in it; nothing when it is gone, or being removed."""
    import docker

    with contextlib.suppress(docker.errors.NotFound, docker.errors.APIError):
        _client().api.remove_container(container, force=True)


def labelled(label: str) -> list[str]:
    """The identifiers of the containers of sandboxes with this label, those named after it included."""
    from lab.engine.sandboxes.docker_boot import label_of

    found = _client().api.containers(all=True, filters={"label": "trajectory-lab.label"})
    return [
        str(one["Id"])
        for one in found
        if label_of(one["Labels"]["trajectory-lab.label"], one["Names"] or []) == label
    ]


def labels(container: str) -> dict[str, str] | None:
    """The labels of a container; None when there is none of this name."""
    import docker

    try:
        return dict(_client().api.inspect_container(container)["Config"]["Labels"])
    except docker.errors.NotFound:
        return None


def bystander(**labels: str) -> str:
    """A running container of somebody else's; returns its identifier. The caller removes it."""
    made = _client().api.create_container(busybox_image(), ["sleep", "3600"], labels=labels)
    _client().api.start(made["Id"])
    return str(made["Id"])


def _state(container: str) -> dict[str, Any] | None:
    import docker

    try:
        return dict(_client().api.inspect_container(container)["State"])
    except docker.errors.NotFound:
        return None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Of several test processes one makes an image and the others find it."""
    with (Path(tempfile.gettempdir()) / "lab-test-images.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _client() -> DockerClient:
    import docker

    return docker.from_env(timeout=_ANSWER_SECONDS)


def _has(reference: str) -> bool:
    import docker

    try:
        _client().images.get(reference)
    except docker.errors.ImageNotFound:
        return False
    return True


def _import(packed: io.BufferedIOBase | io.BytesIO, reference: str, client: DockerClient) -> None:
    repository, _, tag = reference.partition(":")
    said = client.api.import_image(packed, repository=repository, tag=tag, changes=[_PATH, 'CMD ["/bin/sh"]'])
    if "error" in said:
        raise RuntimeError(f"{reference} could not be imported: {said}")
    client.api.tag(reference, repository, "latest")


class Daemon(Server):
    """A dockerd of a test's own, without a bridge, to be restarted, killed and frozen.

    Another process reaches it by DOCKER_HOST=`url`. It holds the small image.
    """

    # Ends its containers too, which a kill does not.
    _end = signal.SIGTERM

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def client(self) -> DockerClient:
        import docker

        return docker.DockerClient(base_url=self.url, timeout=_ANSWER_SECONDS)

    def start(self) -> None:
        super().start()
        client = self.client()
        if not client.images.list(BUSYBOX):
            _import(io.BytesIO(busybox_root()), busybox_reference(), client)

    def _command(self) -> list[str]:
        folder = self.folder
        return [
            # Apart from the machine's network: without a bridge of its own it would remove that of others.
            "unshare", "--net", "--", "dockerd", "--log-level", "warn", "--host", self.url,
            "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec",
            "--pidfile", f"{folder}/pid", "--bridge", "none", "--iptables=false", "--ip-forward=false",
            # Should it use a containerd that runs already for another daemon.
            "--containerd-namespace", f"lab-{self.port}",
            "--containerd-plugins-namespace", f"lab-{self.port}-plugins",
        ]  # fmt: skip

    def _answers(self) -> bool:
        import docker
        import requests

        with contextlib.suppress(docker.errors.DockerException, requests.RequestException):
            return bool(self.client().ping())
        return False

    def wake(self) -> None:
        """Let it go on after a SIGSTOP, and wait until it answers."""
        os.kill(self.pid, signal.SIGCONT)
        self.client().ping()

    def restart(self) -> None:
        """As a service manager does it: its containers end with it."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Ask it to end, with its containers, and wait."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
        self.kill()

    def kill(self) -> None:
        """Kill it and its containerd, as an update gone wrong does it; containers go on for now."""
        super().kill()
        containerd = self.folder / "exec" / "containerd"
        self._kill_those_of(f"{containerd}/containerd.toml")
        # Where nobody collects dead processes, the next daemon would take it for alive.
        (containerd / "containerd.pid").unlink(missing_ok=True)

    def remove(self) -> None:
        self.stop()
        # What holds the containers of a daemon that was killed.
        self._kill_those_of(str(self.folder))
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if str(self.folder) in line.split(" ")[1]:
                subprocess.run(["umount", "--lazy", line.split(" ")[1]], capture_output=True, check=False)
        super().remove()

    def _kill_those_of(self, path: str) -> None:
        """Processes whose command line names it, until there are none."""
        while left := [pid for pid in _processes() if path.encode() in _command_line(pid)]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _processes() -> list[int]:
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdecimal() and int(path.name) != os.getpid()
    ]


def _command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Registry(Server):
    """Debian's docker-registry on loopback, where a daemon takes images without TLS.

    With `password` it lets only those in who bring `NAME` and `PASSWORD`.
    """

    NAME = PASSWORD = "tests"
    # Of that password, by bcrypt.
    _HASH = "$2b$05$abcdefghijklmnopqrstuuo4nr2YU6TG5HSXpi2d3yFiAe4LfnHfi"

    def __init__(self, *, password: bool = False) -> None:
        super().__init__()
        guard = ""
        if password:
            (self.folder / "passwords").write_text(f"{self.NAME}:{self._HASH}\n")
            guard = f"auth: {{htpasswd: {{realm: tests, path: {self.folder}/passwords}}}}\n"
        (self.folder / "config.yml").write_text(
            "version: 0.1\n"
            "log: {level: warn}\n"
            f"storage: {{filesystem: {{rootdirectory: {self.folder}/images}}, delete: {{enabled: true}}}}\n"
            f"http: {{addr: 127.0.0.1:{self.port}}}\n{guard}"
        )

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        return ["docker-registry", "serve", str(self.folder / "config.yml")]

    def push(self, reference: str, name: str) -> str:
        """Put an image of the daemon into it as `name`; returns the reference by which it can be pulled."""
        client, pushed = _client(), f"{self.url}/{name}"
        client.api.tag(reference, *pushed.rsplit(":", 1))
        credentials = {"username": self.NAME, "password": self.PASSWORD}
        for line in client.api.push(pushed, stream=True, decode=True, auth_config=credentials):
            if "error" in line:
                raise RuntimeError(f"{pushed} could not be pushed: {line['error']}")
        client.api.remove_image(pushed)
        return pushed


def main(arguments: Sequence[str]) -> int:
    """Make the images; with `--left`, list what sandboxes have left in the daemon."""
    if arguments == ["--left"]:
        left = _client().api.containers(all=True, filters={"label": "trajectory-lab.label"})
        print(*(f"left: {one['Names']} {one['Status']} {one['Labels']}" for one in left), sep="\n")
        return 1 if left else 0
    if arguments:
        print("usage: python -m tests.docker_host [--left]", file=sys.stderr)
        return 2
    if reason := debian_missing():
        print(f"missing: {reason}", file=sys.stderr)
        return 1
    for image in (busybox_image, debian_image):
        started = time.monotonic()
        print(f"{image()}  ({time.monotonic() - started:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
