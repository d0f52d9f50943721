"""Fixtures for all tests: a namespace with a clock that the test turns, and a look at everything in it afterwards."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import redis.utils

from tests.support.file_order import slowest_first
from tickwheel import Tickwheel
from tickwheel.doctor import audit
from tickwheel.testing import PrivateServer, VirtualClock

pytest_plugins = ["tests.support.service_fixtures"]

# What is new in each run is the same in all processes that share it.
os.environ.setdefault("TICKWHEEL_TEST_SEED", str(random.SystemRandom().randrange(2**32)))

# redis-py reads its version from the files of its package for each connection: half a millisecond.
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)

# A shell starts a background job with SIGINT ignored, and programs inherit that; a handler they do not. Here SIGINT
# stays without effect, and the programs that tests start can be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda number, frame: None)

Contents = Callable[[str], dict[str, Any]]
Dump = Callable[[], dict[str, Any]]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = slowest_first(items)


@pytest.fixture
def tw(tickwheel: Tickwheel) -> Tickwheel:
    """A client of the test's namespace."""
    return tickwheel


@pytest.fixture
def inside(tickwheel: Tickwheel) -> Tickwheel:
    """A client that goes to the server itself, whatever the test's does."""
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
def contents(server: Any) -> Contents:
    """Reads everything that is stored in a namespace, to be compared. Sessions do not count: they hold answers."""
    read: dict[bytes, Callable[[Any, bytes], Any]] = {
        b"hash": lambda pipeline, key: pipeline.hgetall(key),
        b"zset": lambda pipeline, key: pipeline.zrange(key, 0, -1, withscores=True),
        b"list": lambda pipeline, key: pipeline.lrange(key, 0, -1),
        b"stream": lambda pipeline, key: pipeline.xrange(key),
    }

    def of_namespace(namespace: str) -> dict[str, Any]:
        found = sorted(server.scan_iter(match=f"{namespace}:{{*", count=10_000))
        stored = [key for key in found if b":session:" not in key]
        with server.pipeline(transaction=False) as pipeline:
            for key in stored:
                pipeline.type(key)
            for key, kind in zip(stored, pipeline.execute(), strict=True):
                read[kind](pipeline, key)
            return {key.decode(): value for key, value in zip(stored, pipeline.execute(), strict=True)}

    return of_namespace


@pytest.fixture
def dump(tw: Tickwheel, contents: Contents) -> Dump:
    """Reads everything that is stored in the test's namespace."""
    return lambda: contents(tw._context.namespace)


@pytest.fixture(autouse=True)
def _leaves_everything_in_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test in a namespace of the kit's: no stray key, counters equal to a recount, indexes as the records
    imply, no timer lost.
    """
    if "tickwheel" not in request.fixturenames:
        yield
        return
    inside: Tickwheel = request.getfixturevalue("inside")
    yield
    findings = inside._run(audit(inside._context))
    assert not findings, "\n".join(findings)
