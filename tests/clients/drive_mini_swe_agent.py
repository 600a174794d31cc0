"""Runs mini-swe-agent, with its own prompts, on a task whose commands are known beforehand.

Started by the test with the interpreter of mini-swe-agent's environment, which has nothing of ours. A model
too small to think of commands is made to write them, each by what the request demands of its reply: a
forced call of a tool with one command to choose from, or a regex.
"""

import json
import re
import sys
from pathlib import Path

import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel
from minisweagent.models.utils.actions_toolcall import BASH_TOOL

COMMANDS = ("ls", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")


class SteeredAgent(DefaultAgent):
    def query(self):
        command = COMMANDS[min(self.n_calls, len(COMMANDS) - 1)]
        demands = self.model.config.model_kwargs
        if isinstance(self.model, LitellmTextbasedModel):
            action = f"THOUGHT: [a-z ]{{5,30}}\n\n```mswea_bash_command\n{re.escape(command)}\n```"
            demands["extra_body"] = {"structured_outputs": {"regex": action}}
        else:
            BASH_TOOL["function"]["parameters"]["properties"]["command"]["enum"] = [command]
            demands["tool_choice"] = "required"
        return super().query()


def main(url, form, task, folder, trajectory):
    name, kind = {
        "calls": ("mini.yaml", LitellmModel),
        "text": ("mini_textbased.yaml", LitellmTextbasedModel),
    }[form]
    config = yaml.safe_load((builtin_config_dir / name).read_text())
    model = config["model"]
    model["model_kwargs"] = {
        **model.get("model_kwargs", {}),
        "api_base": url,
        "api_key": "any",
        "max_tokens": 300,
    }
    agent = SteeredAgent(
        kind(model_name="openai/tiny", cost_tracking="ignore_errors", **model),
        LocalEnvironment(cwd=folder),
        **{**config["agent"], "step_limit": 4, "output_path": Path(trajectory)},
    )
    print(json.dumps(agent.run(task)))


main(*sys.argv[1:])
