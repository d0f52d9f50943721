"""Faults of Kafka, where the history goes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fault.harness.collect import entries, killed_relays
from tests.fault.harness.history import now
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest

_KILLED_S, _DRAINED_S = 30.0, 120.0


@contextmanager
def kill_relay(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """By SIGKILL, with what the broker has acknowledged and it has not cut off yet."""
    before = killed_relays(system)
    system.order.touch()
    system.until(lambda: len(killed_relays(system)) > len(before), "a relay has acknowledged records", _KILLED_S)
    [(acknowledged, in_flight)] = killed_relays(system)[len(before) :]
    yield lambda: f"{acknowledged} acknowledged of {in_flight} under way" if acknowledged else ""


@contextmanager
def stop_kafka(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The broker is restarted as an operator does it."""
    assert system.relay is not None
    kafka = system.relay.kafka
    before = kafka.pid
    kafka.stop()
    kafka.start()
    yield lambda: f"process {kafka.pid} after {before}"


@contextmanager
def kill_kafka(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The broker is away, and comes back with what it had."""
    assert system.relay is not None
    kafka, told = system.relay.kafka, [""]
    kafka.kill()
    began, written = now(), entries(system.tickwheel)[0]
    yield lambda: told[0]
    ended, (total, kept) = now(), entries(system.tickwheel)
    kafka.start()
    if kept:
        drained = _drain_s(system, kept)
        told[0] = (
            f"{kept} entries waited for it, drained at {drained:.0f} a second,"
            f" {drained * (ended - began) / (total - written):.0f} times as fast as they came"
        )


def _drain_s(system: SystemUnderTest, kept: int) -> float:
    """How many entries a second are cut off from the first on, until hardly any is left."""

    def cut() -> int:
        total, left = entries(system.tickwheel)
        return total - left

    before = cut()
    system.until(lambda: cut() > before, "the first are relayed", _DRAINED_S)
    began, first = now(), cut()
    system.until(lambda: entries(system.tickwheel)[1] < kept / 20, "most are relayed", _DRAINED_S)
    return (cut() - first) / (now() - began)
