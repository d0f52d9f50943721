"""An id that is used again so much later that the generation of its timers comes round: 65,536 enqueues."""

from datetime import timedelta

import pytest

from tickwheel import NewMessage
from tickwheel.doctor import audit
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.integration

MINUTE = timedelta(minutes=1)
ROUND = 65_536


@pytest.mark.parametrize("exclusive_key", [None, "of"])
def test_a_lease_of_a_name_that_ended_before_ends_when_it_should(
    tickwheel_server: PrivateServer, exclusive_key: str | None
) -> None:
    with sandbox(tickwheel_server, history="off") as (tickwheel, clock):
        queue, other = tickwheel.create_queue("q", exclusive_key=exclusive_key), tickwheel.create_queue("other")
        queue.enqueue(id="nightly", metadata={"of": "1"})
        [message] = queue.dequeue()
        message.complete()
        clock.advance(15 * MINUTE)
        other.enqueue_many(NewMessage(delay=timedelta(days=30)) for _ in range(ROUND - 1))
        queue.enqueue(id="nightly", metadata={"of": "1"})
        # Its worker dies.
        assert len(queue.dequeue()) == 1
        clock.advance(5 * MINUTE)
        assert queue.counts()["pending"] == 1
        assert not tickwheel._run(audit(tickwheel._context))
