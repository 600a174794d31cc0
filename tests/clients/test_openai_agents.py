"""OpenAI's Agents SDK: its own loop, with a tool of the test's, over both protocols that it speaks."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from exchanges import (
    assert_one_session,
    conversation_about,
    next_state_of,
    results_of,
    wait_until_judged,
)
from openai import AsyncOpenAI
from running_processes import House

from openclaw_rl.model import TurnState

FILES = "notes.txt\nletter.txt"


@pytest.mark.parametrize("protocol", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
def test_an_agent_calls_its_tool_answers_and_is_asked_again(house: House, protocol: Any) -> None:
    asked: list[str] = []

    @function_tool
    def list_files(folder: Literal["here", "above"]) -> str:
        """Names of the files in a folder."""
        asked.append(folder)
        return FILES

    async def talk() -> tuple[str, Any, Any]:
        async with AsyncOpenAI(base_url=f"{house.url}/v1", api_key="any", max_retries=0) as client:
            agent = Agent(
                name="Librarian",
                instructions="You look after files.",
                tools=[list_files],
                model=protocol(model="tiny", openai_client=client),
                # The first reply must be a call; the SDK itself leaves the others free.
                model_settings=ModelSettings(tool_choice="required", max_tokens=120),
            )
            # Random weights may give an empty answer, which the SDK does not send back.
            for attempt in range(20):
                question = f"Which files are there? ({protocol.__name__}, {attempt})"
                if (first := await Runner.run(agent, question)).final_output:
                    break
            free = agent.clone(model_settings=ModelSettings(max_tokens=120))
            again = [*first.to_input_list(), {"role": "user", "content": "That is wrong, look again."}]
            return question, first, await Runner.run(free, again)

    set_tracing_disabled(True)
    question, first, second = asyncio.run(talk())
    assert asked
    assert set(asked) <= {"here", "above"}

    turns = conversation_about(house, question)
    assert len(turns) == 3, "a call, an answer, and the answer to what the user said of it"
    assert_one_session(turns)
    calling, answering, last = turns
    (call,) = calling.reply["tool_calls"]
    assert call["function"]["name"] == "list_files"
    assert [result["content"] for result in results_of(next_state_of(house, calling))] == [FILES]
    assert first.final_output == answering.reply["content"]
    (said,) = next_state_of(house, answering).messages
    assert said["content"] == "That is wrong, look again."
    assert second.final_output == last.reply["content"]
    wait_until_judged(house, calling)
    assert last.state is TurnState.WAITING_NEXT_STATE
