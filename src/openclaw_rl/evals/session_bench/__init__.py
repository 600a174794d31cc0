"""How well requests are told main from side, joined to sessions and paired: `openclaw-rl bench sessions`.

Owns the labelled conversations, the clients that turn them into requests, and the measurement. The labels say
what is right for a user; they know nothing of how the gateway finds it out.
"""
