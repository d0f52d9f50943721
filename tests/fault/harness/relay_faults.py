"""Faults of the relay and of Kafka."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fault.harness.call_log import now
from tests.fault.harness.collect import entries, killed_relays
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest

_KILLED_S, _DRAINED_S = 30.0, 120.0


@contextmanager
def kill_relay(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill an event process with SIGKILL while its relay has acknowledged records that it has not trimmed."""
    before = killed_relays(system)
    system.order.touch()
    system.until(lambda: len(killed_relays(system)) > len(before), "a relay has acknowledged records", _KILLED_S)
    [(acknowledged, in_flight)] = killed_relays(system)[len(before) :]
    yield lambda: f"{acknowledged} acknowledged of {in_flight} in flight" if acknowledged else ""


@contextmanager
def stop_kafka(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Restart the broker like an operator."""
    assert system.relay is not None
    kafka = system.relay.kafka
    before = kafka.pid
    kafka.stop()
    kafka.start()
    yield lambda: f"process {kafka.pid} after {before}"


@contextmanager
def kill_kafka(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill the broker, and restart it with its data."""
    assert system.relay is not None
    kafka, mark = system.relay.kafka, [""]
    kafka.kill()
    began, written = now(), entries(system.tickwheel)[0]
    yield lambda: mark[0]
    ended, (total, backlog) = now(), entries(system.tickwheel)
    kafka.start()
    if backlog:
        drained = _drain_s(system, backlog)
        mark[0] = (
            f"{backlog} entries waited for the broker, relayed at {drained:.0f} a second,"
            f" {drained * (ended - began) / (total - written):.0f} times the rate of new entries"
        )


def _drain_s(system: SystemUnderTest, backlog: int) -> float:
    """Return the entries per second that the relay trims, from the first entry until 5 % are left."""

    def cut() -> int:
        total, left = entries(system.tickwheel)
        return total - left

    before = cut()
    system.until(lambda: cut() > before, "the first entries are relayed", _DRAINED_S)
    began, first = now(), cut()
    system.until(lambda: entries(system.tickwheel)[1] < backlog / 20, "most entries are relayed", _DRAINED_S)
    return (cut() - first) / (now() - began)
