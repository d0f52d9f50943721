"""Settles the messages that a worker process held when it ended."""

import logging
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from tickwheel.client import Message, Tickwheel
from tickwheel.errors import LeaseLost, MessageNotFound, TickwheelError, Unavailable
from tickwheel.runtime.log_fields import log_fields
from tickwheel.storage.record import State
from tickwheel.worker.ipc import BatchTaken, MessageLease
from tickwheel.worker.namespace_loss import NAMESPACE_ERRORS
from tickwheel.worker.shared_state import BatchState, MessageState, SharedState
from tickwheel.worker.task_log import called_task, describe_failure

_log = logging.getLogger("tickwheel.worker")
_UNREPORTED = "failed, and its worker process ended before it reported the error"
_NOT_SETTLED = "could not settle the messages, which wait for the end of their leases"


class Interruption(NamedTuple):
    """Why a task ended with its process, and the back-off of its message. By default, the queue has the back-off."""

    reason: str
    retry_in: timedelta | None = None


def settle_after_exit(
    shared_state: SharedState,
    batches: Iterable[BatchTaken],
    open_client: Callable[[], Tickwheel],
    interruption: Callable[[int, int], Interruption],
    task_names: Container[str] = (),
) -> None:
    """Settle each message of the batches, according to its progress in the shared state.

    Messages of finished tasks are completed or failed, and messages that were not started are released. The message of
    a task that was running fails with its ``interruption``, which has the batch index and the message index as
    arguments. ``task_names`` are the tasks that the log may name.
    """
    # Invariant: a message whose task has begun is never released, because a release does not count the attempt.
    try:
        for batch in batches:
            for message_index, state in _unsettled(batch, shared_state.batches[batch.batch_index]):
                reason, retry_in = interruption(batch.batch_index, message_index)
                _settle(open_client, batch.messages[message_index], state, reason, retry_in, task_names)
    except Unavailable as error:
        # Each further call would fail in the same way, after a timeout, and delay the restart of the process.
        _log.error(f"{_NOT_SETTLED}: %s", error, extra=log_fields("not told"))
    except Exception:
        _log.exception(_NOT_SETTLED, extra=log_fields("not told"))


def _unsettled(batch: BatchTaken, batch_state: BatchState) -> Iterator[tuple[int, MessageState]]:
    """Yield index and state of the messages that are not settled, and whose leases are not lost."""
    for message_index in range(len(batch.messages)):
        if batch_state.number < batch.number:
            # The batch was taken and not begun: the batch state still belongs to an earlier batch.
            yield message_index, MessageState.LEASED
        elif batch_state.number == batch.number and not batch_state.is_marked_lost(message_index):
            state = batch_state.state(message_index)
            if state is not MessageState.SETTLED:
                yield message_index, state


def _settle(
    open_client: Callable[[], Tickwheel],
    leased: MessageLease,
    state: MessageState,
    reason: str,
    retry_in: timedelta | None,
    task_names: Container[str],
) -> None:
    try:
        client = open_client()
        # Fetch the message with its metadata, which contain the trace context: the spans of the calls below
        # continue the trace.
        message = client.queue(leased.queue).leased(leased.id, leased.token, leased.exclusive_value)
        if state is MessageState.DONE:
            message.complete()
        elif state is MessageState.LEASED:
            message.release()
        elif state in (MessageState.FAILED, MessageState.REJECTED):
            _fail(client, message, _UNREPORTED, None, state is MessageState.REJECTED, task_names)
        else:
            _fail(client, message, reason, retry_in, False, task_names)
    except (LeaseLost, MessageNotFound, *NAMESPACE_ERRORS):
        # The supervisor logs the loss of a namespace once.
        pass
    except Unavailable:
        raise
    except TickwheelError as error:
        extra = log_fields("not told", leased)
        _log.error("%s/%s waits for the end of its lease: %s", leased.queue, leased.id, error, extra=extra)


def _fail(
    client: Tickwheel,
    message: Message,
    error: str,
    retry_in: timedelta | None,
    is_final: bool,
    task_names: Container[str],
) -> None:
    answer = client._run(client._backend.fail(message, error, retry_in, is_final))
    task = called_task(message, task_names)
    fields: dict[str, Any] = {
        "event": "task failed",
        "queue": message.queue,
        "id": message.id,
        "attempt": message.attempt,
        "task": task,
        "error": error,
        "state": answer.state,
    }
    if answer.max_attempts:
        fields["max_attempts"] = answer.max_attempts
    if answer.state != State.ERRORED.label and answer.retry_in_ms is not None:
        fields["again_in_s"] = answer.retry_in_ms / 1_000
    text = describe_failure(message, answer, is_final=is_final)
    _log.error("%s/%s %s: %s: %s", message.queue, message.id, task, text, error, extra={"fields": fields})
