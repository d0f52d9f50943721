"""The clients of an app: one for all threads, and one for each event loop."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest

from tickwheel.errors import Unavailable
from tickwheel.tasks.client_group import ClientGroup

pytestmark = pytest.mark.unit
CALLS = 20


def unreachable(timeout: timedelta) -> ClientGroup:
    return ClientGroup({"url": "redis://127.0.0.1:1", "timeout": timeout}, lambda name: {})


def test_the_clients_of_event_loops_that_have_ended_are_dropped() -> None:
    group = unreachable(timedelta(milliseconds=10))
    for _ in range(3):
        with suppress(Unavailable):
            asyncio.run(group.client_async())
    assert len(group._async_clients) == 1


def test_threads_that_wait_for_an_unreachable_server_give_up_at_the_same_time() -> None:
    group, began = unreachable(timedelta(seconds=0.5)), time.monotonic()
    with ThreadPoolExecutor(CALLS) as threads:
        errors = [call.exception() for call in [threads.submit(group.client) for _ in range(CALLS)]]
    assert {type(error) for error in errors} == {Unavailable}
    # One after the other, the calls would take 10 s.
    assert time.monotonic() - began < 5


def test_asyncio_tasks_that_wait_for_an_unreachable_server_give_up_at_the_same_time() -> None:
    group, began = unreachable(timedelta(seconds=0.5)), time.monotonic()

    async def call_together() -> list[object]:
        return await asyncio.gather(*[group.client_async() for _ in range(CALLS)], return_exceptions=True)

    assert {type(error) for error in asyncio.run(call_together())} == {Unavailable}
    assert time.monotonic() - began < 5


def test_a_call_after_a_failed_one_tries_again() -> None:
    group = unreachable(timedelta(milliseconds=10))
    for failures in (1, 2):
        with pytest.raises(Unavailable):
            group.client()
        assert group._open_failure.count == failures
