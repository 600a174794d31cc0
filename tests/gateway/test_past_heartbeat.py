"""OpenClaw puts a past heartbeat into the history as a short mark, with a time stamp as people have it.

Found by the real app (tests/openclaw_app): the mark is no person's message, though it is stamped like one.
"""

from __future__ import annotations

from running_gateway import RunningGateway, assistant, user

STAMP = "[Mon 2026-11-30 01:45 UTC] "
RUNTIME = "\n\nRuntime: agent=main | session=agent:main:main | sessionId=1b2c | host=h | shell=bash"


def test_a_stamped_mark_of_a_past_heartbeat_is_no_next_state(gateway: RunningGateway) -> None:
    asked = user(f"{STAMP}What is the capital of Italy?{RUNTIME}")
    first = gateway.chat(asked)
    past = [user(f"{STAMP}[OpenClaw heartbeat poll]"), assistant("HEARTBEAT_OK")]
    followed = user(f"{STAMP}Thanks, that is perfect!")
    second = gateway.chat(asked, assistant("fine"), *past, followed)
    assert second.parent_id == first.id
    assert gateway.next_states(first) == [("conversation", [followed["content"]])]
