"""The names of all Redis keys. Only this module builds them.

Every key of shard 3 starts with `<namespace>:{3}:`, so all keys of a shard are in one hash slot of a Redis Cluster.
Names of queues and namespaces contain only letters, digits, `.`, `_` and `-` (`model/validation.py`), so no name can
move a key to another hash slot.
"""

import re
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
    "ended",
)


def shard_prefix(namespace: str, shard: int) -> str:
    """Return the prefix of every key of the shard."""
    return f"{namespace}:{{{shard}}}:"


def keys_pattern(namespace: str) -> str:
    """Return the pattern (`SCAN MATCH`) of all keys of the namespace. Keys that Tickwheel never writes match, too."""
    return f"{namespace}:{{*}}:*"


def shard_of_key(namespace: str, key: bytes) -> int | None:
    """Return the shard of a key, or None if no namespace of this name can have the key in one of its shards."""
    matched = re.fullmatch(rb"(?s:%b:\{(0|[1-9][0-9]{0,4})\}:.+)" % re.escape(namespace.encode()), key)
    return int(matched[1]) if matched else None


def namespace_of_key(key: str) -> str:
    """Return the namespace of a key of a shard, or an empty text if the key has another form."""
    namespace, brace, _ = key.partition(":{")
    return namespace if brace else ""


@lru_cache(maxsize=65_536)
def shard_key(namespace: str, shard: int, name: str) -> str:
    """Return the name of a key that exists once in each shard: one of SHARD_KEYS. `adopted` is a channel, not a key."""
    return shard_prefix(namespace, shard) + name


@lru_cache(maxsize=65_536)
def queue_key(namespace: str, shard: int, queue: str, name: str) -> str:
    """Return the name of a key of one queue on one shard: one of QUEUE_KEYS. `wake` and `ended` are channels."""
    return f"{shard_prefix(namespace, shard)}q:{queue}:{name}"


@lru_cache(maxsize=8_192)
def declared_keys(namespace: str, shard: int, queue: str) -> dict[str, str]:
    """Return the keys of a shard and of a queue on it: the name that scripts declare -> the key.

    Do not change the result. An entry takes about 2 KB.
    """
    prefix = f"{shard_prefix(namespace, shard)}q:{queue}:"
    return {name: shard_key(namespace, shard, name) for name in SHARD_KEYS} | {
        name: prefix + name for name in QUEUE_KEYS
    }


def queue_of_config_key(namespace: str, key: bytes) -> str | None:
    """Return the queue whose key `config` this is, on any shard; None for other bytes."""
    matched = re.fullmatch(rb"%b:\{[0-9]{1,5}\}:q:([A-Za-z0-9._-]+):config" % re.escape(namespace.encode()), key)
    return matched[1].decode() if matched else None


def slot_key(namespace: str, shard: int, level: int, number: int) -> str:
    """Return the key of the list of timers in slot `number` of `level` of the wheel."""
    return f"{shard_prefix(namespace, shard)}w{level}:{number}"


def session_key(namespace: str, shard: int, slot: str) -> str:
    """Return the key under which a client session's last sequence number and answer are. ``slot`` names the session."""
    return f"{shard_prefix(namespace, shard)}session:{slot}"


def call_digest_key(namespace: str, shard: int, slot: str) -> str:
    """Return the key of the digest of the last answered call of a session that has a request id.

    The key has the form of the session of another part of the call, number 0. The first part has no number, so no
    session has this name.
    """
    return session_key(namespace, shard, f"{slot}/0")


def namespace_key(namespace: str) -> str:
    """Return the key of the namespace's own fields: number of shards, history, clock guard, id and others.

    This key, `queues_key`, `settings_key` and `election_key` are on the metadata shard, shard 0.
    """
    return shard_prefix(namespace, 0) + "namespace"


def queues_key(namespace: str) -> str:
    """Return the key of the configurations of all queues: name -> packed configuration."""
    return shard_prefix(namespace, 0) + "queues"


def settings_key(namespace: str) -> str:
    """Return the key of the namespace's settings: name -> value."""
    return shard_prefix(namespace, 0) + "settings"


def election_key(namespace: str) -> str:
    """Return the key of the members of an election by lease, and of the assignment of shards to them."""
    return shard_prefix(namespace, 0) + "election"


def metadata_keys(namespace: str) -> dict[str, str]:
    """Return the keys that are on the metadata shard only: the name that scripts declare -> the key."""
    return {
        "namespace": namespace_key(namespace),
        "queues": queues_key(namespace),
        "settings": settings_key(namespace),
    }
