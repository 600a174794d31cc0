"""Loop 3: from a turn and its next state to a score and a hint."""

from openclaw_rl.judge.judge import Judge, judge_turn, make_judge
from openclaw_rl.judge.loop import run

__all__ = ["Judge", "judge_turn", "make_judge", "run"]
