"""The clients of an app: one for each event loop."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from tickwheel.errors import Unavailable
from tickwheel.tasks.client_group import ClientGroup

pytestmark = pytest.mark.unit


def test_the_clients_of_event_loops_that_have_ended_are_dropped() -> None:
    group = ClientGroup({"url": "redis://127.0.0.1:1", "timeout": timedelta(milliseconds=10)}, lambda name: {})
    for _ in range(3):
        with suppress(Unavailable):
            asyncio.run(group.client_async())
    assert len(group._async_clients) == 1
