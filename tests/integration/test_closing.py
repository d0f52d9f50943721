"""A client that was closed says so, may be closed again, and leaves what it enqueued."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.blocking_aio import aio_sandbox
from tickwheel import Tickwheel, TickwheelError, aio
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("opened", [sandbox, aio_sandbox], ids=["blocking", "asyncio"])
def test_a_closed_client_refuses_calls_and_leaves_its_messages(
    tickwheel_server: PrivateServer, opened: Callable[..., Any]
) -> None:
    with opened(tickwheel_server) as (tickwheel, _):
        tickwheel.queue("q").enqueue(b"stays", id="m")
        tickwheel.close()
        with pytest.raises(TickwheelError, match="closed"):
            tickwheel.queue("q").get("m")
        tickwheel.close()
        with Tickwheel(tickwheel_server.url, namespace=tickwheel._core.namespace) as other:
            assert other.queue("q").get("m").payload == b"stays"


def test_an_asyncio_client_that_was_never_opened_says_so(tickwheel_server: PrivateServer) -> None:
    with pytest.raises(TickwheelError, match="not open"):
        asyncio.run(aio.Tickwheel(tickwheel_server.url).queues())
