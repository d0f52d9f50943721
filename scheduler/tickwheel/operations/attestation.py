"""Attestations of ``fsync``: what an administrator's `tickwheel doctor --attest` saw, for users without CONFIG GET.

Only CONFIG GET shows `appendfsync`, and CONFIG GET also shows the passwords of the server. So the users of `tickwheel
acl` may not run it. An administrator attests that a server writes to its disk before it answers. The metadata shard
stores the attestation: the run id of each such server, which changes with each start, and the number of its calls of
CONFIG SET and CONFIG RESETSTAT. If one of them changes, the attestation is out of date.
"""

import re

from tickwheel.errors import Forbidden
from tickwheel.operations.server_info import read_info
from tickwheel.plan import ListPrimaries, Plan, Reply, Request, Round, send_request
from tickwheel.storage.keys import namespace_key

FIELD = "attested"
_SETTINGS = ("appendonly", "appendfsync")
FSYNC = ("yes", "always")
_SECTIONS = ("server", "persistence", "commandstats")
_CALLS = re.compile(r"calls=(\d+)")


def read_append_settings(shard: int) -> Plan[tuple[str, ...] | None]:
    """Return `appendonly` and `appendfsync` of the server, or None if the user may not run CONFIG GET."""
    try:
        replies: list[Reply] = yield Round([Request(shard, command=("CONFIG", "GET", name)) for name in _SETTINGS])
    except Forbidden:
        return None
    return tuple(reply.value[1].decode() if reply.value else "unknown" for reply in replies)


def attest(namespace: str) -> Plan[dict[str, tuple[str, ...] | None]]:
    """Store an attestation of every primary that writes to its disk before it answers, and of no other server.

    Return `appendonly` and `appendfsync` of each primary, by its name; None where this user may not run CONFIG GET. In
    this case, nothing is stored.
    """
    servers: dict[str, int] = yield ListPrimaries()
    settings: dict[str, tuple[str, ...] | None] = {}
    attested = []
    for name, shard in servers.items():
        # INFO comes first: a CONFIG SET between the two commands makes the attestation out of date at once.
        fingerprint = _fingerprint((yield from read_info(shard, *_SECTIONS)))
        settings[name] = yield from read_append_settings(shard)
        if settings[name] == FSYNC:
            attested.append(fingerprint)
    if None not in settings.values():
        command = ("HSET", namespace_key(namespace), FIELD, " ".join(attested))
        yield from send_request(Request(0, command=command))
    return settings


def explain_missing_attestation(namespace: str, shard: int) -> Plan[str | None]:
    """Return None if the server of the shard is attested, and otherwise the reason why ``fsync`` is not known."""
    info = yield from read_info(shard, *_SECTIONS)
    if info.get("aof_enabled") != "1":
        return "the server has no append-only file (appendonly no)"
    stored = (yield from send_request(Request(0, command=("HGET", namespace_key(namespace), FIELD)))).value
    attested = [] if stored is None else stored.decode(errors="replace").split()
    fingerprint = _fingerprint(info)
    if fingerprint in attested:
        return None
    if any(entry.partition(":")[0] == info["run_id"] for entry in attested):
        return "settings of the server may have changed since its attestation (CONFIG SET or CONFIG RESETSTAT was run)"
    return "there is no attestation of this server, or the server was restarted since its attestation"


def _fingerprint(info: dict[str, str]) -> str:
    """Return the run id of the server, and the number of calls since its start that may have changed its settings."""
    counts = []
    for command in ("set", "resetstat"):
        calls = _CALLS.search(info.get(f"cmdstat_config|{command}", ""))
        counts.append(calls[1] if calls else "0")
    return f"{info['run_id']}:{':'.join(counts)}"
