"""Settles the messages that a worker process held when it ended."""

import logging
from collections.abc import Callable, Iterable

from tickwheel.client import Tickwheel
from tickwheel.errors import LeaseLost, MessageNotFound, TickwheelError, Unavailable
from tickwheel.runtime.log_fields import log_fields, log_message
from tickwheel.worker.ipc import BatchTaken, MessageLease
from tickwheel.worker.shared_state import MessageState, SharedState

_log = logging.getLogger("tickwheel.worker")
_NOT_SETTLED = "could not settle the messages, which wait for the end of their leases"


class OrphanSettler:
    """Settles each message of the batches as the message's state in the shared state requires."""

    def __init__(
        self,
        shared_state: SharedState,
        batches: Iterable[BatchTaken],
        open_client: Callable[[], Tickwheel],
    ) -> None:
        self._shared_state = shared_state
        self._batches = batches
        self._open_client = open_client

    def settle_after_exit(self, exit_reason: str, is_culprit: Callable[[int, int], bool]) -> None:
        """Complete finished tasks, release tasks that were not started, and fail tasks that ran and are culprits.

        ``is_culprit`` decides by batch and message index; the failure has ``exit_reason``. Other tasks that ran are
        released.
        """
        try:
            self._settle_all(exit_reason, is_culprit)
        except Unavailable as error:
            # Each further call would fail in the same way, after a timeout, and delay the restart of the process.
            _log.error(f"{_NOT_SETTLED}: %s", error, extra=log_fields("not told"))
        except Exception:
            _log.exception(_NOT_SETTLED, extra=log_fields("not told"))

    def _settle_all(self, exit_reason: str, is_culprit: Callable[[int, int], bool]) -> None:
        for batch in self._batches:
            batch_state = self._shared_state.batches[batch.batch_index]
            for message_index, leased in enumerate(batch.messages):
                if batch_state.number == batch.number and batch_state.is_lost(message_index):
                    continue
                # A batch that was taken but not begun has not set its number in the batch state: all its messages are
                # LEASED.
                state = batch_state.state(message_index) if batch_state.number == batch.number else MessageState.LEASED
                if batch_state.number <= batch.number and state is not MessageState.SETTLED:
                    culprit = is_culprit(batch.batch_index, message_index)
                    self._settle_one(leased, state, exit_reason if culprit else None)

    def _settle_one(self, leased: MessageLease, state: MessageState, failure: str | None) -> None:
        try:
            # Fetch the message with its metadata, which contain the trace context: the spans of the calls below
            # continue the trace.
            message = self._open_client().queue(leased.queue).leased(leased.id, leased.token, leased.exclusive_value)
            if state is MessageState.DONE:
                message.complete()
            elif state is MessageState.LEASED or (state is MessageState.RUNNING and failure is None):
                message.release()
            elif state is MessageState.FAILED:
                message.fail("failed, and its worker process ended before it reported the error")
            else:
                message.fail(failure)
                log_message(_log.error, "task failed", message, "%s", failure, error=failure)
        except (LeaseLost, MessageNotFound):
            pass
        except Unavailable:
            raise
        except TickwheelError as error:
            extra = log_fields("not told", leased)
            _log.error("%s/%s waits for the end of its lease: %s", leased.queue, leased.id, error, extra=extra)
