"""A forwarder of sinks ends soon after it is stopped, at whatever moment."""

from contextlib import closing
from threading import Event, Thread

import pytest

from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.stats import WheelStats
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.sinks.forwarder import SinkForwarder
from tickwheel.sinks.registry import SinkRegistry
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


class StopAfterCheck(Event):
    """Is set right after an idle forwarder has checked it, and wakes the forwarder, as `Sidecar.stop` does."""

    forwarder: SinkForwarder

    def is_set(self) -> bool:
        was_set = super().is_set()
        if not was_set and self.forwarder._outdated_ms is None:
            self.set()
            self.forwarder.wake()
        return was_set


def test_a_stop_right_after_the_check_ends_the_forwarder(tickwheel_server: PrivateServer, namespace: str) -> None:
    url = tickwheel_server.url
    shard, stopping = FencedShard(namespace, 0), StopAfterCheck()
    with (
        Tickwheel(url, namespace=namespace, drive=False) as client,
        closing(DriverExecutor(ConnectionPools(url), url, 10)) as io,
        closing(KafkaProducers("127.0.0.1:1")) as producers,
    ):
        client.create_queue("q")
        stopping.forwarder = forwarder = SinkForwarder(
            lambda number: io.connect(number, shard.keys["clock"]),
            shard,
            context=client._context,
            io=io,
            queue_lookup=QueueDirectory(client._context, io),
            sinks=SinkRegistry(namespace, producers),
            stats=WheelStats(),
        )
        thread = Thread(target=forwarder.run, args=(stopping, lambda: None), daemon=True)
        thread.start()
        try:
            eventually(lambda: not thread.is_alive(), "the forwarder ends", 20)
        finally:
            forwarder.wake()
            thread.join()
            forwarder.close()
