"""The clock of a namespace, turned by the test, and the event process that does what is due by it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import ceil

from tickwheel import limits
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.model import validation
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace import open_namespace
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.plan import Request
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.storage.keys import shard_key
from tickwheel.testing.manual_clock import ManualClock
from tickwheel.testing.manual_wheel import ManualWheel

FRAGMENT = "_clock_test"
_ANSWER_S = 10.0


class VirtualClock:
    """Time for one namespace, as its clients and its event process see it. It stands still until it is turned.

    The clients must have been opened with ``clock="_clock_test"``, as `sandbox` does; others follow the server's clock.
    """

    def __init__(self, url: str, namespace: str, now: datetime | None = None) -> None:
        """The namespace must exist. The clock starts at ``now``, an aware datetime; by default at the present."""
        context = NamespaceContext(namespace, clock=FRAGMENT)
        self._io = RedisExecutor(ConnectionPools(url), url, _ANSWER_S)
        self._io.run(open_namespace(context, NamespaceOptions()))
        self._clocks = [shard_key(namespace, shard, "clock") for shard in range(context.shards)]
        self._manual_clock = ManualClock(0)
        queues = QueueDirectory(context, self._io)
        self._wheels = [
            ManualWheel(
                lambda shard: self._io.connect(shard, self._clocks[shard]), namespace, n, queues, self._manual_clock
            )
            for n in range(context.shards)
        ]
        self.set(datetime.now(UTC) if now is None else now)

    @property
    def now(self) -> datetime:
        """What the clock shows, in UTC, to the millisecond."""
        return validation.from_ms(self._manual_clock.now_ms)

    def advance(self, duration: timedelta, each: Callable[[], object] = lambda: None) -> None:
        """Let time pass, with the event process at work: all that falls due happens at its own time, in order.

        ``each`` is called every time after something may have, to do then what follows of it.

        Messages become Pending, leases end, back-offs end, retention ends, whatever follows from one another included.
        Takes as long as there is work, not as long as the duration. Raises InvalidArgument where it is negative.
        """
        target = self._manual_clock.now_ms + validation.duration_ms("duration", duration, 0, 2 * limits.DELAY_MS_MAX)
        self.run_due()
        while (wake := min(wheel.next_wake() for wheel in self._wheels)) <= target:
            self._set_time(max(ceil(wake), self._manual_clock.now_ms + 1))
            for wheel in self._wheels:
                if wheel.next_wake() <= self._manual_clock.now_ms:
                    wheel.run_due()
            each()
        if self._manual_clock.now_ms < target:
            self._set_time(target)
        self.run_due()
        each()

    def set(self, moment: datetime) -> None:
        """Jump to an aware datetime, forwards or backwards, as if no event process had run meanwhile.

        Nothing that is due happens before `run_due` or `advance` is called.
        """
        moment_ms = validation.timestamp_ms("moment", moment, round_up=False)
        if moment_ms < self._manual_clock.now_ms:
            for wheel in self._wheels:
                wheel.reset()
        self._set_time(moment_ms)

    def run_due(self) -> None:
        """Do all that is due now, in every shard, without turning the clock."""
        for wheel in self._wheels:
            wheel.run_due()

    def close(self) -> None:
        """Let go of the server. The namespace keeps the time it has."""
        for wheel in self._wheels:
            wheel.close()
        self._io.close()

    def _set_time(self, moment_ms: int) -> None:
        self._io.round([Request(n, command=("HSET", key, "now", moment_ms)) for n, key in enumerate(self._clocks)])
        self._manual_clock.now_ms = moment_ms
