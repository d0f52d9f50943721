"""How long a call with a short timeout waits for a connection to a server that does not answer."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tickwheel.redis.asyncio_pools import AsyncConnectionPools
from tickwheel.redis.pools import ConnectionPools
from tickwheel.redis.replies import CONNECTION_ERRORS

pytestmark = pytest.mark.unit

SHORT_S, ANSWER_S = 0.05, 5.0


@pytest.fixture
def address() -> Iterator[str]:
    """The host and port of a server that accepts connections and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield "{}:{}".format(*listener.getsockname())


def seconds_until_error(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(CONNECTION_ERRORS):
        call()
    return time.monotonic() - began


def test_a_short_call_gives_up_while_its_connection_is_opened(address: str) -> None:
    pools = ConnectionPools(f"redis://{address}?client_name=test", ANSWER_S)
    assert seconds_until_error(lambda: pools.acquire("", SHORT_S)) < ANSWER_S / 2


def test_a_short_call_gives_up_while_it_reads_the_slots_of_a_cluster(address: str) -> None:
    pools = ConnectionPools(f"redis+cluster://{address}", ANSWER_S)
    assert seconds_until_error(lambda: pools.refresh_slots((), SHORT_S)) < ANSWER_S / 2


def test_a_short_asyncio_call_gives_up_while_it_reads_the_slots_of_a_cluster(address: str) -> None:
    async def read() -> None:
        pools = AsyncConnectionPools(f"redis+cluster://{address}", ANSWER_S)
        try:
            await pools.refresh_slots((), SHORT_S)
        finally:
            await pools.close()

    assert seconds_until_error(lambda: asyncio.run(read())) < ANSWER_S / 2


def test_a_short_call_does_not_wait_for_the_slots_that_another_call_reads(address: str) -> None:
    pools = ConnectionPools(f"redis+cluster://{address}", ANSWER_S)
    with pools._refresh_lock:
        assert seconds_until_error(lambda: pools.refresh_slots((), SHORT_S)) < ANSWER_S / 2


def test_a_short_asyncio_call_does_not_wait_for_the_slots_that_another_call_reads(address: str) -> None:
    async def read() -> None:
        pools = AsyncConnectionPools(f"redis+cluster://{address}", ANSWER_S)
        async with pools._refresh_lock:
            await pools.refresh_slots((), SHORT_S)

    assert seconds_until_error(lambda: asyncio.run(read())) < ANSWER_S / 2


def test_a_connection_that_a_short_call_has_opened_gets_the_limit_of_the_next_call(address: str) -> None:
    pools = ConnectionPools(f"redis://{address}?protocol=2", ANSWER_S)
    for answer_s in (SHORT_S, ANSWER_S, SHORT_S):
        connection = pools.acquire("", answer_s)
        assert connection._sock.gettimeout() == answer_s
        pools.pool("").release(connection)
    pools.close()
