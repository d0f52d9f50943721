"""The listener of an event process: a client that floods a channel does not keep the listener from other work."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.wait_until import eventually
from tickwheel.driver.shard_connection import make_connection
from tickwheel.redis import channel_listener
from tickwheel.redis.channel_listener import ChannelListener
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

CHANNEL = "{0}:flooded"
READS = 10


@pytest.fixture
def listener(
    tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ChannelListener, list[int]]]:
    """A listener, and a list that gets the number of notifications that it has read."""
    monkeypatch.setattr(channel_listener, "_READS_OF_A_POLL", READS)
    reads = [0]
    read = ChannelListener._read

    def count_and_read(listener: ChannelListener) -> None:
        reads[0] += 1
        read(listener)

    with (
        tickwheel_server.client() as client,
        closing(WakePipe()) as wake,
        closing(ChannelListener(make_connection(client), wake.fileno())) as listener,
    ):
        listener.set_channels([CHANNEL])
        monkeypatch.setattr(ChannelListener, "_read", count_and_read)
        yield listener, reads


def test_a_poll_reads_a_bounded_number_of_notifications_and_the_next_poll_reads_on(
    listener: tuple[ChannelListener, list[int]], server: Any
) -> None:
    polled, reads = listener
    count = 5 * READS
    with server.pipeline(transaction=False) as pipeline:
        for _ in range(count):
            pipeline.execute_command("SPUBLISH", CHANNEL, "")
        pipeline.execute()
    # All notifications are in the parser or the socket, and no poll waits.
    eventually(lambda: polled.poll(monotonic_ms() + 60_000) == {CHANNEL}, "the first notification arrives")
    while reads[0] < count:
        before = reads[0]
        assert polled.poll(monotonic_ms() + 60_000) == {CHANNEL}
        assert reads[0] - before <= READS
    assert polled.poll(monotonic_ms()) == set()
