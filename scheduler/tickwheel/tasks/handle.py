"""The handles of calls that were sent: cancel a call, reschedule it, read its state, and wait for its result."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_type_hints

import msgspec

from tickwheel import aio, limits
from tickwheel.client import Queue
from tickwheel.errors import Forbidden, MessageNotFound, NoResult, ResultExpired
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, MessageView
from tickwheel.model.results import Change
from tickwheel.model.validation import Duration

if TYPE_CHECKING:
    from tickwheel.tasks.task import Task

R = TypeVar("R", covariant=True)


class CallMethods(Generic[R]):
    """The methods of `TaskHandle` and `EnqueuedCall`.

    Each method has a twin for asyncio, whose name begins with ``a``. ``timeout``: see `Queue`.
    """

    id: str
    exclusive_value: str | None
    _task: "Task[..., R]"

    def cancel(self, *, release: bool = False, timeout: Duration | None = None) -> Change:
        """Cancel the call, as `Queue.cancel` does. Raises MessageNotFound, InvalidTransition, QueueNotFound."""
        return self._queue(timeout).cancel(
            self.id, self.exclusive_value, release=release, timeout=self._timeout(timeout)
        )

    async def acancel(self, *, release: bool = False, timeout: Duration | None = None) -> Change:
        """Cancel the call like `cancel`, for asyncio."""
        queue = await self._aqueue(timeout)
        return await queue.cancel(self.id, self.exclusive_value, release=release, timeout=self._timeout(timeout))

    def reschedule(
        self,
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
        deadline: datetime | timedelta | None = None,
        timeout: Duration | None = None,
    ) -> Change:
        """Set a new due time, a new deadline, or both, as `Queue.reschedule` does.

        Raises MessageNotFound, InvalidTransition (the call runs or has ended), InvalidArgument.
        """
        times: dict[str, Any] = {"delay": delay, "due": due, "deadline": deadline}
        return self._queue(timeout).reschedule(self.id, self.exclusive_value, **times, timeout=self._timeout(timeout))

    async def areschedule(
        self,
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
        deadline: datetime | timedelta | None = None,
        timeout: Duration | None = None,
    ) -> Change:
        """Set new times like `reschedule`, for asyncio."""
        queue = await self._aqueue(timeout)
        times: dict[str, Any] = {"delay": delay, "due": due, "deadline": deadline}
        return await queue.reschedule(self.id, self.exclusive_value, **times, timeout=self._timeout(timeout))

    async def astate(self, *, timeout: Duration | None = None) -> str:
        """Return the present state of the call like `TaskHandle.state`, for asyncio."""
        queue = await self._aqueue(timeout)
        return (await queue.get(self.id, self.exclusive_value, timeout=self._timeout(timeout))).state

    def result(self, *, wait: Duration | None = None, timeout: Duration | None = None) -> R:
        """Return what the task returned, decoded from JSON with the return type of the task.

        ``wait``: how long to wait for the end of the call, up to an hour. The call is woken at the end; it does not
        poll. Without ``wait``, the call must have ended. Raises NoResult if the call has not ended, has failed or was
        cancelled, or has stored no result, for example because the result has more than 1 KiB. Raises ResultExpired if
        the retention of the message is over, and Forbidden if the token may not read results.
        """
        try:
            view = self._queue(timeout).get(self.id, self.exclusive_value, wait=wait, timeout=self._timeout(timeout))
        except MessageNotFound as error:
            raise _expired(self._task, self.id) from error
        return _result_of(self._task, view, wait)

    async def aresult(self, *, wait: Duration | None = None, timeout: Duration | None = None) -> R:
        """Return what the task returned like `result`, for asyncio."""
        queue = await self._aqueue(timeout)
        try:
            view = await queue.get(self.id, self.exclusive_value, wait=wait, timeout=self._timeout(timeout))
        except MessageNotFound as error:
            raise _expired(self._task, self.id) from error
        return _result_of(self._task, view, wait)

    def _read_state(self, *, timeout: Duration | None = None) -> str:
        return self._queue(timeout).get(self.id, self.exclusive_value, timeout=self._timeout(timeout)).state

    def _queue(self, timeout: Duration | None) -> Queue:
        return self._task.app._clients.current.client(self._timeout(timeout)).queue(self._task.queue)

    async def _aqueue(self, timeout: Duration | None) -> aio.Queue:
        return (await self._task.app._clients.current.client_async(self._timeout(timeout))).queue(self._task.queue)

    def _timeout(self, timeout: Duration | None) -> Duration | None:
        return self._task._timeout if timeout is None else timeout


class TaskHandle(CallMethods[R]):
    """The handle of a call by its id, as returned by `Task.handle`. The call need not exist."""

    def __init__(self, task: "Task[..., R]", id: str, exclusive_value: str | None) -> None:
        """Called by `Task.handle`. Raises InvalidArgument."""
        validation.message_id(id)
        self._task = task
        self.id = validation.to_plain_str(id)
        if exclusive_value is not None:
            validation.text("exclusive_value", exclusive_value, limits.PAIR_VALUE_BYTES)
        self.exclusive_value = exclusive_value

    def state(self, *, timeout: Duration | None = None) -> str:
        """Return the present state of the call, for example ``pending`` or ``completed``. Raises MessageNotFound."""
        return self._read_state(timeout=timeout)

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id!r} of task {self._task.name!r}>"


class EnqueuedState(str):
    """The state of a call when it was sent. A call of the object returns the present state: ``sent.state()``."""

    _read: Callable[..., str]

    def __new__(cls, state: str, read: Callable[..., str]) -> "EnqueuedState":
        text = super().__new__(cls, state)
        text._read = read
        return text

    def __call__(self, *, timeout: Duration | None = None) -> str:
        """Return the present state of the call. See `TaskHandle.state`."""
        return self._read(timeout=timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


class EnqueuedCall(EnqueueResult, CallMethods[R]):
    """The result of sending a call, and its handle. As an `EnqueueResult`, it has ``id``, ``state`` and ``created``.

    ``state`` is the state at that time, and ``state()`` returns the present one. Unpickled, it is an `EnqueueResult`.
    """

    state: EnqueuedState

    def __init__(self, task: "Task[..., R]", result: EnqueueResult, exclusive_value: str | None) -> None:
        super().__init__(result.id, EnqueuedState(result.state, self._read_state), result.created)
        object.__setattr__(self, "_task", task)
        object.__setattr__(self, "exclusive_value", exclusive_value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EnqueueResult):
            return NotImplemented
        return (self.id, self.state, self.created) == (other.id, other.state, other.created)

    def __hash__(self) -> int:
        return hash((self.id, self.state, self.created))

    def __reduce__(self) -> tuple[Any, ...]:
        return EnqueueResult, (self.id, str(self.state), self.created)


def _result_of(task: "Task[..., R]", view: MessageView, wait: Duration | None) -> R:
    if view.payload_withheld:
        raise Forbidden(
            f"the token may not read results of queue {task.queue!r}: it needs the role consume or admin on this queue"
        )
    if view.result is not None:
        return _decode(task, view.result)
    reason = {
        "completed": "has completed, but stored no result: the result had more than 1 KiB or could not be encoded as"
        " JSON (the log of the worker names the reason), the task was skipped, or its process died before it could"
        " report the result",
        "cancelled": "was cancelled",
        "errored": f"failed: {view.error}",
    }.get(view.state)
    if reason is None and wait is not None:
        reason = f"is still {view.state} after {validation.describe_duration(validation.as_timedelta(wait))}"
    elif reason is None:
        reason = f"has not ended, and is {view.state}: pass `wait` to wait for its end"
    raise NoResult(f"the call {view.id!r} of task {task.name!r} {reason}", view.state, view.error)


def _decode(task: "Task[..., R]", text: str) -> R:
    try:
        kind = get_type_hints(task.function, include_extras=True).get("return", Any)
        return cast(R, msgspec.json.decode(text, type=kind))
    except Exception:
        # The annotation names a type that does not exist at run time, or the task returned a value of another type.
        return cast(R, msgspec.json.decode(text))


def _expired(task: "Task[..., Any]", id_: str) -> ResultExpired:
    return ResultExpired(
        f"queue {task.queue!r} has no message {id_!r}: its retention is over, or the call was never sent; to keep"
        " results longer, set the `retention` of the queue"
    )
