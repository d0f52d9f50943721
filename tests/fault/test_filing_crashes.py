"""An event process is killed while it files a large inbox: no message is early, delivered twice, or lost."""

import os
import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from services.process import ServiceError
from tests.fault.event_processes import EventProcessChild, fence, wait_for_a_claim
from tests.fault.faulty_server import FaultyServer
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import Message, NewMessage, Tickwheel
from tickwheel.doctor import audit
from tickwheel.storage.keys import shard_key

pytestmark = pytest.mark.fault

KILLS = 100 if os.environ.get("TICKWHEEL_SOAK") else 5
FAR, NEAR = 50_000 + KILLS * 5_000, 2_000
LEASE = timedelta(minutes=5)


@pytest.mark.timeout(600)
def test_event_processes_killed_while_filing_cause_no_lost_early_or_second_delivery(
    faulty: FaultyServer, tmp_path: Path
) -> None:
    chance = random.Random(5)
    delivered: list[Message] = []
    with Tickwheel(faulty.url, namespace="filed", history="relay") as tickwheel, faulty.client() as server:
        work = tickwheel.create_queue("work", lease=LEASE)
        # Enough messages that the event process files the inbox immediately, one chunk for each call.
        for _ in range(FAR // 250):
            work.enqueue_many(NewMessage(delay=timedelta(seconds=chance.uniform(600, 200_000))) for _ in range(250))
        work.enqueue_many(NewMessage(delay=timedelta(seconds=chance.uniform(1, 5))) for _ in range(NEAR))
        inbox = shard_key("filed", 0, "inbox")
        left = [server.xlen(inbox)]
        for _ in range(KILLS):
            before = fence(server, "filed")
            with EventProcessChild(faulty.url, "filed", tmp_path / "lock") as event_process:
                wait_for_a_claim(server, "filed", before)
                eventually(lambda: server.xlen(inbox) < max(left[-1], 1), "the event process files the inbox")
                with suppress(ServiceError):
                    event_process.wait(chance.uniform(0, 0.01))
            left.append(server.xlen(inbox))
            delivered += work.dequeue(limit=1_000)
        with EventProcessChild(faulty.url, "filed", tmp_path / "lock"):
            while len(delivered) < NEAR:
                batch = work.dequeue(limit=1_000, wait=timedelta(seconds=20))
                assert batch, "no message was delivered in time"
                delivered += batch
            eventually(lambda: server.xlen(inbox) == 0, "the whole inbox is filed")
        findings = tickwheel._run(audit(tickwheel._context))
        counts = work.counts()
        transitions = read_outbox(server, "filed")

    assert len({length for length in left if length > 0}) > KILLS // 2, (
        f"the event process was not killed while it filed: {left}"
    )
    assert findings == []
    assert len({message.id for message in delivered}) == NEAR
    assert all(message.attempt == 1 for message in delivered)
    assert all(message.lease_until - LEASE >= message.due for message in delivered)
    assert (counts["invisible"], counts["running"]) == (FAR, NEAR)
    assert len(transitions) == FAR + 3 * NEAR
