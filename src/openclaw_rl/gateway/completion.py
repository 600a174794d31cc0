"""One turn from its first sampled token to its durable record, and the one result it comes to.

Sampling runs in a task of its own, so it neither waits for a slow client nor dies with a request without
being recorded. Knows engines by their contract; knows neither HTTP nor how a result is written out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from anyio import to_thread

from openclaw_rl.gateway.errors import log_failure
from openclaw_rl.gateway.placement import ABORTED, Placed
from openclaw_rl.model import Message, Sampling, Turn
from openclaw_rl.policy.chat_template import ChatTemplate
from openclaw_rl.policy.dialects import ToolCall
from openclaw_rl.policy.engine import EngineError, Generation, SampledToken
from openclaw_rl.policy.reply import Part, ReplyReader, Thought, continues, joined, message_of
from openclaw_rl.store.conversations import Conversations
from openclaw_rl.store.progress import UNREAD_CALLS

HUNG_UP = "client hung up"
SERVER_STOPPED = "the server stopped"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is known of a turn before its first token."""

    turn_id: str
    placed: Placed
    prompt_ids: tuple[int, ...]
    inside_thought: bool
    """The prompt ends within a thought."""
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A sampled token as its own text."""

    text: str
    logprob: float
    alternatives: tuple[TokenLogprob, ...] = ()
    """The likeliest tokens in its place, as many as were asked for."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the reply that is certain, and the tokens sampled since the piece before."""

    part: Part
    tokens: tuple[TokenLogprob, ...]


def whole_parts(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """The same pieces, with neighbouring pieces of text or of thought made one."""
    runs: list[list[Delta]] = []
    for delta in deltas:
        if runs and continues(runs[-1][-1].part, delta.part):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return tuple(
        Delta(joined([delta.part for delta in run]), tuple(token for delta in run for token in delta.tokens))
        for run in runs
    )


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of a turn, durable in the store; every answer to the client is written from it."""

    deltas: tuple[Delta, ...]
    """In order; no two pieces of text, or of thought, come one after the other."""
    finish_reason: str
    stopped_by: str
    """The stop string that ended the reply, or nothing."""
    prompt_tokens: int
    tokens: tuple[TokenLogprob, ...]
    """All of them, in order; `last_tokens` of them came after the last delta."""
    last_tokens: int
    thought_tokens: int
    unread_calls: int
    """What looks like a tool call in the text and could not be read as one."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(delta.part for delta in self.deltas)

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def thought(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Thought))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def reply(self) -> Message:
        """The assistant message in OpenAI's chat form."""
        return message_of(self.text, self.thought, self.calls)

    @property
    def record(self) -> Message:
        """The reply as it is stored, marked when it holds calls that could not be read."""
        return {**self.reply, UNREAD_CALLS: self.unread_calls} if self.unread_calls else self.reply


@dataclass(frozen=True, slots=True)
class Failure:
    """The turn ended without a result; it is recorded as aborted."""

    reason: str


Event = Delta | Completion | Failure


