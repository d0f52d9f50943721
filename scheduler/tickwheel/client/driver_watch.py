"""Finds out whether event processes drive the shards of a namespace, from what every client may read.

Each shard has signs of its driver: the driver's fence, the time that its wheel has reached, and the first entry of the
inbox, which a driver removes within seconds. A shard is undriven if nobody has ever claimed it, if its last driver has
released it, or if an entry waits in its inbox, and the signs stay the same for QUIET_MS on this program's monotonic
clock. So no clock of a server takes part. If the inbox is empty,
nothing shows that a driver was killed: the rows of an election by lease would show this, but the users for clients and
the service may not read them.

A check costs one round trip. It writes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.election.lease_member import KIND
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, Round
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage.fence import FENCE_BYTES
from tickwheel.storage.keys import shard_key
from tickwheel.storage.stream_id import age_ms

# Longer than the time in which a driver files a timer (2 s), and than a takeover with the default session time-out.
QUIET_MS: Final = 10_000
_COMMANDS: Final = {
    KIND: "tickwheel events --election lease",
    "zookeeper": "tickwheel events --election zk://…",
}


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

    def __init__(self, context: NamespaceContext, clock: Callable[[], float] = monotonic_ms) -> None:
        """``clock`` is the monotonic clock, in ms."""
        self._context = context
        self._clock = clock
        # The signs of each shard, and since when they are the same.
        self._signs: dict[int, tuple[Signs, float]] = {}

    def check(self) -> Plan[str]:
        """Return a warning about the shards that are known to be undriven, or an empty text."""
        signs = yield from read_signs(self._context)
        return self.judge(signs, self._clock())

    def judge(self, signs: Mapping[int, Signs], now: float) -> str:
        """Return the warning for these signs, which were read at ``now``."""
        before = self._signs
        self._signs = {
            shard: before[shard] if shard in before and before[shard][0] == own else (own, now)
            for shard, own in signs.items()
        }
        undriven = [shard for shard, (own, since) in self._signs.items() if own.is_quiet and now - since >= QUIET_MS]
        return undriven_text(self._context, undriven, signs) if undriven else ""


def read_signs(context: NamespaceContext) -> Plan[dict[int, Signs]]:
    """Read the signs of all shards in one round trip."""

    def commands(shard: int) -> list[tuple[Any, ...]]:
        clock, inbox = (shard_key(context.namespace, shard, name) for name in ("clock", "inbox"))
        return [("HMGET", clock, "fence", "election", "high"), ("XRANGE", inbox, "-", "+", "COUNT", 1)]

    shards = range(context.shards)
    replies = yield Round([Request(shard, command=command) for shard in shards for command in commands(shard)])
    values = [reply.value for reply in replies]
    return {
        shard: Signs(fence or b"", (kind or b"").decode(errors="replace"), high or b"", oldest[0][0] if oldest else b"")
        for shard, (fence, kind, high), oldest in zip(shards, values[::2], values[1::2], strict=True)
    }


def undriven_text(context: NamespaceContext, undriven: list[int], signs: Mapping[int, Signs]) -> str:
    """Return the warning about these shards, with the remedy."""
    which = f" (shards: {len(undriven)} of {context.shards})" if len(undriven) < context.shards else ""
    command = _COMMANDS.get(signs[undriven[0]].election, "tickwheel events")
    return (
        f"no event process drives namespace {context.namespace!r}{which}: delayed messages do not become deliverable,"
        f" and leases do not end. Run `{command}`"
    )


def check_unclaimed(context: NamespaceContext) -> Plan[str]:
    """Return a warning if nobody has ever claimed a shard of the namespace, which a single check shows."""
    signs = yield from read_signs(context)
    is_unclaimed = all(own.fence == b"" for own in signs.values())
    return undriven_text(context, list(signs), signs) if is_unclaimed else ""


def look_once(context: NamespaceContext) -> Plan[str]:
    """Return the warning of `DriverWatch.check` after a single check, for programs that end at once.

    The time that an entry has waited in the inbox is then known only from the clock of the server.
    """
    signs = yield from read_signs(context)
    replies = yield Round([Request(shard, command=("TIME",)) for shard in signs])
    times = [int(seconds) * 1_000 + int(micros) // 1_000 for seconds, micros in (reply.value for reply in replies)]
    undriven = [
        shard
        for (shard, own), now_ms in zip(signs.items(), times, strict=True)
        if not own.is_claimed or (own.oldest and (age_ms(own.oldest, now_ms) or 0) >= QUIET_MS)
    ]
    return undriven_text(context, undriven, signs) if undriven else ""
