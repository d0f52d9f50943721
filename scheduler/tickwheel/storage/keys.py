"""The names of all Redis keys: one attribute a key, nothing else in the code spells one.

Every key of shard 3 starts `<namespace>:{3}:`, so a shard lives in one Cluster slot. Names of queues and namespaces
may hold letters, digits, `.`, `_` and `-` only (`model/validation.py`), so no name can move a key to another slot.
"""

from functools import lru_cache

SHARD_KEYS = ("clock", "messages", "bodies", "inbox", "slots", "events", "adopted")
QUEUE_KEYS = (
    "config",
    "counts",
    "ready",
    "waiting",
    "locks",
    "pairs",
    "vpairs",
    "parked",
    "lateness",
    "forecast",
    "wake",
)


def shard_prefix(namespace: str, shard: int) -> str:
    return f"{namespace}:{{{shard}}}:"


@lru_cache(maxsize=65_536)
def shard_key(namespace: str, shard: int, name: str) -> str:
    """A key that the shard has once: one of SHARD_KEYS. `adopted` is a channel, not a key."""
    return shard_prefix(namespace, shard) + name


@lru_cache(maxsize=65_536)
def queue_key(namespace: str, shard: int, queue: str, name: str) -> str:
    """A key that the shard has once per queue: one of QUEUE_KEYS. `wake` is a channel, not a key."""
    return f"{shard_prefix(namespace, shard)}q:{queue}:{name}"


def slot_key(namespace: str, shard: int, level: int, number: int) -> str:
    """The list of timers of slot `number` of `level` of the wheel."""
    return f"{shard_prefix(namespace, shard)}w{level}:{number}"


def session_key(namespace: str, shard: int, slot: str) -> str:
    """The last sequence and answer of one client slot."""
    return f"{shard_prefix(namespace, shard)}session:{slot}"


def namespace_key(namespace: str) -> str:
    """Home of what the namespace fixed once: number of shards, history, who may elect."""
    return shard_prefix(namespace, 0) + "namespace"


def queues_key(namespace: str) -> str:
    """Home of every queue's configuration: name -> packed configuration."""
    return shard_prefix(namespace, 0) + "queues"


def settings_key(namespace: str) -> str:
    """Home of the namespace's settings: name -> value."""
    return shard_prefix(namespace, 0) + "settings"
