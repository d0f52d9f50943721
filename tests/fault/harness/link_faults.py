"""Faults of the links between a server, its clients and its event processes."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest


@contextmanager
def lose_replies(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Drop answers, and close their connections. ``amount`` is the probability for each answer."""
    proxies = system.place.proxies
    before = sum(proxy.lost for proxy in proxies)
    for proxy in proxies:
        proxy.loses = fault.amount
    yield lambda: f"{lost} answers lost" if (lost := sum(proxy.lost for proxy in proxies) - before) else ""
    for proxy in proxies:
        proxy.loses = 0.0


@contextmanager
def slow_link(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Slow both links down; then stop them one by one, and resume them in the same order."""
    chance, proxies = random.Random(fault.at), system.place.proxies
    before = sum(proxy.delayed for proxy in proxies)
    for proxy in proxies:
        proxy.delay_s = fault.amount
    yield lambda: f"{answers} answers delayed" if (answers := sum(proxy.delayed for proxy in proxies) - before) else ""
    for proxy in proxies:
        proxy.stall()
        time.sleep(chance.uniform(0.1, 0.4))
    for proxy in proxies:
        proxy.go_on()
        time.sleep(chance.uniform(0.1, 0.4))
        proxy.delay_s = 0.0


@contextmanager
def stall_drivers(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Cut the event processes off from the server, but not the clients."""
    proxy = system.place.proxies[1]
    lost = "".join(driver.process.log for driver in system.drivers).count("lost")
    proxy.stall()
    yield (
        lambda: (
            "the event processes logged the loss"
            if "".join(driver.process.log for driver in system.drivers).count("lost") > lost
            else ""
        )
    )
    proxy.go_on()
    proxy.cut()
