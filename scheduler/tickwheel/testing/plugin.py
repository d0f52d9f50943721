"""The pytest plugin: the fixtures `tickwheel_server`, `tickwheel`, `tickwheel_aio`, `tickwheel_clock` and
`tickwheel_tasks`, and the marker `tickwheel`.

A test run that uses no fixture starts nothing and imports little: each fixture imports its parts when it is used.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tickwheel import Tickwheel, aio
    from tickwheel.tasks import TaskApp
    from tickwheel.testing import PrivateServer, VirtualClock
    from tickwheel.testing.task_tester import TaskTester

_MARKER = (
    "tickwheel(shards=1, now=None, history='capped', auto_create=True): settings of the test's namespace; `now` is the"
    " time at which its clock starts, an aware datetime (default: the present)"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def tickwheel_server() -> Iterator["PrivateServer"]:
    """A private Valkey server, shared by the tests of the session. ``url`` is its URL. It stores nothing on disk."""
    from tickwheel.testing import PrivateServer

    with PrivateServer() as server:
        yield server


@pytest.fixture
def tickwheel(_tickwheel_sandbox: "tuple[Tickwheel, VirtualClock]") -> "Tickwheel":
    """A `Tickwheel` client of a fresh namespace, whose clock is `tickwheel_clock`.

    The marker ``@pytest.mark.tickwheel(shards=4, now=...)`` changes the settings of the namespace.
    """
    return _tickwheel_sandbox[0]


@pytest.fixture
def tickwheel_aio(tickwheel_server: "PrivateServer", tickwheel: "Tickwheel") -> "aio.Tickwheel":
    """An `aio.Tickwheel` of the same namespace and clock. Open it in the test: ``async with tickwheel_aio as tw:``."""
    from tickwheel.testing.sandbox import aio_client

    return aio_client(tickwheel_server, tickwheel)


@pytest.fixture
def tickwheel_clock(_tickwheel_sandbox: "tuple[Tickwheel, VirtualClock]") -> "VirtualClock":
    """The `VirtualClock` of the test's namespace: ``now``, ``advance(duration)``, ``set(datetime)``, ``run_due()``."""
    return _tickwheel_sandbox[1]


@pytest.fixture
def tickwheel_tasks(tickwheel: "Tickwheel", tickwheel_clock: "VirtualClock") -> "Iterator[Callable[..., TaskTester]]":
    """A function that connects a TaskApp to the test's namespace until the test ends.

    The function returns a `TaskTester`: ``sent()``, ``run_due()``, ``advance(duration)``. With ``schedules=False``, the
    schedules of the app start no task.
    """
    from tickwheel.testing.task_tester import open_task_tester

    with ExitStack() as testers:

        def connect(app: "TaskApp", *, schedules: bool = True) -> "TaskTester":
            return testers.enter_context(open_task_tester(app, tickwheel, tickwheel_clock, schedules=schedules))

        yield connect


@pytest.fixture
def _tickwheel_sandbox(
    request: pytest.FixtureRequest, tickwheel_server: "PrivateServer"
) -> Iterator["tuple[Tickwheel, VirtualClock]"]:
    from tickwheel.testing import sandbox

    marker = request.node.get_closest_marker("tickwheel")
    with sandbox(tickwheel_server, **(marker.kwargs if marker else {})) as client_and_clock:
        yield client_and_clock
