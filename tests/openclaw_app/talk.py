"""Two people talk to OpenClaw while it also works for itself, and what must be on record of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from forcing_proxy import READING
from real_openclaw import TOKEN, OpenClaw, eventually
from recorded import Record, Records

QUESTION = "What is the capital of Italy?"
COMPLAINT = "No, that is wrong. Please answer in one short sentence."
READ = f"{READING}notes.txt"
THANKS = "Thanks, that is perfect!"
AFTER = "Is there anything else?"
ERRAND, ERRAND_THANKS = "What is the capital of Spain?", "Great, thank you!"
DASHBOARD = "Tell me about whales."
_PEOPLE = (QUESTION, COMPLAINT, READ, THANKS, AFTER, ERRAND, ERRAND_THANKS, DASHBOARD)
NOTES = "The milk is in the blue fridge."


@dataclass
class Told:
    """What the talk left behind: all of it, and the main turns of each of the two sessions."""

    records: Records
    main: list[Record]
    errands: list[Record]


def talk(openclaw: OpenClaw, records: Records, before_the_tool: Callable[[], None] = lambda: None) -> Told:
    """Two sessions, of which one reads a file, and then a heartbeat between messages and a title."""
    (openclaw.workspace / "notes.txt").write_text(NOTES, encoding="utf-8")
    openclaw.say("main", QUESTION)
    openclaw.say("errands", ERRAND)
    openclaw.say("main", COMPLAINT)
    before_the_tool()
    openclaw.say("main", READ)
    openclaw.say("errands", ERRAND_THANKS)
    openclaw.say("main", THANKS)
    openclaw.command("system", "event", "--text", "Look around.", "--mode", "now", "--token", TOKEN)
    eventually("a heartbeat", lambda: any(map(_is_heartbeat, records.all())))
    openclaw.say("main", AFTER)
    openclaw.call("sessions.create", agentId="main", message=DASHBOARD)
    eventually("a title", lambda: any(map(_is_title, records.all())))
    return Told(records, _session_of(records, QUESTION), _session_of(records, ERRAND))


def _session_of(records: Records, first_message: str) -> list[Record]:
    """The main turns of the session that began with a message."""
    main = records.of_kind("main")
    session = next(record.listed["session_id"] for record in main if first_message in record.asked)
    return [record for record in main if record.listed["session_id"] == session]


def _is_heartbeat(record: Record) -> bool:
    return record.asked.startswith("Follow the heartbeat monitor scratch context")


def _is_title(record: Record) -> bool:
    return str(record.turn.messages[0]["content"]).startswith("Generate a concise session title")


def _is_memory_flush(record: Record) -> bool:
    return any("Pre-compaction memory flush." in str(message["content"]) for message in record.turn.messages)


def assert_paired(told: Told) -> None:
    """Each main turn has its own next state, word for word and without what OpenClaw adds."""
    asked, complained, called, read, thanked, after = told.main
    assert asked.asked.split("] ", 1)[1].startswith(QUESTION)
    _assert_next(asked, COMPLAINT)
    _assert_next(complained, READ)
    _assert_next(read, THANKS)
    before_the_heartbeat = told.main[:-1]
    parents = [record.turn.parent_id for record in before_the_heartbeat[1:]]
    assert parents == [record.turn.id for record in before_the_heartbeat[:-1]]
    # Whether the person answered this reply or the heartbeat's is not ours to say; it was no heartbeat.
    if thanked.next_messages:
        _assert_next(thanked, AFTER)
    assert after.listed["state"] == "waiting_next_state"

    assert called.called == "read"
    (result,) = called.next_messages
    assert result["role"] == "tool"
    assert NOTES in result["content"], called.turn.reply

    first, second = told.errands
    assert first.listed["session_id"] != asked.listed["session_id"]
    _assert_next(first, ERRAND_THANKS)
    assert second.turn.parent_id == first.turn.id


def _assert_next(record: Record, text: str) -> None:
    """That one message followed, a person's, of which OpenClaw wrote the time stamp alone."""
    (message,) = record.next_messages
    stamp, _, words = message["content"].partition("] ")
    assert (message["role"], words) == ("user", text)
    assert stamp.startswith("[")


def assert_judged(told: Told) -> None:
    """The rules judge heard the complaint, with its hint, and the thanks; it judged all that was paired."""
    paired = [record for record in (*told.main, *told.errands) if record.next_messages]
    eventually("all is judged", lambda: all(told.records.of(record).judgement for record in paired))
    asked, _, called, read = (told.records.of(record) for record in told.main[:4])
    assert asked.judgement is not None
    assert asked.judgement.score == -1
    assert "one short sentence" in (asked.judgement.hint or "")
    assert read.judgement is not None
    assert read.judgement.score == 1
    # The call was forced, so it is no choice to learn from.
    assert [record.listed["trainable"] for record in (asked, called, read)] == [True, False, True]


def assert_the_rest_is_side(told: Told) -> None:
    """Main are the turns that answer people or the tools they asked for; a side turn is never judged."""
    for record in told.records.all():
        of_a_person = record.last["role"] == "tool" or any(text in record.asked for text in _PEOPLE)
        by_itself = _is_heartbeat(record) or _is_title(record) or _is_memory_flush(record)
        assert record.listed["kind"] == ("main" if of_a_person and not by_itself else "side"), record.listed
        if by_itself:
            assert (record.next_messages, record.judgement) == ([], None)
