"""One attempt from the command line: `python -m lab.engine --task parse-duration --model scripted/solver`.

Writes the run's events as one JSON object a line and says in a few lines how it ended. The exit code is 0
when the run ended with a verdict, 1 when it did not, 2 when it could not be asked for like that.

`--continue FILE` goes on with an attempt whose process was killed, from its log. `--rebuild-inputs FILE`
compares every model call with what the log gives for it; the exit code is 1 when one differs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

from lab.engine import registry
from lab.engine.environments import IMAGE_KINDS, PRACTICE_IMAGE
from lab.engine.errors import ExitReason, InvalidValueError, LabError
from lab.engine.events import (
    AttemptStarted,
    PatchCaptured,
    Record,
    RunEnded,
    SandboxStarted,
    VerificationFinished,
)
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.conversation import check_inputs
from lab.engine.harnesses.literals import read_text
from lab.engine.harnesses.presets import DEFAULT_PRESET, load_preset, preset_names
from lab.engine.harnesses.spending import Spending
from lab.engine.harnesses.yaml_form import from_yaml
from lab.engine.harnesses.yaml_reading import LARGEST_YAML
from lab.engine.limits import UNITS, Limits, parse_limit
from lab.engine.llm.base import JSONObject, ModelConfig, Price
from lab.engine.llm.endpoint import normal_base_url
from lab.engine.llm.scripted import CONTEXT_WINDOW, SCRIPTED_MODELS
from lab.engine.runner import AttemptResult, AttemptSpec, run_attempt
from lab.engine.sandboxes import docker_use
from lab.engine.sandboxes.base import SandboxProvider
from lab.engine.sinks import JSONLSink, blob_folder, drop_torn_line, read_log
from lab.engine.steering import Ask, Steering
from lab.engine.stop import StopSignal
from lab.engine.tasks.loader import load_task, practice_folder
from lab.engine.tasks.spec import TaskSpec


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        if arguments.rebuild_inputs is not None:
            return _rebuild_inputs(arguments.rebuild_inputs)
        if arguments.continued is not None:
            spec, sink = _continued(arguments)
        else:
            spec = _spec(arguments)
            sink = _sink(arguments.out)
    except LabError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return _run(spec, sink, arguments.continued or arguments.out)


def _run(spec: AttemptSpec, sink: JSONLSink, out: Path) -> int:
    stop, steering = StopSignal(), Steering()
    # Nobody else could end a pause here.
    steering.put(Ask("resume", "the command line"))

    def cancel(number: int, frame: FrameType | None) -> None:
        # A second Ctrl-C ends the process as usual.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.set(ExitReason.CANCELLED)

    signal.signal(signal.SIGINT, cancel)
    result = run_attempt(spec, sink, stop, steering=steering, on_phase=lambda phase: _say(f"{phase} …"))
    sink.append(RunEnded(exit_reason=result.exit_reason, verdict=result.verdict))
    sink.close()
    _summarise([*spec.history, *sink.records], result, out)
    return 0 if result.verdict is not None else 1


def _rebuild_inputs(path: Path) -> int:
    check = check_inputs(read_log(path))
    sys.stdout.write("".join(f"{line}\n" for line in check.told()))
    return 1 if check.differing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.engine", description="Run one attempt at a task.")
    parser.add_argument("--task", default="", help="a practice task's id, or a task's folder")
    parser.add_argument("--model", default="", help=f"{', '.join(SCRIPTED_MODELS)}, or a name of your own")
    parser.add_argument("--seed", type=int, default=1, help="a repeat index from 1")
    parser.add_argument("--out", type=Path, help="the file for the events (JSON lines)")
    logs = parser.add_mutually_exclusive_group()
    logs.add_argument(
        "--continue",
        dest="continued",
        type=Path,
        metavar="FILE",
        help="go on from this log of a killed run; what was asked for then is in it (but a task's folder and "
        "the key's variable)",
    )
    logs.add_argument(
        "--rebuild-inputs",
        type=Path,
        metavar="FILE",
        help="compare every model call with this log, run nothing",
    )
    parser.add_argument(
        "--harness", default=DEFAULT_PRESET, help=f"one of {', '.join(preset_names())}, or a YAML file"
    )
    parser.add_argument(
        "--sandbox",
        choices=sorted(registry.PROVIDERS),
        help="default: docker for a task that brings an image, else bubblewrap",
    )
    parser.add_argument("--data-folder", type=Path, default=Path(os.environ.get("LAB_DATA_DIR") or "var"))
    parser.add_argument(
        "--limit", action="append", default=[], metavar="NAME=VALUE", help=f"one of {', '.join(UNITS)}"
    )
    parser.add_argument("--base-url", default="", help="an OpenAI-compatible server, such as http://host/v1")
    parser.add_argument("--model-id", default="", help="the model's id at the server; default: --model")
    parser.add_argument("--key-variable", default="", help="the environment variable that holds the key")
    parser.add_argument("--context-window", type=int, help="the model's context in tokens, where known")
    parser.add_argument(
        "--sampling", action="append", default=[], metavar="NAME=JSON", help="such as temperature=0.6"
    )
    return parser


def _spec(arguments: argparse.Namespace) -> AttemptSpec:
    for option in ("task", "model", "out"):
        if not getattr(arguments, option):
            raise InvalidValueError(f"--{option}", "", "is missing; see --help")
    if arguments.seed < 1:
        raise InvalidValueError("--seed", arguments.seed, "is not a repeat index; write 1 or more")
    task = _task(arguments.task)
    harness = _harness(arguments.harness)
    model = _model(arguments)
    asked = dict(_limit(text) for text in arguments.limit)
    folder = arguments.data_folder.resolve()
    return AttemptSpec(
        task=task,
        harness=harness,
        model=model,
        limits=harness.limits.tightened(asked, context_window=model.context_window),
        provider=_provider(arguments.sandbox, task, folder, scripted=model.scripted),
        practice_image=os.environ.get("LAB_PRACTICE_IMAGE") or PRACTICE_IMAGE,
        data_folder=folder,
        label=f"cli-{os.getpid()}-{task.id}",
        seed=arguments.seed,
        api_key=_key(arguments.key_variable),
        key_variable=arguments.key_variable,
    )


def _continued(arguments: argparse.Namespace) -> tuple[AttemptSpec, JSONLSink]:
    """What the log of a killed run asks for, and the log opened to be gone on with.

    Raises:
        InvalidValueError: it is no such log, has ended, or is being written.
    """
    path = arguments.continued
    spec = _continued_spec(arguments)
    sink = _opened(path, "--continue", first_seq=spec.history[-1].seq + 1)
    # Nobody else writes it from here on, but somebody may have done between the two lines above.
    if len(read_log(path)) != len(spec.history):
        sink.close()
        raise InvalidValueError(
            "--continue", str(path), "was gone on with by another process; look at it again"
        )
    return spec, sink


def _continued_spec(arguments: argparse.Namespace) -> AttemptSpec:
    """The specification that the log of a killed run tells, with the log as its history.

    Raises:
        InvalidValueError: it is no such log, or has ended.
    """
    path = arguments.continued
    records = read_log(path)
    started = next((one.event for one in records if isinstance(one.event, AttemptStarted)), None)
    if started is None:
        raise InvalidValueError("--continue", str(path), "holds no attempt that has begun; start a new run")
    if any(isinstance(record.event, RunEnded) for record in records):
        raise InvalidValueError("--continue", str(path), "has ended already; start a new run")
    fields = {name: value for name, value in started.model.items() if name in ModelConfig.model_fields}
    try:
        harness = HarnessConfig.model_validate(started.harness["config"])
        model = ModelConfig.model_validate({**fields, "headers": {}})
        limits = Limits.model_validate({name: started.limits[name] for name in UNITS})
    except (ValueError, KeyError) as error:
        reason = f"does not tell how it was asked for ({error}); start a new run"
        raise InvalidValueError("--continue", str(path), reason) from None
    task = _task(arguments.task or str(started.task.get("id", "")))
    kinds = [one.event.sandbox for one in records if isinstance(one.event, SandboxStarted)]
    folder = arguments.data_folder.resolve()
    kind = arguments.sandbox or next(iter(kinds), None)
    return AttemptSpec(
        task=task,
        harness=harness,
        model=model,
        limits=limits,
        provider=_provider(kind, task, folder, scripted=model.scripted),
        practice_image=os.environ.get("LAB_PRACTICE_IMAGE") or PRACTICE_IMAGE,
        data_folder=folder,
        label=f"cli-{os.getpid()}-{task.id}",
        seed=started.seed,
        api_key=_key(arguments.key_variable),
        key_variable=arguments.key_variable,
        history=tuple(records),
        read_blob=lambda sha256: (blob_folder(path) / sha256).read_bytes(),
        continued_because="its process ended before it did",
    )


class _Sink(JSONLSink):
    """Tells once a second how far an image is that the run waits for."""

    _next_line = 0.0

    def draft(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None:
        super().draft(step=step, content=content, reasoning=reasoning, calls=calls, characters=characters)
        if step == 0 and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + 1.0
            _say(content[:160])


def _sink(out: Path) -> JSONLSink:
    if out.exists():
        raise InvalidValueError(
            "--out", str(out), "is there already; name a new file, or go on with it by --continue"
        )
    return _opened(out, "--out")


def _opened(path: Path, option: str, *, first_seq: int = 1) -> JSONLSink:
    try:
        sink = _Sink(path, first_seq=first_seq)
    except BlockingIOError:
        raise InvalidValueError(option, str(path), "is being written by another process") from None
    except OSError as error:
        raise InvalidValueError(
            option, str(path), f"cannot be written ({error.strerror}); name a file in a folder that can"
        ) from error
    drop_torn_line(path)
    return sink


def _harness(name: str) -> HarnessConfig:
    """A preset, or the harness in a YAML file; that one may name code of one's own."""
    if name in preset_names():
        return load_preset(name)
    if not Path(name).is_file():
        presets = ", ".join(preset_names())
        raise InvalidValueError("--harness", name, f"is no preset and no file; choose one of {presets}")
    text = read_text("--harness", Path(name), largest=LARGEST_YAML)
    return from_yaml(text, source=name, plugins=True)


