"""The messages that a worker process held when it ended are settled by the progress that it has recorded."""

from math import inf
from typing import Final

import pytest

from tickwheel import Message, NewMessage, Tickwheel
from tickwheel.worker.ipc import BatchTaken, MessageLease
from tickwheel.worker.orphan_settler import Interruption, settle_after_exit
from tickwheel.worker.shared_state import MessageState, SharedState

pytestmark = pytest.mark.integration

# The state and the attempts of a message after its first delivery, by the progress of its task.
SETTLED: Final = {
    MessageState.LEASED: ("pending", 0),
    MessageState.RUNNING: ("invisible", 1),
    MessageState.DONE: ("completed", 1),
    MessageState.FAILED: ("invisible", 1),
    MessageState.REJECTED: ("errored", 1),
}


def test_each_message_is_settled_by_the_progress_of_its_task(
    tickwheel: Tickwheel, caplog: pytest.LogCaptureFixture
) -> None:
    work, shared_state = tickwheel.create_queue("work"), SharedState(1)
    work.enqueue_many(NewMessage(id=progress.name) for progress in SETTLED)
    messages = work.dequeue(limit=len(SETTLED))
    batch_state = shared_state.batches[0]
    batch_state.begin(1, [inf] * len(messages))
    for message_index, message in enumerate(messages):
        batch_state.end(message_index, MessageState[message.id])
    batch = BatchTaken(0, 1, list(map(_to_message_lease, messages)))
    settle_after_exit(shared_state, [batch], lambda: tickwheel, lambda batch_index, index: Interruption("killed"))
    shared_state.close()
    found = {progress: work.get(progress.name) for progress in SETTLED}
    assert {progress: (view.state, view.attempt) for progress, view in found.items()} == SETTLED
    lines = [record.__dict__["fields"] for record in caplog.records if record.levelname == "ERROR"]
    assert {(line["event"], line["id"], line["state"]) for line in lines} == {
        ("task failed", progress.name, SETTLED[progress][0])
        for progress in (MessageState.RUNNING, MessageState.FAILED, MessageState.REJECTED)
    }


def _to_message_lease(message: Message) -> MessageLease:
    name = message.queue, message._queue_number, message.id, message.exclusive_value
    return MessageLease(*name, message.token, message.attempt, 30.0)
