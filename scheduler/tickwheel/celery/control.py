"""`revoke` for calls that went to Tickwheel: `AsyncResult.revoke`, `app.control.revoke` and `celery control revoke`.

Celery broadcasts a revocation to its workers, which know the calls that they hold. In Tickwheel, the program that
revokes a call cancels the message, stores REVOKED, and sends the signal ``task_revoked``.
"""

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from celery import platforms, signals
from celery.app.task import Context
from celery.utils.functional import maybe_list

from tickwheel.celery.failure_record import stores_errors
from tickwheel.celery.queue_names import names_of_queues
from tickwheel.celery.revoked_calls import request_of
from tickwheel.client import Queue
from tickwheel.errors import Forbidden, InvalidArgument, InvalidTransition, MessageNotFound, QueueNotFound
from tickwheel.model.message import MessageView
from tickwheel.tasks.app import TaskApp

_log = logging.getLogger("tickwheel.celery")
UNFINISHED: Final = ("invisible", "pending", "running")
# The commands to Celery's workers that revoke calls.
_REVOKING: Final = ("revoke", "terminate")


def routed_control(base: Any, app: TaskApp, queues: Mapping[str, str]) -> Any:
    """Return a class derived from ``base``, the control class of a Celery app, that also revokes calls in Tickwheel."""

    class RoutedControl(base):  # type: ignore[misc]  # the class that the Celery app uses
        def broadcast(
            self, command: str, arguments: Any = None, destination: Any = None, *more: Any, **options: Any
        ) -> Any:
            """Send a command to Celery's workers. If it revokes calls, revoke them in Tickwheel, too.

            `revoke` and `terminate` use this method, and so do Celery's commands for the shell. With ``destination``,
            only these workers of Celery revoke the calls. Raises TickwheelError if Tickwheel is unreachable; Celery's
            workers revoke the calls nevertheless.
            """
            try:
                if command in _REVOKING and destination is None:
                    fields = arguments or {}
                    terminate = command == "terminate" or bool(fields.get("terminate"))
                    revoker = Revoker(self.app, app, queues)
                    for id_ in maybe_list(fields.get("task_id")) or ():
                        revoker.revoke(str(id_), terminate, fields.get("signal"))
            finally:
                answers = super().broadcast(command, arguments, destination, *more, **options)
            return answers

    return RoutedControl


class Revoker:
    """Revokes calls of a Celery app in Tickwheel."""

    def __init__(self, celery: Any, app: TaskApp, queues: Mapping[str, str]) -> None:
        self._celery = celery
        self._app = app
        self._queues = queues

    def revoke(self, id_: str, terminate: bool = False, signal_name: Any = None) -> bool:
        """Cancel the message of a call, and return whether the call was revoked now.

        A message that a worker has leased is cancelled, too. With ``terminate``, its call counts as revoked. Without,
        the worker knows whether its task has begun: if so, the call ends as usual, but is not retried. Otherwise, the
        worker records that the call was revoked.
        """
        signal_number = platforms.signals.signum(signal_name or "TERM") if terminate else None
        found = self._find(id_)
        if found is None:
            return False
        queue, view = found
        was_running = view.state == "running"
        try:
            change = queue.cancel(id_, view.exclusive_value, release=terminate)
        except (InvalidTransition, MessageNotFound):
            return False
        if not change.changed or (was_running and not terminate):
            return False
        self._record(view, was_running, signal_number)
        return True

    def _find(self, id_: str) -> tuple[Queue, MessageView] | None:
        """Return the unfinished message of a call, and its queue.

        The service withholds payloads from a token without the roles ``consume`` and ``admin``. Then each message with
        the id counts as the call if it is in a queue of the Celery app. In other queues, it can be a message of another
        program, so it does not count, and a warning is logged.
        """
        for queue in map(self._app.tickwheel.queue, self._own_queues):
            if (view := _get(queue, id_)) is not None and (
                view.payload_withheld or request_of(id_, view.payload) is not None
            ):
                return queue, view
        # A call can name any queue: `apply_async(queue=…)`.
        unreadable: list[str] = []
        for queue in self._other_queues:
            if (view := _get(queue, id_)) is None:
                continue
            if view.payload_withheld:
                unreadable.append(queue.name)
            elif request_of(id_, view.payload) is not None:
                return queue, view
        for name in unreadable:
            _log.warning(
                "call %s was not revoked: queue %s has a message with this id, but the Celery app does not declare the"
                " queue, and the token may not read whether the message is a call; run `tickwheel cancel %s %s`, or add"
                " the queue to task_queues",
                *(id_, name, name, id_),
            )
        return None

    @cached_property
    def _own_queues(self) -> list[str]:
        return names_of_queues(self._celery, self._queues, self._app)

    @cached_property
    def _other_queues(self) -> list[Queue]:
        return [queue for queue in self._app.tickwheel.queues() if queue.name not in self._own_queues]

    def _record(self, view: MessageView, terminated: bool, signal_number: int | None) -> None:
        request = request_of(view.id, view.payload) or {"id": view.id, "args": [], "kwargs": {}}
        task, context = self._celery.tasks.get(request.get("task")), Context(request, called_directly=False)
        backend = self._celery.backend if task is None else task.backend
        backend.mark_as_revoked(
            view.id,
            "terminated" if terminated else "revoked",
            request=context,
            # The worker that runs the call reads the state, also of a call whose result is ignored.
            store_result=terminated or task is None or stores_errors(task, request),
        )
        number = signal_number if terminated else None
        signals.task_revoked.send(sender=task, request=context, terminated=terminated, signum=number, expired=False)


def _get(queue: Queue, id_: str) -> MessageView | None:
    """Return the message if it is in the queue and not finished."""
    try:
        view = queue.get(id_)
    except (MessageNotFound, QueueNotFound, InvalidArgument, Forbidden):
        # InvalidArgument: the queue is exclusive, so it is no queue of Celery, or the id is too long for Tickwheel.
        return None
    return view if view.state in UNFINISHED else None
