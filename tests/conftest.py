"""Fixtures for all tests: a namespace with a clock that the test turns, and a look at everything in it afterwards."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tickwheel import Tickwheel
from tickwheel.doctor import audit
from tickwheel.testing import PrivateServer, VirtualClock

Dump = Callable[[], dict[str, bytes]]


@pytest.fixture
def tw(tickwheel: Tickwheel) -> Tickwheel:
    """A client of the test's namespace."""
    return tickwheel


@pytest.fixture
def clock(tickwheel_clock: VirtualClock) -> VirtualClock:
    """The time of the test's namespace, which stands still until it is turned."""
    return tickwheel_clock


@pytest.fixture
def server(tickwheel_server: PrivateServer) -> Iterator[Any]:
    """A redis-py client of the test's server."""
    with tickwheel_server.client() as client:
        yield client


@pytest.fixture
def dump(tw: Tickwheel, server: "redis.Redis") -> Dump:
    """Everything that is stored in the test's namespace, to be compared. Sessions do not count: they hold answers."""

    def all_keys() -> dict[str, bytes]:
        found = sorted(server.scan_iter(match=f"{tw._core.namespace}:{{*", count=10_000))
        return {key.decode(): server.dump(key) for key in found if b":session:" not in key}

    return all_keys


@pytest.fixture(autouse=True)
def _leaves_everything_in_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test: no stray key, counters equal to a recount, indexes as the records imply, no timer lost."""
    if "tickwheel" not in request.fixturenames:
        yield
        return
    tickwheel: Tickwheel = request.getfixturevalue("tickwheel")
    yield
    findings = tickwheel._run(audit(tickwheel._core))
    assert not findings, "\n".join(findings)
