"""Power is lost in the middle of enqueues: `fsync` keeps what was acknowledged, and without it the last second goes.

A kill does not show this: what a killed server wrote is still in the kernel's memory. So the append-only file is cut
back to the last fsync that had returned.
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
    """The ids that were acknowledged so far, while messages are enqueued until the server is gone."""
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


def kept(server: TracedServer) -> set[str]:
    """The ids of the messages that are there after a restart; everything else about them is in order, too."""
    server.start()
    with Tickwheel(server.url, drive=False) as tickwheel:
        assert tickwheel._run(audit(tickwheel._context)) == []
        queue = next((queue for queue in tickwheel.queues() if queue.name == "orders"), None)
        return {message.id for message in queue.messages()} if queue else set()


def test_a_power_loss_loses_nothing_that_was_acknowledged_under_fsync(tmp_path: Path) -> None:
    with TracedServer(tmp_path, "always") as server:
        server.start()
        with enqueueing(server, "fsync") as acknowledged:
            eventually(lambda: len(acknowledged) >= MESSAGES, "10,000 messages are acknowledged", within=60)
            server.lose_power()
            there = list(acknowledged)
        assert set(there) <= kept(server)


def test_a_power_loss_without_fsync_loses_only_the_last_second(tmp_path: Path) -> None:
    # That the loss is real: the same cut, with a server that brings its file to disk every second.
    with TracedServer(tmp_path, "everysec") as server:
        server.start()
        with enqueueing(server, "memory") as acknowledged:
            eventually(lambda: len(acknowledged) >= MESSAGES, "10,000 messages are acknowledged", within=60)
            eventually(lambda: len(acknowledged) >= 2 * MESSAGES, "and as many after that", within=60)
            assert server.lose_power() > 0
            there = list(acknowledged)
        assert set(there) - kept(server)
