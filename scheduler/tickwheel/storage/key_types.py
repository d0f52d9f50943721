"""The type of each key, and the error for a key whose type another program has changed. No I/O.

The server's error WRONGTYPE does not name the key. So after the error, the caller sends the commands of `type_probes`
for the keys of the call, and passes the answers to `wrong_type_text`. Every user may run these commands.
"""

from collections.abc import Iterable, Sequence
from typing import Final

WRONGTYPE: Final = "WRONGTYPE"
METADATA_TYPES: Final = {"namespace": "hash", "queues": "hash", "settings": "hash", "election": "hash"}
SHARD_TYPES: Final = {
    "clock": "hash",
    "messages": "hash",
    "bodies": "hash",
    "inbox": "stream",
    "slots": "zset",
    "events": "stream",
}
QUEUE_TYPES: Final = {
    "config": "hash",
    "counts": "hash",
    "ready": "zset",
    "waiting": "zset",
    "locks": "hash",
    "pairs": "zset",
    "vpairs": "zset",
    "parked": "zset",
    "lateness": "hash",
    "forecast": "hash",
}
# For each type, a command that succeeds for a missing key and for a key of this type.
_PROBES: Final = {"hash": ("HLEN",), "list": ("LLEN",), "stream": ("XLEN",), "zset": ("ZSCORE", "")}
# What is lost with each key. A key that is not listed has data that follows from the messages.
_CONTENTS: Final = {
    "namespace": "the number of shards and the history of the namespace",
    "queues": "the configurations of all queues",
    "settings": "the settings of the namespace",
    "clock": "the counters of the shard",
    "messages": "all messages of the shard",
    "bodies": "the long payloads of the shard",
    "inbox": "timers that were not filed yet: their messages do not become due, and their leases do not expire",
    "slots": "the list of the timers' slots: messages that wait for a timer stay as they are",
    "events": "the history of the shard, or its events that are not relayed yet",
}


def type_of_key(key: str) -> str | None:
    """Return the type that Tickwheel gives to this key; None for a channel and for an unknown name."""
    name = key.partition("}:")[2]
    if name.startswith("q:"):
        return QUEUE_TYPES.get(name.rpartition(":")[2])
    if name.startswith("session:"):
        return "string"
    if name[:1] == "w" and name[1:2].isdigit():
        return "list"
    return SHARD_TYPES.get(name) or METADATA_TYPES.get(name)


def type_probes(keys: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the commands whose answers `wrong_type_text` takes: one for each type of each key."""
    return [(command, key, *rest) for key in keys for command, *rest in _PROBES.values()]


def wrong_type_text(keys: Sequence[str], answers: Sequence[object]) -> str:
    """Return the text of the error. It names the first key with a wrong type, its type, and the remedy.

    In ``answers``, an error of the server is an exception object.
    """
    for n, key in enumerate(keys):
        of_key = answers[n * len(_PROBES) : (n + 1) * len(_PROBES)]
        types = [kind for kind, answer in zip(_PROBES, of_key, strict=True) if not isinstance(answer, Exception)]
        # All of the commands succeed for a missing key, and none of them for a string.
        actual, expected = types[0] if types else "string", type_of_key(key)
        refused = all(str(answer).startswith(WRONGTYPE) for answer in of_key if isinstance(answer, Exception))
        if len(types) <= 1 and refused and expected not in (None, actual):
            name = key.partition("}:")[2]
            lost = _CONTENTS.get("slots" if expected == "list" else name, "data of the queue or of a session")
            return (
                f"{WRONGTYPE} the key {key} has the type {actual}, not {expected}: another program has replaced it."
                f" Delete the key as an administrator of the server (UNLINK {key}), and find out who can write to it."
                f" This data is lost: {lost}. `tickwheel doctor` lists the consequences"
            )
    return (
        f"{WRONGTYPE} a key has another type than Tickwheel gives to it, because another program has replaced the key:"
        " `tickwheel doctor` names the key"
    )
