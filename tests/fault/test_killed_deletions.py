"""A deleting client and the event process are killed in the middle of a deletion, which is then repeated."""

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.process import Process
from tests.fault.event_processes import EventProcessChild
from tests.fault.faulty_server import FaultyServer
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.doctor import audit
from tickwheel.redis.url import VARIABLE

pytestmark = pytest.mark.fault

KILLS, MESSAGES = (4, 20_000) if os.environ.get("TICKWHEEL_SOAK") else (2, 10_000)
NAMESPACE = "killed"


def fill(queue: Queue) -> None:
    for first in range(0, MESSAGES, 1_000):
        pairs = {"of": f"value{first % 7_000}", "kind": "a"}
        queue.enqueue_many(
            NewMessage(b"x" * 1_500, delay=timedelta(seconds=n % 3 * 30), metadata=pairs) for n in range(1_000)
        )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("settings", [{}, {"exclusive_key": "of", "indexed": ["kind"]}], ids=["plain", "exclusive"])
def test_a_deletion_whose_processes_are_killed_is_finished_by_the_next_one(
    faulty: FaultyServer, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with Tickwheel(faulty.url, namespace=NAMESPACE, shards=2) as tickwheel:
        queue = tickwheel.create_queue("work", **settings)
        fill(queue)
        leased = queue.dequeue(limit=5)

        def count() -> int:
            return sum(queue.counts().values())

        command = [sys.executable, "-m", "tickwheel", "queue", "delete", "work", "--purge", "--yes"]
        command += ["--namespace", NAMESPACE]
        left = [count()]
        for _ in range(KILLS):
            with (
                EventProcessChild(faulty.url, NAMESPACE, tmp_path / "lock") as event_process,
                Process("delete", command, tmp_path, environment={VARIABLE: faulty.url}) as deletion,
            ):
                eventually(lambda: count() < left[-1], "messages are removed")
                deletion.kill()
                event_process.kill()
            left.append(count())
            assert tickwheel._run(audit(tickwheel._context)) == []
        assert left[-1] > 0, f"the deletion was finished before the last kill: {left}"
        assert len(leased) > 0
        tickwheel.delete_queue("work", purge=True)
        assert tickwheel.queues() == []
        assert tickwheel._run(audit(tickwheel._context)) == []
        with EventProcessChild(faulty.url, NAMESPACE, tmp_path / "lock"):
            again = tickwheel.create_queue("work")
            again.enqueue(id="m", delay=timedelta(milliseconds=100))
            assert [message.id for message in again.dequeue(wait=timedelta(seconds=30))] == ["m"]
