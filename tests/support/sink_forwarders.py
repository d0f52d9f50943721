"""The forwarders of a namespace, with sinks of a test."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, TypeVar

from tickwheel import Tickwheel
from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.stats import WheelStats
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.sinks.forwarder import SinkForwarder

F = TypeVar("F", bound=SinkForwarder)


@contextmanager
def sink_forwarders(kind: type[F], client: Tickwheel, url: str, sinks: Any) -> Iterator[list[F]]:
    """Make a forwarder for each shard, which uses the context of the client. ``sinks`` takes the place of the registry.

    All are closed at the end of the block. By then, they must no longer run.
    """
    context = client._context
    with closing(DriverExecutor(ConnectionPools(url), url, 10)) as io, ExitStack() as stack:
        directory = QueueDirectory(context, io)
        shards = [FencedShard(context.namespace, number) for number in range(context.shards)]
        yield [
            stack.enter_context(
                closing(
                    kind(
                        lambda number: io.connect(number, shards[number].keys["clock"]),
                        shard,
                        context=context,
                        io=io,
                        queue_lookup=directory,
                        sinks=sinks,
                        stats=WheelStats(),
                    )
                )
            )
            for shard in shards
        ]


@contextmanager
def running(*forwarders: SinkForwarder) -> Iterator[None]:
    """Run each forwarder in a thread, until the end of the block."""
    stopping = threading.Event()
    threads = [threading.Thread(target=forwarder.run, args=(stopping, lambda: None)) for forwarder in forwarders]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for forwarder, thread in zip(forwarders, threads, strict=True):
            forwarder.wake()
            thread.join()
