"""The data folder's own random key, with which names become opaque.

A plain hash of a key or a telephone number can be found again by trying; a keyed one cannot, without the
folder. Knows nothing of what is named.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from openclaw_rl.config import ConfigError

FILE = "opaque.key"
_BYTES = 32


class FolderKey:
    def __init__(self, home: Path) -> None:
        """Read the key of the data folder, or make one that its owner alone may read.

        Raises ConfigError when the file holds no key.
        """
        path = home / FILE
        if not path.exists():
            _make(path)
        self._key = path.read_bytes()
        if len(self._key) != _BYTES:
            raise ConfigError(f"{path} is damaged; restore it, or delete it and all callers count as new")

    def opaque(self, prefix: str, name: str) -> str:
        """A name that stands for `name` in this folder alone."""
        digest = hmac.new(self._key, name.encode(errors="surrogatepass"), hashlib.sha256)
        return f"{prefix}_{digest.hexdigest()[:24]}"


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{FILE}.{os.getpid()}")
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
        file.flush()
        os.fsync(file.fileno())
    try:
        path.hardlink_to(made)  # whole or not at all, and never over one that is there
    except FileExistsError:
        pass  # Another process made one at the same time, and all must use the same.
    finally:
        made.unlink()
