"""The commands: `main` lists them; the other files hold them by what they are for."""

from openclaw_rl.cli.main import app, main

__all__ = ["app", "main"]
