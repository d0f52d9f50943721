"""The digest of a request with an id is computed in parts, so that the event loop runs other tasks in between."""

import asyncio
from itertools import count

import pytest

from tickwheel.operations.sessions import RequestId, RequestSessions
from tickwheel.service.request_fields import request_sessions
from tickwheel.v1.message_service_pb2 import FailRequest

pytestmark = pytest.mark.unit

TEXT, ITEMS = "x" * 40 * 1024, 100


def fail_request(items: int) -> FailRequest:
    """Return a request with large error texts."""
    return FailRequest(queue="q", request_id="slot:1", items=[FailRequest.Item(error=TEXT) for _ in range(items)])


async def digest(request: FailRequest) -> tuple[RequestSessions | None, int]:
    """Return the sessions of the request, and how often the event loop ran other tasks meanwhile."""
    rounds = count()

    async def tick() -> None:
        while True:
            next(rounds)
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    sessions = await request_sessions(request)
    ticking.cancel()
    return sessions, next(rounds)


def test_a_large_request_is_digested_in_parts() -> None:
    _, rounds = asyncio.run(digest(fail_request(ITEMS)))
    assert rounds >= ITEMS * len(TEXT) // (256 * 1024)


def test_a_small_request_is_digested_without_a_pause() -> None:
    _, rounds = asyncio.run(digest(fail_request(1)))
    assert rounds == 0


@pytest.mark.parametrize("items", [1, ITEMS])
def test_the_parts_do_not_change_the_digest(items: int) -> None:
    request = fail_request(items)
    sessions, _ = asyncio.run(digest(request))
    content = FailRequest(items=request.items).SerializeToString(deterministic=True)
    assert sessions is not None
    assert sessions.call == RequestId.parse("slot:1").call("q", "FailRequest", content)
