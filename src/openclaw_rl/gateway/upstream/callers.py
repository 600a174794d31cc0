"""Who asks, in front of another server: told apart by what they show to it, which is kept nowhere.

A caller's name is a hash of its credentials under the data folder's own key. Conversations of two callers
never join. Whether a credential is any good is the upstream's to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote_plus

from openclaw_rl.config import Settings
from openclaw_rl.folder_key import FolderKey
from openclaw_rl.gateway.auth import KEY_HEADER, Keys

# By their kind and not by a list: every provider and every proxy has names of its own. A name too many parts
# a conversation at worst; one too few would join those of two callers. `Idempotency-Key` differs each time.
_CREDENTIAL = re.compile(
    r"(api|access|subscription|auth|private|secret|virtual)[-_]?key|token(?!s)|auth|secret|credential|password",
    re.IGNORECASE,
)
_CREDENTIAL_IN_QUERY = re.compile(rf"key|code|sig|signature|.*({_CREDENTIAL.pattern}).*", re.IGNORECASE)


class Callers:
    def __init__(self, settings: Settings) -> None:
        self._keys = Keys(settings, KEY_HEADER)
        self._folder_key = FolderKey(settings.home)

    def tenant_of(self, headers: Mapping[str, str], query: str) -> str:
        """The tenant that a caller is; raises ApiError as `Keys.tenant_of` does."""
        ours = self._keys.tenant_of(headers)
        # A header that is there twice is given twice.
        shown = [f"{name}: {value}" for name, value in headers.items() if _CREDENTIAL.search(name)]
        shown += [f"?{part}" for part in query.split("&") if _is_credential(part)]
        return self._folder_key.opaque("caller", "\n".join([ours, *sorted(shown)]))


def _is_credential(part: str) -> bool:
    """Whether a part of a query, as it came, names what its caller is known by."""
    return bool(_CREDENTIAL_IN_QUERY.fullmatch(unquote_plus(part.partition("=")[0])))
