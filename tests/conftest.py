"""Fixtures for all tests: a namespace with a clock that the test sets, and an audit of the namespace after the test."""

import gc
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import redis.utils
import typer.testing

from tests.support.file_order import slowest_first
from tests.support.file_schedule import FileScheduling
from tickwheel import Tickwheel
from tickwheel.doctor import audit
from tickwheel.testing import PrivateServer, VirtualClock

pytest_plugins = ["tests.support.service_fixtures"]

# The seed is new in each run. All processes of one run use the same seed.
os.environ.setdefault("TICKWHEEL_TEST_SEED", str(random.SystemRandom().randrange(2**32)))

# For each connection, redis-py reads its version from the files of its package, which takes half a millisecond.
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)
# For each invocation of a command, Typer builds all commands again, which takes 16 ms.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

# Some tests use gRPC without the client of Tickwheel, and gRPC would use an HTTP proxy of the environment even for the
# services of the tests. The client itself needs no such variable: tests/security/test_proxies.py.
os.environ["no_grpc_proxy"] = "localhost,127.0.0.1"  # noqa: SIM112  # gRPC reads the name in lower case

# A shell ignores SIGINT in background jobs, and child processes inherit this. They do not inherit a handler: with a
# handler that does nothing, this process ignores SIGINT, but tests can interrupt the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda number, frame: None)

Contents = Callable[[str], dict[str, Any]]
Dump = Callable[[], dict[str, Any]]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = slowest_first(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Exclude the imported modules and the collected tests from all later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def tw(tickwheel: Tickwheel) -> Tickwheel:
    """A client of the test's namespace."""
    return tickwheel


@pytest.fixture
def direct_client(tickwheel: Tickwheel) -> Tickwheel:
    """A client that connects to the server directly, even if the client of the test uses the service."""
    return tickwheel


@pytest.fixture
def clock(tickwheel_clock: VirtualClock) -> VirtualClock:
    """The clock of the test's namespace, which stands still until the test advances it."""
    return tickwheel_clock


@pytest.fixture
def server(tickwheel_server: PrivateServer) -> Iterator[Any]:
    """A redis-py client of the test's server."""
    with tickwheel_server.client() as client:
        yield client


@pytest.fixture
def namespace(tickwheel_server: PrivateServer) -> Iterator[str]:
    """The name of a namespace, which the test may create. It is deleted after the test."""
    name = f"test-{os.urandom(6).hex()}"
    yield name
    tickwheel_server.clear(name)


@pytest.fixture
def contents(server: Any) -> Contents:
    """Reads everything that is stored in a namespace, except the sessions, which hold replies."""
    read: dict[bytes, Callable[[Any, bytes], Any]] = {
        b"hash": lambda pipeline, key: pipeline.hgetall(key),
        b"zset": lambda pipeline, key: pipeline.zrange(key, 0, -1, withscores=True),
        b"list": lambda pipeline, key: pipeline.lrange(key, 0, -1),
        b"stream": lambda pipeline, key: pipeline.xrange(key),
    }

    def of_namespace(namespace: str) -> dict[str, Any]:
        keys = sorted(server.scan_iter(match=f"{namespace}:{{*", count=10_000))
        stored = [key for key in keys if b":session:" not in key]
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
def _audit_namespace(request: pytest.FixtureRequest) -> Iterator[None]:
    """Audit the namespace after every test that uses the test kit: no stray key, counters equal to a recount, indexes
    as the records imply, no timer lost.
    """
    if "tickwheel" not in request.fixturenames:
        yield
        return
    direct_client: Tickwheel = request.getfixturevalue("direct_client")
    yield
    findings = direct_client._run(audit(direct_client._context))
    assert not findings, "\n".join(findings)
