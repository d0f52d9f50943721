"""No key outside the declared shapes, and each of its type."""

import re

from tickwheel.doctor.shard_reader import PAGE, Findings, Queues, ask
from tickwheel.operations.context import Core
from tickwheel.plan import Plan
from tickwheel.storage import keys

_HOME = {"namespace": "hash", "queues": "hash", "settings": "hash"}
_SHARD = {
    "clock": "hash",
    "messages": "hash",
    "bodies": "hash",
    "inbox": "stream",
    "slots": "zset",
    "events": "stream",
}
_QUEUE = {
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
_SLOT = re.compile(r"w[2-5]:\d+")
_SESSION = re.compile(r"session:([A-Za-z0-9._-]{1,64}/)?[A-Za-z0-9_-]{1,64}(/[0-9]{1,4})?")


def check_keys(core: Core, queues: Queues, findings: Findings) -> Plan[bool]:
    """Look at the name and type of every key; whether the other checks can read them."""
    usable = True
    names = {name for name, _ in queues.values()}
    shape = re.compile(re.escape(core.namespace) + r":\{(\d+)\}:(.+)")
    cursor = b"0"
    while True:
        command = ("SCAN", cursor, "MATCH", f"{core.namespace}:{{*", "COUNT", PAGE)
        cursor, found = (yield from ask(0, [command]))[0]
        types = yield from ask(0, (("TYPE", key) for key in found))
        lives = yield from ask(0, (("PTTL", key) for key in found))
        for raw, kind, life in zip(found, types, lives, strict=True):
            key, matched = raw.decode(errors="backslashreplace"), None
            matched = shape.fullmatch(key)
            shard, rest = (int(matched[1]), matched[2]) if matched else (-1, "")
            wanted = _declared(rest, shard, names) if 0 <= shard < core.shards else None
            if wanted is None:
                findings[f"key {key}"] = f"key {key}: not one that Tickwheel makes"
            elif kind.decode() not in (wanted, "none"):
                findings[f"key {key}"] = f"key {key}: a {kind.decode()}, not a {wanted}"
                usable = False
            elif (life == -1) == (wanted == "string"):
                expires = "never expires" if life == -1 else "expires"
                findings[f"key {key}"] = f"key {key}: it {expires}, which its kind must not"
        if cursor == b"0":
            return usable


def _declared(rest: str, shard: int, queues: set[str]) -> str | None:
    """The type of a key by what follows its shard; None where there is no such key."""
    if rest in _SHARD:
        return _SHARD[rest]
    if shard == 0 and rest in _HOME:
        return _HOME[rest]
    if _SLOT.fullmatch(rest):
        return "list"
    if _SESSION.fullmatch(rest):
        return "string"
    if rest.startswith("q:"):
        queue, _, name = rest[2:].rpartition(":")
        return _QUEUE.get(name) if queue in queues else None
    return None


assert _SHARD.keys() | {"adopted"} == set(keys.SHARD_KEYS)
assert _QUEUE.keys() | {"wake"} == set(keys.QUEUE_KEYS)
