"""Who asks, in front of another server: told apart by what they show to it, which is kept nowhere.

A caller's name is a hash of its credential under the data folder's own key. Conversations of two callers
never join. Whether the credential is any good is the upstream's to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from openclaw_rl.config import Settings
from openclaw_rl.folder_key import FolderKey
from openclaw_rl.gateway.auth import KEY_HEADER, Keys

CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")


class Callers:
    def __init__(self, settings: Settings) -> None:
        self._keys = Keys(settings, KEY_HEADER)
        self._folder_key = FolderKey(settings.home)

    def tenant_of(self, headers: Mapping[str, str]) -> str:
        """The tenant that a caller is; raises ApiError as `Keys.tenant_of` does."""
        ours = self._keys.tenant_of(headers)
        shown = [f"{name}: {headers[name]}" for name in CREDENTIALS if name in headers]
        return self._folder_key.opaque("caller", "\n".join([ours, *shown]))
