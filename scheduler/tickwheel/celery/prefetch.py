"""Decides which calls may wait in a worker, behind the other calls of their batch.

A worker leases a batch of messages, and runs their tasks one by one. If its host dies, each message of the batch has
used an attempt, also those whose tasks had not begun. The server cannot distinguish the two. So a call that may run
only once more does not wait in a worker: its task is the first of its batch, or its message is released.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tickwheel import limits
from tickwheel.celery.celery_message import decode_message
from tickwheel.celery.failure_record import runs_allowed, runs_within
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks.task_queue import TaskQueue


def queues_without_prefetch(tasks: Iterable[Any], queues: Mapping[str, str]) -> set[str]:
    """Return the queues of which a worker should take one message at a time: those of a task that may run only once.

    ``queues`` has the queue of each task by the task's name. Tasks without a queue are left out.
    """
    return {queues[task.name] for task in tasks if task.name in queues and runs_allowed(task, 0) == 1}


def may_wait(tasks: Mapping[str, Any], queues: Mapping[str, TaskQueue], message: LeasedMessage) -> bool:
    """Return whether a call may run again after this delivery, or the message is no call of a Celery task.

    A message of which only the failure is left to record may not wait either: it has no attempt after this one.
    ``queues`` are the queues that the app declares. They limit the attempts of a message without a limit of its own.
    """
    try:
        call = decode_message(message.payload)
        task = tasks.get(call["task"])
        if task is None:
            return True
        runs = runs_allowed(task, int(call["args"]["headers"].get("retries") or 0))
        return message.attempt < min(runs, runs_within(message._max_attempts or _attempts_of(queues, message.queue)))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        # Any program can enqueue any payload. The worker refuses this one when its turn comes.
        return True


def _attempts_of(queues: Mapping[str, TaskQueue], name: str) -> int:
    """Return the maximum of attempts that the app declares for a queue, or the default, without a request."""
    config: Mapping[str, Any] = queues[name].config if name in queues else {}
    return int(config.get("max_attempts") or limits.MAX_ATTEMPTS)
