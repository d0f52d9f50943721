"""A primary is killed in the middle of enqueues and its replica promoted: `replica:1` keeps what it acknowledged.

What is not acknowledged is sent again, to the new primary, by the same client: to it the failover is a slow call.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.replica_set import ReplicaSet
from tests.fault.flaky_proxy import FlakyProxy
from tests.support.wait_until import eventually
from tickwheel import NewMessage, NotDurable, Tickwheel, TickwheelError
from tickwheel.doctor import audit
from tickwheel.storage.keys import shard_key

pytestmark = pytest.mark.fault

MESSAGES, BATCH = 10_000, 20


class Pair:
    """A primary and its replica, each reached through a proxy: ``clients`` as a floating address, ``link`` between."""

    def __init__(self, folder: Path) -> None:
        self.servers = ReplicaSet(folder, replicas=1)
        self.servers.start()
        primary = ("127.0.0.1", self.servers.primary.port)
        self.clients = FlakyProxy(primary, keeps_requests=False)
        self.link = FlakyProxy(primary, keeps_requests=False)
        [self.replica] = self.servers.replicas
        self.servers.follow(self.replica, ("127.0.0.1", self.link.port))

    def fail_over(self) -> None:
        """The primary is gone at once; its replica takes over, and its address."""
        self.servers.primary.kill()
        self.servers.promote(self.replica)
        self.clients.target = ("127.0.0.1", self.replica.port)
        self.clients.cut()

    def kept(self) -> set[str]:
        """The ids that the primary of now has; everything else about them is in order, too."""
        with Tickwheel(self.servers.url, drive=False) as tickwheel:
            assert tickwheel._run(audit(tickwheel._context)) == []
            queue = next((queue for queue in tickwheel.queues() if queue.name == "orders"), None)
            return {message.id for message in queue.messages()} if queue else set()

    def close(self) -> None:
        self.clients.close()
        self.link.close()
        self.servers.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


@contextmanager
def enqueueing(pair: Pair, durability: str) -> Iterator[list[str]]:
    """The ids that were acknowledged so far, while 10,000 messages are enqueued or the client is closed."""
    acknowledged: list[str] = []
    closing = threading.Event()

    def enqueue() -> None:
        for first in range(0, MESSAGES, BATCH):
            new = [NewMessage(b"x" * 200, f"m{n}") for n in range(first, first + BATCH)]
            while not closing.is_set():
                try:
                    acknowledged.extend(result.id for result in queue.enqueue_many(new))
                    break
                except NotDurable:
                    # Done on the primary and not on its replica: said so, and sent again.
                    time.sleep(0.01)
                except TickwheelError:
                    if not closing.is_set():
                        raise

    with Tickwheel(pair.clients.url, durability=durability, drive=False) as tickwheel:
        queue = tickwheel.queue("orders")
        thread = threading.Thread(target=enqueue)
        thread.start()
        yield acknowledged
        closing.set()
        tickwheel.close()
        thread.join()


def test_a_failover_loses_nothing_that_a_replica_acknowledged(pair: Pair) -> None:
    with enqueueing(pair, "replica:1") as acknowledged:
        eventually(lambda: len(acknowledged) >= MESSAGES // 2, "half of the messages are acknowledged", within=60)
        pair.fail_over()
        assert len(acknowledged) < MESSAGES
        # Alone it acknowledges nothing; with the old primary as its replica it does.
        pair.servers.restart(pair.servers.replicas[0])
        eventually(lambda: len(acknowledged) == MESSAGES, "the client goes on with the new primary", within=60)
        assert set(acknowledged) == pair.kept()


def test_a_message_that_a_lagging_replica_lacks_is_not_acknowledged_and_not_lost_to_its_sender(pair: Pair) -> None:
    with enqueueing(pair, "replica:1") as acknowledged:
        eventually(lambda: len(acknowledged) >= MESSAGES // 4, "some messages are acknowledged", within=60)
        pair.link.stall()
        before = len(acknowledged)
        # The client waits for the replica in vain: at most the batches that were under way are acknowledged.
        eventually(lambda: writes(pair) > before, "the primary has what the replica lacks", within=60)
        pair.fail_over()
        there = list(acknowledged)
        assert len(there) <= before + BATCH
        assert set(there) <= pair.kept()


def test_a_failover_to_a_lagging_replica_loses_only_writes_that_the_primary_alone_acknowledged(pair: Pair) -> None:
    # That the loss is real: the same failover without the wait for replicas.
    with enqueueing(pair, "memory") as acknowledged:
        eventually(lambda: len(acknowledged) >= MESSAGES // 4, "some messages are acknowledged", within=60)
        pair.link.stall()
        before = len(acknowledged)
        eventually(lambda: len(acknowledged) >= before + MESSAGES // 4, "as many after the link stalled", within=60)
        pair.fail_over()
        there = list(acknowledged)
        assert set(there) - pair.kept()


def writes(pair: Pair) -> int:
    """How many messages the primary has."""
    count: int = pair.servers.primary.call("HLEN", shard_key("tw", 0, "messages"))
    return count
