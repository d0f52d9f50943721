"""Faults of Kafka, where the history goes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fault.harness.collect import outbox
from tests.fault.harness.plan import Fault
from tests.fault.harness.world import World


@contextmanager
def stop_kafka(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The broker is restarted as an operator does it."""
    assert world.relay is not None
    kafka = world.relay.kafka
    before = kafka.pid
    kafka.stop()
    kafka.start()
    yield lambda: f"process {kafka.pid} after {before}"


@contextmanager
def kill_kafka(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The broker is away, and comes back with what it had."""
    assert world.relay is not None
    kafka, kept = world.relay.kafka, [0]
    kafka.kill()
    yield lambda: f"{kept[0]} entries waited for it" if kept[0] else ""
    kept[0] = outbox(world.tickwheel)
    kafka.start()
