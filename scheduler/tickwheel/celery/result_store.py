"""The result of a task that has succeeded: storing it is repeated during a short outage of the result backend.

Celery reads the previous state of a call before it stores a result, and does not repeat this read by default. Without
the repetition here, a restart of the backend would end calls as Errored whose tasks have succeeded.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from celery.exceptions import SoftTimeLimitExceeded

from tickwheel.runtime.backoff import exponential
from tickwheel.tasks.exceptions import TimeLimitExceeded

_log = logging.getLogger("tickwheel.celery")
# How long storing is repeated.
REPEAT_S: Final = 20.0
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 1.0
# When the process stops, storing is tried only once more, after this time. The call then ends as Errored. Otherwise the
# worker could kill the process at the end of `--drain`, and a task that has succeeded would run again.
_LAST_PAUSE_S: Final = 1.0
# How often a pause checks whether the process stops. The pause does not wait on the event: an error that the time limit
# raises inside `Event.wait` could leave the lock of the event held, and the process would never stop.
_TICK_S: Final = 0.1


def repeat_storing(backend: Any, is_stopping: Callable[[], bool], on_stored: Callable[[str], None]) -> None:
    """Let a result backend repeat its method ``mark_as_done`` while the backend cannot be reached.

    ``is_stopping`` returns whether the process stops. ``on_stored`` is called with the id of a call whose result the
    backend has accepted.

    Inside Celery's tracer, so that the handlers and signals of a success follow as usual. Otherwise the tracer would
    store an error in place of the result when the backend answers again.
    """
    if isinstance(vars(backend).get("mark_as_done"), _RepeatedStore):
        return
    backend.mark_as_done = _RepeatedStore(backend, is_stopping, on_stored)


class _RepeatedStore:
    """The method ``mark_as_done`` of one backend, with repetition."""

    def __init__(self, backend: Any, is_stopping: Callable[[], bool], on_stored: Callable[[str], None]) -> None:
        self._backend = backend
        self._store = backend.mark_as_done
        self._is_stopping = is_stopping
        self._on_stored = on_stored

    def __call__(self, task_id: str, *args: Any, **options: Any) -> Any:
        ends_at, failures, is_last = time.monotonic() + REPEAT_S, 0, False
        while True:
            try:
                value = self._store(task_id, *args, **options)
                break
            except Exception as error:
                failures += 1
                pause_s = exponential(_PAUSE_S, _PAUSE_MAX_S, failures)
                if is_last or not self._is_outage(error) or time.monotonic() + pause_s > ends_at:
                    raise
                if failures == 1:
                    _log.warning(
                        "cannot store the result of call %s, whose task has succeeded; trying again for up to %d s: %s",
                        *(task_id, REPEAT_S, error),
                    )
                try:
                    is_last = self._pause(pause_s)
                except (TimeLimitExceeded, SoftTimeLimitExceeded):
                    # The task has ended within its limit. What failed is the storing.
                    raise error from None
        self._on_stored(task_id)
        return value

    def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt. Return whether the process stops, so that this attempt is the last one."""
        ends_at = time.monotonic() + seconds
        while not self._is_stopping():
            if (left := ends_at - time.monotonic()) <= 0:
                return False
            time.sleep(min(left, _TICK_S))
        time.sleep(_LAST_PAUSE_S)
        return True

    def _is_outage(self, error: Exception) -> bool:
        return isinstance(error, ConnectionError | TimeoutError) or bool(self._backend.exception_safe_to_retry(error))
