"""Attestations of ``fsync``: what an administrator's `tickwheel doctor --attest` saw, for users without CONFIG GET.

Only CONFIG GET shows the settings of `FSYNC`, and CONFIG GET also shows the passwords of the server. So the users of
`tickwheel acl` may not run it. An administrator attests that a server writes to its disk before it answers. The
metadata shard stores the attestation: the run id of each such server, which changes with each start, the number of its
calls of CONFIG SET and CONFIG RESETSTAT, and the version of `FSYNC`. If one of them changes, the attestation is out of
date. CONFIG RESETSTAT forgets the calls of CONFIG SET, so a server on which it was run is not attested until its next
start.
"""

import re
from collections.abc import Mapping

from tickwheel.errors import Forbidden
from tickwheel.operations.server_info import read_info
from tickwheel.plan import ListPrimaries, Plan, Reply, Request, Round, send_request
from tickwheel.storage.keys import namespace_key

FIELD = "attested"
# With `no-appendfsync-on-rewrite yes`, the server does not write to its disk while it rewrites its append-only file, or
# saves a snapshot.
FSYNC = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
# Rises when `FSYNC` changes, so that earlier attestations no longer count.
_ATTESTED_SETTINGS = "2"
_SECTIONS = ("server", "persistence", "commandstats")
_CALLS = re.compile(r"calls=(\d+)")
_NO_RIGHT = "nothing was stored, because this user may not run CONFIG GET: use an administrator of the server"
_RESET = (
    "CONFIG RESETSTAT was run since the start of the server, so the number of its calls of CONFIG SET is unknown:"
    " restart the server, and attest it afterwards"
)


def read_append_settings(shard: int) -> Plan[dict[str, str] | None]:
    """Return the settings of the server that `FSYNC` names, or None if the user may not run CONFIG GET."""
    try:
        replies: list[Reply] = yield Round([Request(shard, command=("CONFIG", "GET", name)) for name in FSYNC])
    except Forbidden:
        return None
    values = (reply.value[1].decode() if reply.value else "unknown" for reply in replies)
    return dict(zip(FSYNC, values, strict=True))


def explain_unfit_settings(settings: Mapping[str, str]) -> str | None:
    """Return None if these settings of a server support ``fsync``, and otherwise the wrong ones and the remedy."""
    wrong = [name for name, value in FSYNC.items() if settings.get(name) != value]
    if not wrong:
        return None
    needed = [f"{name} {value}" for name, value in FSYNC.items()]
    remedies = [f"`CONFIG SET {name} {FSYNC[name]}`" for name in wrong]
    return (
        f"fsync needs {', '.join(needed[:-1])} and {needed[-1]}; this server has"
        f" {' and '.join(f'{name} {settings.get(name)}' for name in wrong)}: run {' and '.join(remedies)} as an"
        " administrator, and change the configuration file of the server, too"
    )


def attest(namespace: str) -> Plan[dict[str, str]]:
    """Store an attestation of every primary that writes to its disk before it answers, and of no other server.

    Return a text for each primary that is not attested, by its name; "" for the others. If this user may not run CONFIG
    GET, nothing is stored.
    """
    servers: dict[str, int] = yield ListPrimaries()
    reasons: dict[str, str] = {}
    attested = []
    for name, shard in servers.items():
        # INFO comes first: a CONFIG SET between the two commands makes the attestation out of date at once.
        info = yield from read_info(shard, *_SECTIONS)
        settings = yield from read_append_settings(shard)
        if settings is None:
            reasons[name] = _NO_RIGHT
        elif (unfit := explain_unfit_settings(settings)) is not None:
            reasons[name] = f"not stored: {unfit}"
        elif _was_reset(info):
            reasons[name] = f"not stored: {_RESET}"
        else:
            reasons[name] = ""
            attested.append(_fingerprint(info))
    if _NO_RIGHT not in reasons.values():
        command = ("HSET", namespace_key(namespace), FIELD, " ".join(attested))
        yield from send_request(Request(0, command=command))
    return reasons


def explain_missing_attestation(namespace: str, shard: int) -> Plan[str | None]:
    """Return None if the server of the shard is attested, and otherwise the reason why ``fsync`` is not known."""
    info = yield from read_info(shard, *_SECTIONS)
    if info.get("aof_enabled") != "1":
        return "the server has no append-only file (appendonly no)"
    stored = (yield from send_request(Request(0, command=("HGET", namespace_key(namespace), FIELD)))).value
    attested = [] if stored is None else stored.decode(errors="replace").split()
    if _was_reset(info):
        return _RESET
    if _fingerprint(info) in attested:
        return None
    if any(entry.partition(":")[0] == info["run_id"] for entry in attested):
        return (
            "settings of the server may have changed since its attestation (CONFIG SET or CONFIG RESETSTAT was run), or"
            " the attestation is of an earlier version of Tickwheel, which checked fewer settings"
        )
    return "there is no attestation of this server, or the server was restarted since its attestation"


def _was_reset(info: dict[str, str]) -> bool:
    """Return whether CONFIG RESETSTAT was run since the start of the server.

    The command sets all numbers of calls to zero, and its own number is one afterwards. So a second CONFIG RESETSTAT
    could hide a CONFIG SET after the first.
    """
    return _count_calls(info, "resetstat") != "0"


def _fingerprint(info: dict[str, str]) -> str:
    """Return the run id of the server, the number of calls since its start that may have changed its settings, and the
    version of the attested settings.
    """
    return ":".join([info["run_id"], _count_calls(info, "set"), _count_calls(info, "resetstat"), _ATTESTED_SETTINGS])


def _count_calls(info: dict[str, str], command: str) -> str:
    calls = _CALLS.search(info.get(f"cmdstat_config|{command}", ""))
    return calls[1] if calls else "0"
