"""Checks that each key has a name that Tickwheel writes, and the right type and expiry."""

import re
from itertools import islice

from tickwheel.doctor.shard_reader import PAGE, Findings, Queues, execute_commands
from tickwheel.errors import Forbidden
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage import keys
from tickwheel.storage.key_types import METADATA_TYPES, QUEUE_TYPES, SHARD_TYPES

_SLOT = re.compile(r"w[2-5]:[0-9]+")
_SESSION = re.compile(r"session:([A-Za-z0-9._-]{1,64}/)?[A-Za-z0-9_-]{1,64}(/[0-9]{1,4})?")


def may_scan(shard: int) -> Plan[bool]:
    """Return whether the user may run SCAN on the server of the shard. SCAN shows the keys of all namespaces."""
    try:
        yield from execute_commands(shard, [("SCAN", "0", "COUNT", 1)])
    except Forbidden:
        return False
    return True


def check_keys(context: NamespaceContext, queues: Queues, findings: Findings, *, scans: bool) -> Plan[bool]:
    """Check the name, type and expiry of every key on the server of shard 0.

    Other servers of a cluster are not scanned. Without ``scans``, check the type and the expiry of the keys whose names
    the namespace implies, on all servers. Return whether the types are right, so that the other checks can read the
    keys.
    """
    names = {name for name, _ in queues.values()}
    return (yield from (_check_scanned_keys if scans else _check_implied_keys)(context, names, findings))


def _check_scanned_keys(context: NamespaceContext, names: set[str], findings: Findings) -> Plan[bool]:
    usable = True
    cursor = b"0"
    while True:
        command = ("SCAN", cursor, "MATCH", f"{context.namespace}:{{*", "COUNT", PAGE)
        cursor, page = (yield from execute_commands(0, [command]))[0]
        types = yield from execute_commands(0, (("TYPE", key) for key in page))
        ttls = yield from execute_commands(0, (("PTTL", key) for key in page))
        for raw, kind, ttl in zip(page, types, ttls, strict=True):
            key = raw.decode(errors="backslashreplace")
            shard = keys.shard_of_key(context.namespace, raw)
            rest = key.partition("}:")[2]
            expected = None if shard is None or shard >= context.shards else _expected_type(rest, shard, names)
            usable = _check_key(key, expected, kind, ttl, findings) and usable
        if cursor == b"0":
            return usable


def _check_implied_keys(context: NamespaceContext, names: set[str], findings: Findings) -> Plan[bool]:
    usable = True
    implied = (
        (shard, rest)
        for shard in range(context.shards)
        for rest in (
            *SHARD_TYPES,
            *(METADATA_TYPES if shard == 0 else ()),
            *(f"q:{name}:{rest}" for name in sorted(names) for rest in QUEUE_TYPES),
        )
    )
    while page := list(islice(implied, PAGE)):
        named = [(shard, rest, keys.shard_key(context.namespace, shard, rest)) for shard, rest in page]
        types = yield Round([Request(shard, command=("TYPE", key)) for shard, _, key in named])
        ttls = yield Round([Request(shard, command=("PTTL", key)) for shard, _, key in named])
        for (shard, rest, key), kind, ttl in zip(named, types, ttls, strict=True):
            if kind.value != b"none":
                expected = _expected_type(rest, shard, names)
                usable = _check_key(key, expected, kind.value, ttl.value, findings) and usable
    return usable


def _check_key(key: str, expected: str | None, kind: bytes, ttl: int, findings: Findings) -> bool:
    """Check the type and the expiry of a key. Return whether the type is right."""
    if expected is None:
        findings[f"key {key}"] = f"key {key}: Tickwheel writes no key of this name"
    elif kind.decode() not in (expected, "none"):
        findings[f"key {key}"] = f"key {key}: its type is {kind.decode()}, not {expected}"
        return False
    # The time is -2 if the key was removed meanwhile.
    elif ttl != -2 and (ttl == -1) == (expected == "string"):
        expiry = (
            "no expiry, but keys of sessions need one"
            if ttl == -1
            else "an expiry, but only keys of sessions may have one"
        )
        findings[f"key {key}"] = f"key {key}: it has {expiry}"
    return True


def _expected_type(rest: str, shard: int, queues: set[str]) -> str | None:
    """Return the type of a key, given its name after the shard; None if Tickwheel writes no such key."""
    if rest in SHARD_TYPES:
        return SHARD_TYPES[rest]
    if shard == 0 and rest in METADATA_TYPES:
        return METADATA_TYPES[rest]
    if _SLOT.fullmatch(rest):
        return "list"
    if _SESSION.fullmatch(rest):
        return "string"
    if rest.startswith("q:"):
        queue, _, name = rest[2:].rpartition(":")
        # A shard keeps the version of a configuration, if a client stored it there while the queue was deleted.
        return QUEUE_TYPES.get(name) if queue in queues or name == "config" else None
    return None


assert SHARD_TYPES.keys() | {"adopted"} == set(keys.SHARD_KEYS)
assert QUEUE_TYPES.keys() | {"wake", "ended"} == set(keys.QUEUE_KEYS)
