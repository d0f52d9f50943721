"""Finds out whether event processes drive the shards of a namespace, from what every client may read.

Each shard has signs of its driver: the driver's fence, the time that its wheel has reached, and the first entry of the
inbox, which a driver removes within seconds. A shard is undriven if nobody has ever claimed it, if its last driver has
released it, or if an entry waits in its inbox, and the signs stay the same for QUIET_MS on this program's monotonic
clock. So no clock of a server takes part. If the inbox is empty, these signs do not show that a driver was killed. In
an election by lease, the number of processes that listen to the election shows this (`check_members`), but the users
of `tickwheel acl` may not ask for the number.

A check costs one round trip for 16 shards, and some more before a warning. It writes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.election.lease_member import KIND
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace import read_namespace
from tickwheel.plan import Pause, Plan, Request, Round, send_request
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage.fence import FENCE_BYTES
from tickwheel.storage.keys import election_key, shard_key
from tickwheel.storage.scripts import Call, load
from tickwheel.storage.stream_id import age_ms

# Longer than the time in which a driver files a timer (2 s), and than a takeover with the default session time-out.
QUIET_MS: Final = 10_000
# Longer than the pause after which a process that takes part in an election by lease connects again.
RECONNECT_S: Final = 3.0
# How many commands a check sends to each shard.
COMMANDS_PER_SHARD: Final = 2
# How many shards are read in one round trip: the event loop of a service needs about a millisecond for them.
_SHARDS_AT_ONCE: Final = 16
_COMMANDS: Final = {
    KIND: "tickwheel events --election lease",
    "zookeeper": "tickwheel events --election zk://…",
}
_SOON: Final = (
    ". Workers and services with `--drive auto` drive a new namespace of one Redis server, too, but only"
    f" {UNCLAIMED_MS / 1_000:g} s after their start"
)
_LATER: Final = ". Workers and services with `--drive auto` drive, too, or log why they do not"


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of a shard's driver. ``oldest`` is the id of the first entry of the inbox, or empty."""

    fence: bytes
    election: str
    high: bytes
    oldest: bytes

    @property
    def is_quiet(self) -> bool:
        """Whether no driver runs if the signs stay the same."""
        return not self.is_claimed or self.oldest != b""

    @property
    def is_claimed(self) -> bool:
        """Whether a driver has claimed the shard, and has not released it."""
        # In an election by lease, a released shard has the number 0.
        is_released = self.election == KIND and self.fence[FENCE_BYTES // 2 :] == bytes(FENCE_BYTES // 2)
        return self.fence != b"" and not is_released


class DriverWatch:
    """Compares the signs of each check with those of the checks before."""

    def __init__(
        self, context: NamespaceContext, clock: Callable[[], float] = monotonic_ms, *, unclaimed_ms: float = 0.0
    ) -> None:
        """``clock`` is the monotonic clock, in ms. ``unclaimed_ms`` is more time for the first claim of a shard: a
        program that drives as a last resort leaves shards that nobody has claimed to event processes for a time.
        """
        self._context = context
        self._clock = clock
        self._unclaimed_ms = unclaimed_ms
        # The signs of each shard, and since when they are the same.
        self._signs: dict[int, tuple[Signs, float]] = {}

    def check(self, *, is_thorough: bool = False) -> Plan[str]:
        """Return a warning about the shards that are known to be undriven, or an empty text.

        With ``is_thorough``, also return the warning of `check_members`, which takes RECONNECT_S longer.
        """
        signs = yield from read_signs(self._context)
        warning = self.judge(signs, self._clock())
        if is_thorough and not warning:
            warning = yield from check_members(self._context)
        return (yield from unless_deleted(self._context, warning))

    def judge(self, signs: Mapping[int, Signs], now: float) -> str:
        """Return the warning for these signs, which were read at ``now``."""
        before = self._signs
        self._signs = {
            shard: before[shard] if shard in before and before[shard][0] == own else (own, now)
            for shard, own in signs.items()
        }
        undriven = [
            shard
            for shard, (own, since) in self._signs.items()
            if own.is_quiet and now - since >= QUIET_MS + (0.0 if own.fence else self._unclaimed_ms)
        ]
        return undriven_text(self._context, undriven, signs) if undriven else ""


def read_signs(context: NamespaceContext) -> Plan[dict[int, Signs]]:
    """Read the signs of all shards."""
    values = yield from _read_shards(context, lambda shard: _sign_requests(context, shard))
    return {n: _to_signs(*pair) for n, pair in enumerate(zip(values[::2], values[1::2], strict=True))}


def _read_shards(context: NamespaceContext, requests: Callable[[int], list[Request]]) -> Plan[list[Any]]:
    """Return the values of the replies to the requests of all shards, in this order."""
    values: list[Any] = []
    for first in range(0, context.shards, _SHARDS_AT_ONCE):
        shards = range(first, min(first + _SHARDS_AT_ONCE, context.shards))
        replies = yield Round([request for shard in shards for request in requests(shard)])
        values += [reply.value for reply in replies]
    return values


def _sign_requests(context: NamespaceContext, shard: int) -> list[Request]:
    clock, inbox = (shard_key(context.namespace, shard, name) for name in ("clock", "inbox"))
    commands = [("HMGET", clock, "fence", "election", "high"), ("XRANGE", inbox, "-", "+", "COUNT", 1)]
    return [Request(shard, command=command) for command in commands]


def _to_signs(fields: list[bytes | None], entries: list[Any]) -> Signs:
    fence, kind, high = (field or b"" for field in fields)
    return Signs(fence, kind.decode(errors="replace"), high, entries[0][0] if entries else b"")


def undriven_text(context: NamespaceContext, undriven: list[int], signs: Mapping[int, Signs]) -> str:
    """Return the warning about these shards, with the remedy."""
    which = f" (shards: {len(undriven)} of {context.shards})" if len(undriven) < context.shards else ""
    first = signs[undriven[0]]
    command = _COMMANDS.get(first.election, "tickwheel events")
    # Somebody who has just started workers must not believe that this does not suffice.
    is_new = not first.fence and not first.election
    workers = _SOON if is_new else _LATER if first.election == KIND else ""
    return (
        f"no event process drives namespace {context.namespace!r}{which}: delayed messages do not become deliverable,"
        f" and leases do not end. Run `{command}`{workers}"
    )


def check_unclaimed(context: NamespaceContext) -> Plan[str]:
    """Return a warning if nobody has ever claimed a shard of the namespace, which a single check shows."""
    signs = yield from read_signs(context)
    warning = undriven_text(context, list(signs), signs) if _are_unclaimed(signs) else ""
    return (yield from unless_deleted(context, warning))


def unless_deleted(context: NamespaceContext, warning: str) -> Plan[str]:
    """Return the warning, or an empty text if the namespace was deleted: its shards have the same signs then."""
    if not warning:
        return ""
    read = NamespaceContext(context.namespace, clock=context.clock)
    return warning if (yield from read_namespace(read)) else ""


def is_unclaimed(context: NamespaceContext) -> Plan[bool]:
    """Return whether nobody has ever claimed a shard of the namespace."""
    return _are_unclaimed((yield from read_signs(context)))


def _are_unclaimed(signs: Mapping[int, Signs]) -> bool:
    return all(own.fence == b"" for own in signs.values())


def look_once(context: NamespaceContext) -> Plan[str]:
    """Return the warning of `DriverWatch.check` after a single check, for programs that end at once.

    The time that an entry has waited in the inbox is then known only from the clock of the server.
    """
    values = yield from _read_shards(
        context, lambda shard: [*_sign_requests(context, shard), Request(shard, command=("TIME",))]
    )
    signs = {n: _to_signs(*pair) for n, pair in enumerate(zip(values[::3], values[1::3], strict=True))}
    times = [int(seconds) * 1_000 + int(micros) // 1_000 for seconds, micros in values[2::3]]
    undriven = [
        shard
        for shard, own in signs.items()
        if not own.is_claimed or (own.oldest and (age_ms(own.oldest, times[shard]) or 0) >= QUIET_MS)
    ]
    return undriven_text(context, undriven, signs) if undriven else ""


def check_members(context: NamespaceContext) -> Plan[str]:
    """Return a warning if the namespace has an election by lease in which no process takes part.

    Each of these processes listens to the channel of the election, and the connection of a killed process ends at once.
    Other connections can break, too. So if nobody listens, the plan checks this again after RECONNECT_S. It returns an
    empty text if the user may not ask for the number.
    """
    signs = yield from read_signs(context)
    if any(own.election != KIND for own in signs.values()):
        return ""
    channel = election_key(context.namespace)
    listeners = Request(0, Call(load("count_listeners"), [shard_key(context.namespace, 0, "clock")], [channel]))
    for is_last in (False, True):
        reply = yield from send_request(listeners)
        if reply.value != 0:
            return ""
        if not is_last:
            yield Pause(RECONNECT_S)
    return undriven_text(context, list(signs), signs)


def check_once(context: NamespaceContext) -> Plan[str]:
    """Return the warning of `look_once`, or else that of `check_members`, which takes RECONNECT_S longer."""
    return (yield from look_once(context)) or (yield from check_members(context))