def _task(name: str) -> TaskSpec:
    folder = practice_folder() / name
    if not (folder / "task.toml").is_file():
        folder = Path(name)
    if not (folder / "task.toml").is_file():
        known = sorted(file.parent.name for file in practice_folder().glob("*/task.toml"))
        raise InvalidValueError(
            "--task", name, f"is no practice task and no task folder; choose one of {', '.join(known)}"
        )
    return load_task(folder)


def _model(arguments: argparse.Namespace) -> ModelConfig:
    if arguments.model in SCRIPTED_MODELS:
        return ModelConfig(
            name=arguments.model,
            model_id=arguments.model,
            base_url="",
            scripted=True,
            context_window=CONTEXT_WINDOW,
            price=Price(basis="scripted"),
        )
    if not arguments.base_url:
        raise InvalidValueError(
            "--base-url", "", f"is needed for a model other than {', '.join(SCRIPTED_MODELS)}"
        )
    return ModelConfig(
        name=arguments.model,
        model_id=arguments.model_id or arguments.model,
        base_url=_base_url(arguments.base_url),
        sampling=dict(_sampling(text) for text in arguments.sampling),
        context_window=_context_window(arguments.context_window),
    )


def _base_url(text: str) -> str:
    try:
        return normal_base_url(text)
    except InvalidValueError as error:
        raise InvalidValueError("--base-url", error.value, error.reason) from None


