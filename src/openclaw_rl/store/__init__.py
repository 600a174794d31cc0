"""The durable store and queue between the loops."""

from openclaw_rl.store.conversations import new_id
from openclaw_rl.store.learning import ConflictError
from openclaw_rl.store.schema import SchemaError
from openclaw_rl.store.store import Store

__all__ = ["ConflictError", "SchemaError", "Store", "new_id"]
