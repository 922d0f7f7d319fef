"""The peer mini-swe-agent, as its command line sets it up: local environment, trajectory saved at each step.

Runs with an interpreter that has mini-swe-agent and needs nothing else of the project's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import typing

os.environ |= {
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_CONFIGURED": "true",
    # Without a network the price table that comes with the library is the one to use.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--warm-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--trajectory", type=pathlib.Path, required=True)
    chosen = parser.parse_args()
    # Found at run time: the peer is no dependency of the project.
    package = importlib.import_module("minisweagent")
    agents = importlib.import_module("minisweagent.agents.default")
    environments = importlib.import_module("minisweagent.environments.local")
    models = importlib.import_module("minisweagent.models.litellm_model")
    yaml = importlib.import_module("yaml")
    file = pathlib.Path(package.__file__).parent / "config" / "mini.yaml"
    config: dict[str, typing.Any] = yaml.safe_load(file.read_text())

    def model(url: str) -> typing.Any:
        settings = dict(config["model"])
        key = f"bench-key-of-{os.getpid()}"
        settings["model_kwargs"] = settings.get("model_kwargs", {}) | {"api_base": url, "api_key": key}
        return models.LitellmModel(model_name=f"openai/{chosen.model}", **settings)

    # Its libraries load lazily; that is not the cost of a step.
    model(chosen.warm_url).query([{"role": "user", "content": "Hello"}])
    known = agents.AgentConfig.model_fields
    settings = {name: value for name, value in config["agent"].items() if name in known}
    settings |= {"output_path": chosen.trajectory, "cost_limit": 0.0, "step_limit": 0}
    environment = environments.LocalEnvironment(**config["environment"])
    agent = agents.DefaultAgent(model(chosen.base_url), environment, **settings)
    result = agent.run("Fix the bug.")
    print(json.dumps({"version": package.__version__, "exit": result["exit_status"], "calls": agent.n_calls}))


if __name__ == "__main__":
    main()
