"""Faults of the links between a server and those that use it."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest


@contextmanager
def lose_replies(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Answers are lost on their way, and their connections cut; ``amount`` is the chance of each."""
    proxies = system.place.proxies
    before = sum(proxy.lost for proxy in proxies)
    for proxy in proxies:
        proxy.loses = fault.amount
    yield lambda: f"{lost} lost" if (lost := sum(proxy.lost for proxy in proxies) - before) else ""
    for proxy in proxies:
        proxy.loses = 0.0


@contextmanager
def slow_link(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Both links are slow; then they stop one by one, and go on in the other order."""
    chance, proxies = random.Random(fault.at), system.place.proxies
    before = sum(proxy.delayed for proxy in proxies)
    for proxy in proxies:
        proxy.delay_s = fault.amount
    yield lambda: f"{held} held up" if (held := sum(proxy.delayed for proxy in proxies) - before) else ""
    for proxy in proxies:
        proxy.stall()
        time.sleep(chance.uniform(0.1, 0.4))
    for proxy in proxies:
        proxy.go_on()
        time.sleep(chance.uniform(0.1, 0.4))
        proxy.delay_s = 0.0


@contextmanager
def stall_drivers(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The event processes are cut off from the server, and clients are not."""
    proxy = system.place.proxies[1]
    said = "".join(kept.process.log for kept in system.drivers).count("lost")
    proxy.stall()
    yield lambda: "it noticed" if "".join(kept.process.log for kept in system.drivers).count("lost") > said else ""
    proxy.go_on()
    proxy.cut()
