"""Reads the metrics of queues for the shards that this process leads, in a thread of its own.

The shards share one budget of commands, so the load on the servers does not depend on the number of queues. With more
queues, each queue is read less often.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any, Final

from redis.exceptions import RedisError

from tickwheel.errors import TickwheelError
from tickwheel.event_process.queue_readings import QueueReading, max_commands, read_queue_names, read_queues
from tickwheel.event_process.shard_readings import OTHER, ShardReadings
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import BROKEN_ANSWER, Plan
from tickwheel.runtime.log_throttle import LogThrottle

# The pace of the calls for all shards of the process, in commands a second, including those that a script runs. In no
# second are there more than 200 commands: these and one call, which has at most 43.
COMMANDS_PER_S: Final = 155
# The number of queues with samples of their own.
NAMED_QUEUES: Final = 1_000
# The maximum time until a new leadership or the end of one is noticed.
_WAIT_S: Final = 1.0
# The pause before a shard is read again after an error, and before the names of the queues are.
_RETRY_S: Final = 5.0
# The minimum pause between two reads of the names, and the pause in multiples of the duration of the read.
_NAMES_S: Final = 10.0
_NAMES_FACTOR: Final = 50

_log = logging.getLogger("tickwheel.event_process")
_ERRORS: Final = (TickwheelError, RedisError, OSError, *BROKEN_ANSWER)


class QueueMetricsReader:
    """The latest metrics of the queues on the shards that this process leads."""

    def __init__(
        self,
        context: NamespaceContext,
        run_plan: Callable[[Plan[Any]], Any],
        led_epochs: Callable[[], Mapping[int, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``led_epochs`` returns the epoch of each shard that this process leads now. ``clock`` returns seconds."""
        self._context = context
        self._run_plan = run_plan
        self._led_epochs = led_epochs
        self._clock = clock
        self._lock = Lock()
        self._shards: dict[int, ShardReadings] = {}
        # The last readings of the shards that this process no longer leads.
        self._ended: dict[int, ShardReadings] = {}
        # The shards in the order in which they are read next.
        self._order: deque[int] = deque()
        self._named: list[str] = []
        self._others: list[str] = []
        self._read_names_at = clock()
        self._log_throttle = LogThrottle()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read in a new thread during the ``with`` block."""
        stopping = Event()
        thread = Thread(target=self._run, args=(stopping,), name="tickwheel-queue-metrics", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def readings(self) -> list[tuple[int, str, QueueReading]]:
        """Return the latest readings: shard, name of the queue, reading. Any thread may call this method.

        Shards that this process does not lead any more are left out.
        """
        led = self._led_epochs()
        with self._lock:
            return [
                (shard, name, reading)
                for shard, readings in self._shards.items()
                if led.get(shard) == readings.epoch
                for name, reading in readings.samples()
            ]

    def step(self) -> float:
        """Make one call, if one is due. Return the pause before the next step, in seconds."""
        began = self._clock()
        self._follow_leaderships()
        if not self._shards:
            return _WAIT_S
        commands = self._read_names(began) if began >= self._read_names_at else self._read_next_shard(began)
        if commands == 0:
            due_at = min(self._read_names_at, *(readings.due_at() for readings in self._shards.values()))
            return min(due_at - began, _WAIT_S)
        return max(0.0, began + commands / COMMANDS_PER_S - self._clock())

    def _run(self, stopping: Event) -> None:
        pause = 0.0
        while not stopping.wait(pause):
            try:
                pause = self.step()
            except Exception:
                # This is a bug. The wheel does not need the metrics, so it goes on.
                pause = _RETRY_S
                if self._log_throttle.should_log("bug"):
                    _log.exception("reading the metrics of queues crashed; trying again (repeats are throttled)")

    def _follow_leaderships(self) -> None:
        led = self._led_epochs()
        with self._lock:
            for shard in [shard for shard, readings in self._shards.items() if led.get(shard) != readings.epoch]:
                self._ended[shard] = self._shards.pop(shard)
            for shard in led.keys() - self._shards.keys():
                self._add_shard(shard, ShardReadings(led[shard], self._ended.pop(shard, None)))
        if set(self._order) != self._shards.keys():
            self._order = deque(sorted(self._shards))

    def _add_shard(self, shard: int, readings: ShardReadings) -> None:
        readings.set_queues(self._named, self._others)
        self._shards[shard] = readings

    def _read_names(self, began: float) -> int:
        """Read the names of the queues, and return the number of commands."""
        try:
            names = self._run_plan(read_queue_names(self._context))
        except _ERRORS as error:
            self._log_error("the names of the queues", error)
            self._read_names_at = began + _RETRY_S
            return 1
        self._read_names_at = began + max(_NAMES_S, _NAMES_FACTOR * (self._clock() - began))
        # All event processes name the same queues, the oldest ones. So the sums over all processes are right.
        named = [name for name in names if name != OTHER][:NAMED_QUEUES]
        is_named = set(named)
        others = [name for name in names if name not in is_named]
        if (named, others) != (self._named, self._others):
            self._named, self._others = named, others
            with self._lock:
                for readings in self._shards.values():
                    readings.set_queues(named, others)
        return 1

    def _read_next_shard(self, now: float) -> int:
        """Read some queues of the next shard that has queues to read. Return the number of commands, 0 if none has."""
        for _ in range(len(self._order)):
            shard = self._order[0]
            self._order.rotate(-1)
            if batch := self._shards[shard].next_batch(now):
                return self._read_queues(shard, batch)
        return 0

    def _read_queues(self, shard: int, batch: Mapping[str, QueueReading | None]) -> int:
        readings = self._shards[shard]
        try:
            reply = self._run_plan(read_queues(self._context, shard, batch))
        except _ERRORS as error:
            self._log_error(f"the queues of shard {shard}", error)
            # No sample is better than an outdated one.
            self._restart(shard, _RETRY_S)
            return max_commands(len(batch))
        if reply.epoch != readings.epoch:
            # Another process has claimed the shard, and the driver of this process has not noticed it yet.
            self._restart(shard, _WAIT_S)
        else:
            with self._lock:
                readings.store(reply.readings)
        return int(reply.commands)

    def _restart(self, shard: int, pause_s: float) -> None:
        """Forget the readings of a shard, and read the shard again after a pause."""
        with self._lock:
            earlier = self._shards[shard]
            self._add_shard(shard, ShardReadings(earlier.epoch, earlier, self._clock() + pause_s))

    def _log_error(self, label: str, error: Exception) -> None:
        level = self._log_throttle.level(str(error))
        _log.log(level, "%s cannot be read for the metrics; trying again in %d s: %s", label, _RETRY_S, error)
