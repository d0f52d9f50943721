"""An id that is used again after 65,536 enqueues, when the generation of its timers repeats."""

from datetime import timedelta
from typing import Any

import pytest

from tickwheel import Tickwheel
from tickwheel.doctor import audit
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.integration

MINUTE = timedelta(minutes=1)
ROUND = 65_536


@pytest.mark.parametrize("exclusive_key", [None, "of"])
def test_the_lease_of_a_reused_id_ends_on_time(
    tickwheel_server: PrivateServer, server: Any, exclusive_key: str | None
) -> None:
    with sandbox(tickwheel_server, history="off") as (tickwheel, clock):
        queue, clock_key = tickwheel.create_queue("q", exclusive_key=exclusive_key), _clock_key(tickwheel)
        queue.enqueue(id="nightly", metadata={"of": "1"})
        first = int(server.hget(clock_key, "seq"))
        [message] = queue.dequeue()
        message.complete()
        clock.advance(15 * MINUTE)
        # Each enqueue takes the next number of the shard's sequence.
        server.hincrby(clock_key, "seq", ROUND - 1)
        queue.enqueue(id="nightly", metadata={"of": "1"})
        assert int(server.hget(clock_key, "seq")) == first + ROUND
        # The worker of the message dies.
        assert len(queue.dequeue()) == 1
        clock.advance(5 * MINUTE)
        assert queue.counts()["pending"] == 1
        assert not tickwheel._run(audit(tickwheel._context))


def _clock_key(tickwheel: Tickwheel) -> str:
    return shard_key(tickwheel._context.namespace, 0, "clock")
