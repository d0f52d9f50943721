"""The event process: starts and stops one loop for each of its shards."""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from threading import Condition, Thread
from typing import Final

from tickwheel.driver.config import DriverConfig
from tickwheel.driver.queue_lookup import NamespaceLost, QueueLookup
from tickwheel.driver.server_clock import ServerClock
from tickwheel.driver.stats import WheelStats
from tickwheel.election.election import Election, owner_name
from tickwheel.errors import TickwheelError
from tickwheel.event_process.lease_election import LeaseElection
from tickwheel.event_process.namespace_watch import NamespaceWatch
from tickwheel.event_process.queue_metrics_reader import QueueMetricsReader
from tickwheel.event_process.shard_loop import Connect, ShardLoop
from tickwheel.event_process.sidecar import StartSidecar
from tickwheel.limits import CLOCK_GUARD_MS

# How long the loops may take to end. Each call to a server can last 5 s, and a loop may make several.
END_S: Final = 20.0

_log = logging.getLogger("tickwheel.event_process")


class EventProcess:
    """Drives the wheels of the shards for which it is elected leader.

    ``connect(shard)`` creates a redis-py client of the shard's server. The client's socket time-out limits each call: a
    call that takes longer fails, and its connection is closed. ``queues`` is used by the threads of all shards.
    """

    def __init__(
        self,
        connect: Connect,
        namespace: str,
        shards: Iterable[int],
        *,
        queues: QueueLookup,
        election: Election,
        companions: Sequence[StartSidecar] = (),
        clock_guard_ms: int = CLOCK_GUARD_MS,
        clock_fragment: str = "_clock",
    ) -> None:
        """Each function of ``companions`` starts a sidecar of a shard: the relay, or the forwarder of due messages.
        ``clock_guard_ms`` is the namespace's setting. ``clock_fragment`` is the Lua fragment of the clock; only tests
        change it.
        """
        configs = [DriverConfig(namespace, n, queues, election.kind, owner_name(), clock_fragment) for n in shards]
        self._loops = {
            config.shard: ShardLoop(
                connect,
                config,
                ServerClock(clock_guard_ms, label=f"shard {config.shard}: the server's clock"),
                election,
                companions,
            )
            for config in configs
        }
        self.queue_metrics: QueueMetricsReader | None = None
        """Reads the metrics of queues, while its `running` is active. None if the process was not opened by
        `open_event_process`."""
        self._election = election
        self._changed = Condition()
        self._stopping = False
        self._ended = 0
        self._loss: NamespaceLost | None = None
        self._watch = NamespaceWatch(queues, namespace, self._end, lambda: election.must_check_namespace)

    def run(self) -> None:
        """Drive until `stop`, or until a loop fails or the namespace is lost. Then raises the error of the failed loop,
        or NamespaceLost, after all loops have stopped. Raises TickwheelError if a loop hangs.
        """
        threads = [
            Thread(target=self._run_loop, args=(loop,), name=f"tickwheel-shard-{shard}", daemon=True)
            for shard, loop in self._loops.items()
        ]
        for thread in threads:
            thread.start()
        self._watch.start()
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._ended > 0)
        finally:
            self._watch.stop()
            self._election.leave()
            hanging = self._stop_loops(threads)
            self._election.close()
            for shard in self._loops.keys() - hanging:
                self._loops[shard].close()
        for error in (self._loss, *(loop.error for loop in self._loops.values())):
            if error is not None:
                raise error
        if hanging:
            raise TickwheelError(
                f"{len(hanging)} of {len(threads)} loops did not end within {END_S:g} s (the first: shard"
                f" {hanging[0]}): the event process ends without them"
            )

    def stop(self) -> None:
        """Ask `run` to return. May be called from any thread, and repeatedly."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def health(self) -> dict[int, WheelStats]:
        """Return a copy of each shard's counters. This process does not drive a shard whose epoch is 0."""
        return {shard: replace(loop.stats) for shard, loop in self._loops.items()}

    def led_epochs(self) -> dict[int, int]:
        """Return the epoch of each shard that this process drives now."""
        epochs = {shard: loop.stats.epoch for shard, loop in self._loops.items()}
        return {shard: epoch for shard, epoch in epochs.items() if epoch}

    def hanging_shards(self, limit_ms: float) -> list[int]:
        """Return the shards whose loops have worked for longer than ``limit_ms`` without a wait.

        A loop that waits for its server does not hang. May be called from any thread.
        """
        return [shard for shard, loop in self._loops.items() if loop.working_ms > limit_ms]

    def has_higher_members(self) -> bool:
        """Return whether another process in the election has a higher id. May be called from any thread.

        Of several processes that hand their shards over at the same time, the one with the highest id is the last.
        Known only in an election by lease; otherwise False.
        """
        return isinstance(self._election, LeaseElection) and self._election.has_higher_members

    def unreadable_nodes(self) -> int:
        """Return how often the election ignored the data of a node because no event process writes such data."""
        return self._election.unreadable_nodes

    def has_others(self) -> bool:
        """Return whether other processes take part in the election, so that they take the shards over after `stop`.

        Known only in an election by lease; otherwise False. May be called from any thread.
        """
        return isinstance(self._election, LeaseElection) and self._election.others > 0

    def accept_clock(self) -> None:
        """Accept the steps of the servers' clocks, on behalf of an operator. Drivers that had stopped promoting resume.

        Each shard stores the accepted step, so later event processes accept it, too. If the driver of a shard has not
        detected the same step yet, the driver accepts the step when it next probes its server's clock.
        """
        clocks = [loop.clock for loop in self._loops.values()]
        # A clock gets a new guard when its leadership ends, so read each guard once.
        guards = [clock.guard for clock in clocks]
        steps = [guard.ahead_ms for guard in guards if guard.is_holding]
        if not steps:
            _log.warning("no clock guard has stopped a wheel: there is no step of a server's clock to accept")
        for clock in clocks:
            clock.accept()
            clock.accept_similar_steps(steps)

    def _end(self, loss: NamespaceLost) -> None:
        with self._changed:
            self._loss, self._stopping = loss, True
            self._changed.notify_all()

    def _stop_loops(self, threads: Sequence[Thread]) -> list[int]:
        """Stop the loops. Return the shards whose loops hang: an operator must be able to restart the process."""
        for loop in self._loops.values():
            loop.stop()
        until = time.monotonic() + END_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return [shard for shard, thread in zip(self._loops, threads, strict=True) if thread.is_alive()]

    def _run_loop(self, loop: ShardLoop) -> None:
        try:
            loop.run()
        except NamespaceLost as error:
            # `run` raises the error, so that the program logs it once for all shards.
            self._end(error)
        except TickwheelError as error:
            _log.error("a shard's loop failed; this event process exits: %s", error)
        except Exception:
            _log.exception("a shard's loop failed; this event process exits")
        finally:
            with self._changed:
                self._ended += 1
                self._changed.notify_all()
