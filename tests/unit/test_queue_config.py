"""The stored form of a queue's configuration."""

import json
from itertools import product

import pytest

from tickwheel.model.queue_config import QueueConfig

pytestmark = pytest.mark.unit

PREFIX = bytes(10)


@pytest.mark.parametrize(("enqueue", "dequeue"), list(product([False, True], repeat=2)))
def test_a_queue_in_deletion_is_stored_with_its_former_blocks(enqueue: bool, dequeue: bool) -> None:
    before = QueueConfig(lease_ms=1_001, enqueue_blocked=enqueue, dequeue_blocked=dequeue)
    stored = before.marked_for_deletion().to_bytes()
    # An older client ignores the marks.
    assert [json.loads(stored)[name] for name in ("enqueue_blocked", "dequeue_blocked")] == [True, True]
    marked = QueueConfig.from_bytes("q", PREFIX + stored)
    assert marked.deleting
    assert marked.unmarked() == before
    assert marked.unmarked().to_bytes() == before.to_bytes()
