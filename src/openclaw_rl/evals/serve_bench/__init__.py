"""`openclaw-rl bench serve`: how fast replies come, beside the same replies by others on the same machine.

The work is the same for all: one model, the same prompts, so many new tokens each, one thread count.
"""

PARTS = ("engine", "gateway", "reuse", "learning", "busy", "memory", "vllm")
"""What can be measured alone, in the order in which it is measured."""
