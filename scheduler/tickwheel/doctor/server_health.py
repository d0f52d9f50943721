"""Health checks of a server. The functions read facts about the server, and then judge them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil

from tickwheel.doctor.clock_reading import ClockReading
from tickwheel.doctor.finding import Finding
from tickwheel.doctor.followers import read_followers
from tickwheel.doctor.keyspace import may_scan
from tickwheel.errors import TickwheelError
from tickwheel.model.security_releases import find_vulnerability
from tickwheel.operations.attestation import FSYNC, explain_missing_attestation, read_append_settings
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.server_checks import VERSION_MIN
from tickwheel.operations.server_info import read_info
from tickwheel.plan import ListPrimaries, Plan, Request, Round
from tickwheel.runtime.time import wall_ms

_MEMORY_SHARE = 0.8
# The server's default of min-replicas-max-lag.
_LAG_S = 10
_REPLICA, _REPLICA_FIELD = re.compile("slave[0-9]+"), re.compile("([a-z_]+)=([^,]*)")


@dataclass(slots=True)
class ServerFacts:
    """INFO and the relevant settings of a server, as text. Settings that the server does not return are missing."""

    info: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    clock: ClockReading = field(default_factory=ClockReading)
    may_list_clients: bool = True
    may_scan: bool = True
    attested: bool = False
    """Only if ``settings`` are missing: an administrator has attested that the server supports ``fsync``."""


def read_server(context: NamespaceContext, shard: int) -> Plan[ServerFacts]:
    """Return the facts about the server of a shard. Facts that this user may not read are left out."""
    facts = ServerFacts()
    facts.info = yield from read_info(shard)
    # The connection is open now, so the duration of this call is that of one answer.
    sent_ms = wall_ms()
    [time] = yield Round([Request(shard, command=("TIME",))])
    facts.clock = ClockReading.of_reply(time.value, sent_ms)
    with suppress(TickwheelError):
        values = yield from read_append_settings(shard)
        if values is None:
            facts.attested = (yield from explain_missing_attestation(context.namespace, shard)) is None
        else:
            facts.settings = values
    facts.may_list_clients = (yield from read_followers(context, [shard])).shards is not None
    facts.may_scan = yield from may_scan(shard)
    return facts


def list_servers() -> Plan[dict[str, int]]:
    """Return a shard of each server, by the name of the server. A single server has an empty name."""
    servers: dict[str, int] = yield ListPrimaries()
    return servers


def check_server(facts: ServerFacts, guard_ms: int) -> Iterator[Finding]:
    """Check the version, role, memory, durability and clock of a server."""
    info = facts.info
    name, version = info.get("server_name", "redis").capitalize(), info.get("redis_version", "0")
    summary = f"{name} {info.get('valkey_version', version)}, answers in {facts.clock.answered_ms:.1f} ms"
    recent = tuple(int(part) for part in version.split(".")[:2]) >= VERSION_MIN
    yield Finding("server", "ok" if recent else "bad", summary + ("" if recent else ": version 7.0 or newer is needed"))
    vulnerability = find_vulnerability(info)
    if vulnerability is not None:
        yield Finding("version", "warning", vulnerability)
    if info.get("role", "master") != "master":
        yield Finding("role", "bad", "it is a replica: give the URL of the primary")
    yield _memory(facts)
    yield _durability(facts)
    yield from _rights(facts)
    yield _clock(facts.clock, guard_ms)


def _clock(clock: ClockReading, guard_ms: int) -> Finding:
    least, most = clock.ahead_ms
    if clock.agrees(guard_ms) is not False:
        bound = ceil(max(abs(least), abs(most)))
        return Finding("clock", "ok", f"the server's clock and this host's clock differ by at most {bound:,} ms")
    apart = f"{least:,.0f} ms ahead of" if least > 0 else f"{-most:,.0f} ms behind"
    text = f"the server's clock is at least {apart} this host's clock, more than the clock guard of {guard_ms:,} ms"
    return Finding("clock", "warning", f"{text}: check NTP on both hosts")


def _memory(facts: ServerFacts) -> Finding:
    used, limit = int(facts.info.get("used_memory", 0)), int(facts.info.get("maxmemory", 0))
    policy = facts.info.get("maxmemory_policy", "unknown")
    text = f"{used / 2**20:,.0f} MiB used, " + (f"of {limit / 2**20:,.0f}, {policy}" if limit else "no limit set")
    if limit and policy != "noeviction":
        return Finding("memory", "bad", f"{text}: messages would be evicted; set maxmemory-policy noeviction")
    if limit and used > _MEMORY_SHARE * limit:
        return Finding("memory", "warning", f"{text}: when the memory is full, enqueues are rejected")
    return Finding("memory", "ok", text)


def _durability(facts: ServerFacts) -> Finding:
    if facts.info.get("aof_enabled") == "1" and facts.info.get("aof_last_write_status", "ok") != "ok":
        return Finding(
            "durability", "bad", "the server cannot write its append-only file: check whether its disk is full"
        )
    appendonly = facts.settings.get("appendonly")
    if appendonly is None and facts.attested:
        return Finding("durability", "ok", "supports the durability fsync, as attested by `tickwheel doctor --attest`")
    if appendonly is None:
        return Finding(
            "durability",
            "warning",
            "unknown, because this user may not run CONFIG GET, and there is no valid attestation: run `tickwheel"
            " doctor --attest` as an administrator of the server",
        )
    connected, replicas = int(facts.info.get("connected_slaves", 0)), _count_current_replicas(facts.info)
    levels = [
        *(["fsync"] if facts.settings == FSYNC else []),
        *([f"replica:{replicas}"] if replicas else []),
    ]
    aof = f"appendfsync {facts.settings.get('appendfsync')}" if appendonly == "yes" else "no append-only file"
    if appendonly == "yes" and facts.settings.get("no-appendfsync-on-rewrite") == "yes":
        aof += ", but no fsync during a rewrite: for fsync, run `CONFIG SET no-appendfsync-on-rewrite no`"
    supported = f"supports the durability {' and '.join(levels) if levels else 'memory'}"
    text = f"{supported} ({aof}, {replicas} {'replica' if replicas == 1 else 'replicas'})"
    if replicas < connected:
        text += f": {connected - replicas} of {connected} replicas are not online, or have not answered for {_LAG_S} s"
        return Finding("durability", "warning", f"{text}: check these replicas")
    if appendonly != "yes" and not replicas:
        return Finding(
            "durability",
            "warning",
            f"{text}: after a restart, the server has lost all messages since its last snapshot, or all messages; set"
            " `appendonly yes` and, for the durability fsync, `appendfsync always`",
        )
    return Finding("durability", "ok", text)


def _count_current_replicas(info: dict[str, str]) -> int:
    """Return the number of replicas that are online, and whose last answer is not old."""
    replicas = (dict(_REPLICA_FIELD.findall(value)) for name, value in info.items() if _REPLICA.fullmatch(name))
    return sum(each.get("state") == "online" and int(each.get("lag", 0)) <= _LAG_S for each in replicas)


def _rights(facts: ServerFacts) -> Iterator[Finding]:
    """Report what the checks leave out because of the rights of this user."""
    unchecked = [
        *(
            []
            if facts.may_scan
            else ["keys that Tickwheel does not write, sessions, and slots outside the wheel (SCAN)"]
        ),
        *([] if facts.may_list_clients else ["event processes of idle shards (CLIENT LIST)"]),
    ]
    if unchecked:
        yield Finding(
            "rights",
            "warning",
            f"this user sees only its namespace, so these were not checked: {'; '.join(unchecked)}. To check them, run"
            " the command as an administrator of the server",
        )
