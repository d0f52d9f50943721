"""Power is lost during enqueues: `fsync` keeps all acknowledged messages; without it, the last second is lost.

A kill cannot prove this, because the writes of a killed server are still in the memory of the kernel. So the tests
truncate the append-only file to the data of the last completed fsync.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fault.traced_server import TracedServer
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, TickwheelError
from tickwheel.doctor import audit

pytestmark = pytest.mark.fault

MESSAGES, BATCH = 10_000, 20


@contextmanager
def enqueueing(server: TracedServer, durability: str) -> Iterator[list[str]]:
    """Enqueue messages in a thread until the server is killed, and yield the list of acknowledged ids."""
    acknowledged: list[str] = []

    def enqueue() -> None:
        try:
            for first in range(0, 100 * MESSAGES, BATCH):
                new = [NewMessage(b"x" * 200, f"m{n}") for n in range(first, first + BATCH)]
                acknowledged.extend(result.id for result in queue.enqueue_many(new))
        except TickwheelError:
            pass

    with Tickwheel(server.url, durability=durability, drive=False) as tickwheel:
        queue = tickwheel.queue("orders")
        thread = threading.Thread(target=enqueue)
        thread.start()
        yield acknowledged
    thread.join()


def kept_ids(server: TracedServer) -> set[str]:
    """Restart the server, check all indexes, and return the ids of its messages."""
    server.start()
    with Tickwheel(server.url, drive=False) as tickwheel:
        assert tickwheel._run(audit(tickwheel._context)) == []
        queue = next((queue for queue in tickwheel.queues() if queue.name == "orders"), None)
        return {message.id for message in queue.messages()} if queue else set()


def test_a_power_loss_loses_nothing_that_was_acknowledged_under_fsync(tmp_path: Path) -> None:
    with TracedServer(tmp_path, "always") as server:
        with enqueueing(server, "fsync") as acknowledged:
            eventually(lambda: len(acknowledged) >= MESSAGES, "10,000 messages are acknowledged", within=60)
            server.lose_power()
            expected = list(acknowledged)
        assert set(expected) <= kept_ids(server)


def test_a_power_loss_without_fsync_loses_acknowledged_messages(tmp_path: Path) -> None:
    # The counter-proof: with an fsync only every second, the same power loss does lose messages.
    with TracedServer(tmp_path, "everysec") as server:
        with enqueueing(server, "memory") as acknowledged:
            eventually(lambda: len(acknowledged) >= MESSAGES, "10,000 messages are acknowledged", within=60)
            eventually(lambda: len(acknowledged) >= 2 * MESSAGES, "and as many after that", within=60)
            assert server.lose_power() > 0
            expected = list(acknowledged)
        assert set(expected) - kept_ids(server)
