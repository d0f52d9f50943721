"""Many queues are deleted and created again: the limit counts the queues that exist, and their numbers are reused."""

from typing import Any

import pytest

from tickwheel import Tickwheel, TickwheelError, limits
from tickwheel.operations import queues
from tickwheel.storage.keys import namespace_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

COUNT, AGAIN = 2_000, 101


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
        # A search finds as many numbers, so the test needs a second search.
        again = [tickwheel.create_queue(f"new{n}") for n in range(AGAIN)]
        again_numbers = {queue.config().number for queue in again}
        assert len(again_numbers) == AGAIN
        assert again_numbers <= numbers
        again[-1].enqueue(id="m")
        assert [message.id for message in again[-1].dequeue()] == ["m"]
        assert len(tickwheel.queues()) == AGAIN


def test_no_number_is_lost_if_a_counter_is_no_integer(
    tickwheel_server: PrivateServer, namespace: str, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 2)
    limit = queues.CreationLimit("token", 2)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        for name in "ab":
            tickwheel._run(queues.ensure(tickwheel._context, name, limit))
        for _ in range(3):
            tickwheel.delete_queue("a")
            for counter in ("deleted_queues", "auto_creations:token"):
                server.hset(namespace_key(namespace), counter, "1e0")
            assert tickwheel._run(queues.ensure(tickwheel._context, "a", limit)).number == 1
        server.hset(namespace_key(namespace), "auto_creations:token", "damaged")
        tickwheel.delete_queue("a")
        tickwheel.delete_queue("b")
        assert tickwheel.queues() == []
