"""OpenClaw-RL: serve an agent's model and let every next state train it."""

__version__ = "0.1.0"
