"""The event loop of a worker process, on a host whose threads are used up for a while."""

import threading
from collections.abc import Generator

import pytest

from tests.support.refused_threads import no_more_threads
from tickwheel.worker.async_runner import AsyncTaskLoop

pytestmark = pytest.mark.unit


class Seven:
    """An awaitable whose result is 7."""

    def __await__(self) -> Generator[None, None, int]:
        yield
        return 7


def test_async_tasks_run_after_the_host_had_no_thread_for_the_loop() -> None:
    loop = AsyncTaskLoop()
    with no_more_threads(), pytest.raises(RuntimeError):
        loop.run(Seven(), 30)
    assert loop.run(Seven(), 30) == 7
    loop.close()
    assert "tickwheel-async-tasks" not in {thread.name for thread in threading.enumerate()}
