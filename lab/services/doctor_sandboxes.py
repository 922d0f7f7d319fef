"""Which sandboxes work on this machine, and what a command in them really reaches: tried, not believed."""

from __future__ import annotations

import shutil
import subprocess

from django.conf import settings

from lab.engine.errors import InvalidValueError, LabError
from lab.engine.registry import PROVIDERS
from lab.services import isolation
from lab.services.doctor_docker import check_docker
from lab.services.findings import Finding, State
from lab.services.sandbox_trials import listed, try_sandbox, with_limits

_ANSWER_SECONDS = 5.0


def examine() -> list[Finding]:
    """Every kind of sandbox: whether it works, how much it isolates, how to get it."""
    return [check_bubblewrap(), check_plain_process(), check_docker(), check_kubernetes()]


def check_bubblewrap() -> Finding:
    """Tried as runs would use it: with the user id of the settings."""
    try:
        provider = isolation.provider(isolation.ISOLATED)
        reason = provider.available()
    except InvalidValueError as error:
        return Finding("bubblewrap", "problem", str(error), "use LAB_SANDBOX_UID=65534, or leave it unset")
    if reason:
        return Finding(
            "bubblewrap",
            "warning",
            reason,
            "until then scripted models on practice tasks run without isolation; the rest waits for "
            "bubblewrap, or for an admin who allows runs without isolation",
        )
    if settings.LAB_SANDBOX == isolation.PLAIN:
        message = "bubblewrap works here, but LAB_SANDBOX=process makes runs go without isolation"
        return Finding("bubblewrap", "warning", message, "unset LAB_SANDBOX")
    try:
        found = try_sandbox(provider)
    except (LabError, OSError) as error:
        return Finding("bubblewrap", "problem", f"no sandbox can be started: {error}", _MEND_FOLDER)
    if found.reaches:
        return Finding(
            "bubblewrap",
            "problem",
            f"it isolates less than it should: a command in it {listed(found.reaches)}",
            "run only models whose commands you trust until a newer bubblewrap or kernel is there",
        )
    isolated = (
        "isolated: a command in it read no home folder, nothing of the lab's data and no other process's "
        "environment, reached no network, and is neither root nor has capabilities"
    )
    return with_limits("bubblewrap", isolated, found)


def check_plain_process() -> Finding:
    """What commands get where nothing isolates them."""
    name = "plain process"
    used = settings.LAB_SANDBOX == isolation.PLAIN
    try:
        found = try_sandbox(isolation.provider(isolation.PLAIN))
    except (LabError, OSError) as error:
        state: State = "problem" if used else "warning"
        return Finding(name, state, f"it cannot be started: {error}", _MEND_FOLDER)
    reach = listed(found.reaches) if found.reaches else "reached nothing that was tried"
    message = f"works, and is not isolated: a command in it {reach}"
    if not used:
        return Finding(
            name, "ok", f"{message}; used only where the lab's own commands run or an admin agreed"
        )
    return Finding(name, "warning", message, "apt-get install bubblewrap and unset LAB_SANDBOX")


def check_kubernetes() -> Finding:
    path = shutil.which("kubectl")
    if path is None:
        remedy = "apt-get install kubernetes-client, and let KUBECONFIG name a cluster's file"
        return Finding("kubernetes", "absent", "kubectl is not installed", remedy)
    _, trouble = _asked([path, "get", "--raw", "/version", "--request-timeout=3s"])
    if trouble:
        remedy = "let KUBECONFIG name the file of a cluster that can be reached"
        return Finding("kubernetes", "absent", f"kubectl reaches no cluster: {trouble}", remedy)
    return Finding("kubernetes", "ok", f"a cluster answers{_used_by_the_lab('kubernetes')}")


_MEND_FOLDER = "let this user write to LAB_DATA_DIR/sandboxes, on a disk with space"


def _asked(command: list[str]) -> tuple[str, str]:
    """What a program answers, or why it does not, in one line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    trouble = "" if done.returncode == 0 else (lines or [f"exit code {done.returncode}"])[-1][:200]
    return done.stdout.strip(), trouble


def _used_by_the_lab(kind: str) -> str:
    return "" if kind in PROVIDERS else "; this release starts no sandboxes in it"
