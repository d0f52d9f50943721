"""The clock of a namespace, moved by the test, and the event process that runs on this clock."""

from collections.abc import Callable
from datetime import UTC, datetime
from math import ceil

from tickwheel import limits
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.model import validation
from tickwheel.model.validation import Duration
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace import open_namespace
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.plan import Request
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.storage.keys import shard_key
from tickwheel.testing.driver_clock import ManualClock
from tickwheel.testing.manual_wheel import ManualWheel

FRAGMENT = "_clock_test"
_ANSWER_S = 10.0


class VirtualClock:
    """The time of one namespace, for its clients and its event process. Only `advance` and `set` change the time.

    Clients must be opened with ``clock="_clock_test"``, as `sandbox` does. Other clients use the server's clock.
    """

    def __init__(self, url: str, namespace: str, now: datetime | None = None) -> None:
        """Take control of a namespace's time. If the namespace does not exist, create it with the default settings.

        ``now`` is the time at which the clock starts, an aware datetime; the default is the present.
        """
        context = NamespaceContext(namespace, clock=FRAGMENT)
        self._io = DriverExecutor(ConnectionPools(url), url, _ANSWER_S)
        self._io.run(open_namespace(context, NamespaceOptions()))
        self._clocks = [shard_key(namespace, shard, "clock") for shard in range(context.shards)]
        self._manual_clock = ManualClock(0)
        queues = QueueDirectory(context, self._io, clock=self._manual_clock.monotonic)
        self._wheels = [
            ManualWheel(
                lambda shard: self._io.connect(shard, self._clocks[shard]), namespace, n, queues, self._manual_clock
            )
            for n in range(context.shards)
        ]
        self.set(datetime.now(UTC) if now is None else now)

    @property
    def now(self) -> datetime:
        """The time of the clock, in UTC, to the millisecond."""
        return validation.from_ms(self._manual_clock.now_ms)

    def advance(self, duration: Duration, each: Callable[[], object] = lambda: None) -> None:
        """Advance the clock by ``duration`` while the event process runs. Every transition happens at its due time.

        Messages become Pending, and leases, back-offs and retention times end, in order. A transition that follows
        from another one is included if it falls due by the end of ``duration``. ``each`` is called after each
        point in time at which a transition may have happened, before the clock moves on.

        ``duration``, a timedelta or a number of seconds, is rounded down to the millisecond, so that no message becomes
        Pending early. The call takes as long as the work, not as long as ``duration``. Raises InvalidArgument if
        ``duration`` is negative.
        """
        # Delays are rounded up. If the duration were rounded up, too, a delay could end before it is over.
        maximum = 2 * limits.DELAY_MS_MAX
        target = self._manual_clock.now_ms + validation.duration_ms("duration", duration, 0, maximum, round_up=False)
        self.run_due()
        while (earliest := min(wakes := [wheel.next_wake() for wheel in self._wheels])) <= target:
            self._advance_to(max(ceil(earliest), self._manual_clock.now_ms + 1))
            for wheel, wake in zip(self._wheels, wakes, strict=True):
                if wake <= self._manual_clock.now_ms:
                    wheel.run_due()
            each()
        if self._manual_clock.now_ms < target:
            self._advance_to(target)
        self.run_due()
        each()

    def set(self, moment: datetime) -> None:
        """Set the clock to an aware datetime, later or earlier, as if no event process had run in between.

        Transitions that are due at the new time happen at the next call of `run_due` or `advance`.
        """
        moment_ms = validation.timestamp_ms("moment", moment, round_up=False)
        if moment_ms < self._manual_clock.now_ms:
            for wheel in self._wheels:
                wheel.reset()
        self._set_time(moment_ms)

    def run_due(self) -> None:
        """Run everything that is due now, in every shard. The clock does not move."""
        for wheel in self._wheels:
            wheel.run_due()

    def close(self) -> None:
        """Close the connections to the server. The namespace keeps its time."""
        for wheel in self._wheels:
            wheel.reset()
        self._io.close()

    def _set_time(self, moment_ms: int, *more_fields: str | int) -> None:
        fields = ("now", moment_ms, *more_fields)
        self._io.round([Request(n, command=("HSET", key, *fields)) for n, key in enumerate(self._clocks)])
        self._manual_clock.now_ms = moment_ms

    def _advance_to(self, moment_ms: int) -> None:
        # The event process runs, so the clock guard trusts this time, also in a shard whose driver has nothing to do.
        # Otherwise a message whose absolute due time is past would wait there for the driver (enqueue.lua).
        self._set_time(moment_ms, "high", moment_ms)