def _context_window(tokens: int | None) -> int | None:
    if tokens is not None and tokens < 1:
        raise InvalidValueError(
            "--context-window", tokens, "is no number of tokens; write 1 or more, or leave the option out"
        )
    return tokens


def _key(variable: str) -> str:
    if not variable:
        return ""
    key = os.environ.get(variable, "")
    if not key:
        raise InvalidValueError("--key-variable", variable, "is not set; export it, or leave the option out")
    return key


def _limit(text: str) -> tuple[str, int | float | Decimal]:
    name, _, value = text.partition("=")
    if name not in UNITS:
        raise InvalidValueError(
            "--limit", text, f"names no limit; write one of {', '.join(UNITS)} and =VALUE"
        )
    return name, parse_limit(name, value)


def _sampling(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise InvalidValueError("--sampling", text, "is not NAME=JSON; write temperature=0.6") from None


def _provider(kind: str | None, task: TaskSpec, data_folder: Path, *, scripted: bool) -> SandboxProvider:
    """The sandbox asked for, else what the task needs, else a plain process, where all commands are ours.

    Raises:
        InvalidValueError: it does not work here, or knows no images and the task brings one.
    """
    brings_image = task.environment.brings_image
    wanted = kind or ("docker" if brings_image else "bubblewrap")
    if brings_image and wanted not in IMAGE_KINDS:
        raise InvalidValueError(
            "--sandbox", wanted, f"knows no images, and {task.id} brings one; leave it out, or write docker"
        )
    if wanted == "docker":
        from lab.engine.sandboxes.docker import DockerProvider

        # The lab of this folder looks after what a killed process leaves.
        docker_use.note(data_folder)
        provider: SandboxProvider = DockerProvider(os.environ.get("LAB_DOCKER_HOST", ""))
    else:
        provider = registry.provider(wanted)
    missing = provider.available()
    if missing is None:
        return provider
    if kind is None and scripted and not brings_image:
        return registry.provider("process")
    raise InvalidValueError("--sandbox", provider.kind, f"is not available: {missing}")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _summarise(records: list[Record], result: AttemptResult, out: Path) -> None:
    spending = Spending()
    events = [record.event for record in records]
    for event in events:
        spending.apply(event)
    unknown = spending.unknown_costs
    facts: JSONObject = {
        "exit reason": result.exit_reason,
        "verdict": result.verdict or "not graded",
        "steps": result.steps,
        "cost": f"{spending.usd} USD" + (f" and {unknown} requests of unknown cost" if unknown else ""),
        "events": f"{len(records)} in {out}",
    }
    for event in events:
        if isinstance(event, PatchCaptured):
            facts["patch"] = f"{len(event.files)} files"
        if isinstance(event, VerificationFinished):
            passed = sum(test.status == "passed" for test in event.tests)
            facts["tests"] = f"{passed} of {len(event.tests)} passed"
    if result.error:
        facts["error"] = result.error
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in facts.items()))


if __name__ == "__main__":
    sys.exit(main())
