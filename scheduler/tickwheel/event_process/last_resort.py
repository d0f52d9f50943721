"""Drives a namespace as a last resort, until something speaks against it: a queue gets a sink, for example.

The program that started this process knows the same obstacles (`client.last_resort`), and logs them. So this process
ends with exit code 0 and without a word if it must not drive.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Thread
from typing import Final

from redis.exceptions import RedisError

from tickwheel.driver.queue_lookup import NamespaceLost
from tickwheel.election.lease_member import KIND
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.election.lease_row import LAST_RESORT
from tickwheel.errors import NamespaceNotFound, TickwheelError
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import open_event_process
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.driving.obstacles import find_obstacle
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.redis.url import redact
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.sinks.channel_listener import ChannelListener
from tickwheel.storage.keys import shard_key

# A change of a queue is published. All other obstacles are found by a check after this time.
CHECK_MS: Final = 60_000.0
# Each check reads all queues, and a program may change many of them. So checks take at most a tenth of the time.
_PAUSE_MS: Final = 500.0
_PAUSE_FACTOR: Final = 10
_CALL_TIMEOUT_S: Final = 5.0

_log = logging.getLogger("tickwheel.driving")


def run_last_resort(
    url: str, namespace: str, producers: KafkaProducers | None, run: Callable[[EventProcess], None]
) -> None:
    """Drive by calling ``run`` with an event process. The event process is stopped if something speaks against it.

    ``producers`` relay events and send messages to sinks.
    """
    io = DriverExecutor(ConnectionPools(url, _CALL_TIMEOUT_S), redact(url), _CALL_TIMEOUT_S)
    with closing(io):
        context = NamespaceContext(namespace)

        def find() -> str:
            return io.run(find_obstacle(context, KIND, has_kafka=producers is not None))

        if find():
            return
        try:
            with (
                open_event_process(
                    url,
                    namespace,
                    LeaseOptions(rank=LAST_RESORT),
                    existing=True,
                    producers=producers,
                    relays=context.history >= RELAYED,
                ) as process,
                _watching(io, namespace, find, process.stop),
            ):
                run(process)
        except (NamespaceLost, NamespaceNotFound) as error:
            _log.info("%s", error)


@contextmanager
def _watching(
    io: DriverExecutor, namespace: str, find: Callable[[], str], on_obstacle: Callable[[], None]
) -> Iterator[None]:
    """Call ``on_obstacle`` when something speaks against driving, in another thread, until the end of the block."""
    with closing(WakePipe()) as wake:
        watch = ObstacleWatch(io, namespace, find, on_obstacle, wake)
        watch.start()
        try:
            yield
        finally:
            watch.stop()


class ObstacleWatch:
    """Checks the namespace at each change of a queue, in a thread of its own."""

    def __init__(
        self,
        io: DriverExecutor,
        namespace: str,
        find: Callable[[], str],
        on_obstacle: Callable[[], None],
        wake: WakePipe,
    ) -> None:
        self._io = io
        # The channel of one shard suffices: every change of a queue is published on all shards.
        self._channel = shard_key(namespace, 0, "adopted")
        self._find = find
        self._on_obstacle = on_obstacle
        self._wake = wake
        self._is_stopping = False
        self._thread = Thread(target=self._run, name="tickwheel-obstacles", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        backoff = Backoff(longest=5.0)
        while not self._is_stopping:
            try:
                client = self._io.connect(0, self._channel)
                with closing(ChannelListener(client, self._wake.fileno())) as listener:
                    listener.set_channels([self._channel])
                    while not self._is_stopping:
                        began_ms = monotonic_ms()
                        if obstacle := self._find():
                            _log.info("this process stops driving: %s", obstacle)
                            self._on_obstacle()
                            return
                        backoff.reset()
                        self._wake.wait(max(_PAUSE_MS, _PAUSE_FACTOR * (monotonic_ms() - began_ms)))
                        listener.poll(monotonic_ms() + CHECK_MS)
            except (RedisError, OSError, TickwheelError) as error:
                _log.debug("cannot check whether this process may drive; trying again: %s", error)
                self._wake.wait(1000 * backoff.next())
