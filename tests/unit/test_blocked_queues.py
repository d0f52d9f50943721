"""A queue that is blocked for dequeue: each process of a worker reports changes, and the worker logs each once."""

import logging

import pytest

from tickwheel import QueueBlocked, QueueNotFound
from tickwheel.worker.blocked_queues import BlockedQueues, QueueBlocks
from tickwheel.worker.ipc import QueueBlock

pytestmark = pytest.mark.unit

REASON = "queue 'mail' is blocked for dequeue"
BLOCKED, UNBLOCKED = QueueBlock("mail", REASON), QueueBlock("mail", "")
BLOCKED_LINE = f"{REASON}; its messages wait"
UNBLOCKED_LINE = "queue 'mail' is no longer blocked: taking its messages"


def test_a_process_reports_changes_alone() -> None:
    blocks, reports = QueueBlocks(), list[QueueBlock]()
    errors: list[QueueBlocked | QueueNotFound | None] = [
        *(None, QueueNotFound("mail"), QueueBlocked(REASON), QueueBlocked(REASON), QueueNotFound("mail")),
    ]
    for error in errors:
        blocks.observe("mail", error, reports.append)
    assert reports == [BLOCKED]
    for _ in range(2):
        blocks.observe("mail", None, reports.append)
    assert reports == [BLOCKED, UNBLOCKED]
    blocks.observe("mail", QueueBlocked(REASON), reports.append)
    assert reports == [BLOCKED, UNBLOCKED, BLOCKED]


def test_a_queue_that_several_processes_find_blocked_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tickwheel.worker")
    queues = BlockedQueues()
    for report in (BLOCKED, UNBLOCKED, BLOCKED):
        for process in ("first", "second"):
            queues.record(process, report)
    assert caplog.messages == [BLOCKED_LINE, UNBLOCKED_LINE, BLOCKED_LINE]


def test_a_queue_is_logged_again_if_the_processes_that_found_it_blocked_have_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tickwheel.worker")
    queues = BlockedQueues()
    for process in ("first", "second"):
        queues.record(process, BLOCKED)
    queues.forget("first")
    queues.record("third", BLOCKED)
    assert caplog.messages == [BLOCKED_LINE]
    for process in ("second", "third"):
        queues.forget(process)
    queues.record("fourth", BLOCKED)
    assert caplog.messages == [BLOCKED_LINE, BLOCKED_LINE]
