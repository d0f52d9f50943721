"""Many queues are deleted and created again: the limit counts the queues that exist, and their numbers are reused."""

import pytest

from tickwheel import Tickwheel, TickwheelError, limits
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

COUNT, AGAIN = 2_000, 100


@pytest.mark.timeout(500)
def test_the_numbers_of_deleted_queues_are_given_again(
    tickwheel_server: PrivateServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All numbers are given when the queues exist. With the limit of the product, 65,535 queues would be necessary.
    monkeypatch.setattr(limits, "QUEUES_MAX", COUNT)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        numbers = {tickwheel.create_queue(f"old{n}").config().number for n in range(COUNT)}
        assert numbers == set(range(1, COUNT + 1))
        with pytest.raises(TickwheelError, match="at most 2000 queues"):
            tickwheel.create_queue("one-more")
        for n in range(COUNT):
            tickwheel.delete_queue(f"old{n}")
        assert tickwheel.queues() == []
        # Each creation reads all placeholders, so the test creates only some queues.
        again = [tickwheel.create_queue(f"new{n}") for n in range(AGAIN)]
        assert [queue.config().number for queue in again] == list(range(1, AGAIN + 1))
        again[-1].enqueue(id="m")
        assert [message.id for message in again[-1].dequeue()] == ["m"]
        assert len(tickwheel.queues()) == AGAIN