class RunningTurn:
    """One turn while it is sampled. `events` gives its deltas, then its Completion or Failure."""

    def __init__(
        self, plan: Plan, generation: Generation, template: ChatTemplate, conversations: Conversations
    ) -> None:
        self.plan = plan
        self.version = generation.version
        self._generation = generation
        self._template = template
        self._conversations = conversations
        tools = plan.placed.request.tools
        self._detokenizer = template.detokenizer(plan.sampling.stop, with_calls=bool(tools))
        self._reader = ReplyReader(template.dialect, tools, inside_thought=plan.inside_thought)
        self._ids: list[int] = []
        self._tokens: list[TokenLogprob] = []
        self._logprobs: list[float] = []
        self._deltas: list[Delta] = []
        self._told = 0  # tokens that went out with a delta
        self._thought_tokens = 0
        self._has_call = False
        self._finish = ""
        self._hang_up_reason = ""
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._sampling = asyncio.create_task(self._sample())
        self.task = asyncio.create_task(self._run())
        """Ends once the turn is recorded; never raises."""

    @property
    def sampled(self) -> int:
        """How many tokens were sampled so far."""
        return len(self._ids)

    @property
    def unread_calls(self) -> int:
        """See `Completion.unread_calls`; of what was sampled so far."""
        return self._reader.unread_calls

    async def events(self) -> AsyncIterator[Event]:
        """The deltas, then the Completion or Failure."""
        event = await self._events.get()
        while isinstance(event, Delta):
            yield event
            event = await self._events.get()
        yield event

    def hang_up(self, reason: str = HUNG_UP) -> None:
        """Nobody wants the rest: stop sampling and record the turn as aborted. Does nothing once it ended."""
        if not self._sampling.done():
            self._hang_up_reason = self._hang_up_reason or reason
            self._generation.cancel()
            self._sampling.cancel()

    async def _run(self) -> None:
        await asyncio.wait({self._sampling})
        failure = self._failure()
        completion = self._completion(aborted=bool(failure))
        try:
            await to_thread.run_sync(self._record, self._turn(completion, failure))
        except Exception as error:  # noqa: BLE001 - a task's boundary: the client must hear of it
            log_failure(f"recording turn {self.plan.turn_id}", error)
            failure = "the turn could not be recorded"
        self._events.put_nowait(Failure(failure) if failure else completion)

    def _completion(self, *, aborted: bool) -> Completion:
        finish = "tool_calls" if self._has_call and self._finish == "stop" else self._finish
        return Completion(
            deltas=whole_parts(self._deltas),
            finish_reason=ABORTED if aborted else finish,
            stopped_by=self._detokenizer.stopped_by,
            prompt_tokens=len(self.plan.prompt_ids),
            tokens=tuple(self._tokens),
            last_tokens=len(self._tokens) - self._told,
            thought_tokens=self._thought_tokens,
            unread_calls=self._reader.unread_calls,
        )

    async def _sample(self) -> None:
        async for token in self._generation:
            self._ids.append(token.token_id)
            self._logprobs.append(token.logprob)
            self._tokens.append(self._told_token(token))
            if token.finish:
                self._finish = token.finish
            if not (token.finish == "stop" and token.token_id in self._template.stop_ids):
                self._tell(self._reader.feed(self._detokenizer.feed(token.token_id)))
            if self._detokenizer.stopped or self._has_only_call:
                self._generation.cancel()
                break
        self._tell(self._reader.feed(self._detokenizer.finish()))
        if self._detokenizer.stopped or self._has_only_call:
            self._finish = "stop"
        self._tell(self._reader.finish())
        if not self._finish:
            raise EngineError("the engine ended without saying why")

    @property
    def _has_only_call(self) -> bool:
        return self._has_call and self.plan.placed.request.one_call

    def _told_token(self, token: SampledToken) -> TokenLogprob:
        alternatives = tuple(
            TokenLogprob(self._text_of(each), logprob) for each, logprob in token.alternatives
        )
        return TokenLogprob(self._text_of(token.token_id), token.logprob, alternatives)

    def _text_of(self, token_id: int) -> str:
        return self._template.decode([token_id], skip_special_tokens=False)

    def _tell(self, parts: list[Part]) -> None:
        for part in parts:
            if self._has_only_call:
                return
            fresh = tuple(self._tokens[self._told :])
            self._told = len(self._tokens)
            if isinstance(part, Thought):
                self._thought_tokens += len(fresh)
            self._has_call = self._has_call or isinstance(part, ToolCall)
            self._deltas.append(Delta(part, fresh))
            self._events.put_nowait(self._deltas[-1])

    def _failure(self) -> str:
        """Why the turn has no result; empty when it has one."""
        if self._sampling.cancelled():
            return self._hang_up_reason or SERVER_STOPPED
        error = self._sampling.exception()
        if error is None:
            return ""
        log_failure(f"turn {self.plan.turn_id}", error)
        return f"the engine failed: {error if isinstance(error, EngineError) else type(error).__name__}"

    def _turn(self, completion: Completion, failure: str) -> Turn:
        plan = self.plan
        return plan.placed.turn(
            plan.turn_id,
            completion.reply,
            failure,
            record=completion.record,
            model=plan.placed.request.model,
            policy_version=self.version,
            sampling=plan.sampling,
            finish_reason=completion.finish_reason,
            prompt_ids=plan.prompt_ids,
            response_ids=tuple(self._ids),
            logprobs=tuple(self._logprobs),
        )

    def _record(self, turn: Turn) -> None:
        self._conversations.add_turn(turn)
        self.plan.placed.close_if_done(self._conversations)
