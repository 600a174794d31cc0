"""`openclaw-rl bench update`: what one optimiser step costs, beside the same step by others.

The work is the same for all: 16 replies of 256 tokens, one model, one LoRA adapter, one thread count.
"""
