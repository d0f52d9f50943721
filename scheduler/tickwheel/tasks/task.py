"""`Task`: a function of an app that can be called later, as created by `TaskApp.task`."""

import copy
import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast, overload

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import message_content, validation
from tickwheel.model.message import NewMessage
from tickwheel.model.priority import priority_deadline_ms
from tickwheel.model.validation import Duration
from tickwheel.tasks.handle import EnqueuedCall, TaskHandle
from tickwheel.tasks.retry import Retry
from tickwheel.tasks.signature import Signature

if TYPE_CHECKING:
    from tickwheel.tasks.app import TaskApp

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T")
NAME_BYTES = 128
TIME_LIMIT = timedelta(minutes=30)
TIME_LIMIT_MS_MAX = 7 * 86_400_000


class Defaults(TypedDict, total=False):
    """Settings of all messages of a task; see `Queue.enqueue`."""

    deadline: datetime | timedelta
    lease: Duration
    max_attempts: int
    priority: int


class Options(Defaults, total=False):
    """Settings of one call and its message; see `Queue.enqueue`."""

    id: str
    metadata: Mapping[str, str]
    timeout: Duration


class Task(Generic[P, R]):
    """A function that workers can run. A direct call runs the function itself.

    `now`, `later` and `at` enqueue a message for which a worker runs the function; `anow`, `alater` and `aat` do the
    same for asyncio. They return an `EnqueuedCall`, which can cancel the call or wait for its result. `handle` returns
    the handle of an earlier call. Before they send anything, they check the arguments against the signature of the
    function and raise InvalidArgument if the arguments do not fit. They also raise the errors of `Queue.enqueue`.

    A worker awaits what an async function returns. So the result of such a call is the awaited value, and each of these
    methods has an overload for this type.
    """

    def __init__(
        self,
        app: "TaskApp",
        function: Callable[P, R],
        name: str,
        queue: str,
        *,
        time_limit: Duration,
        retry: Retry | None,
        metadata: Iterable[str],
        defaults: Defaults,
    ) -> None:
        """Called by `TaskApp.task`, which describes the arguments. Raises InvalidArgument."""
        validation.text("a task's name", name, NAME_BYTES, minimum=1, nul=False)
        self.app = app
        self.function = function
        self.name = name
        self.queue = validation.plain_name("a queue's name", queue)
        self.time_limit = validation.duration("time_limit", time_limit, 1, TIME_LIMIT_MS_MAX)
        self.retry = (
            retry if retry is None else validation.instance("retry", retry, Retry, "pass Retry(first=…, most=…)")
        )
        self.signature = Signature(name, function)
        self._options = cast(Options, defaults)
        if isinstance(metadata, str | bytes) or not isinstance(metadata, Iterable):
            raise InvalidArgument(
                f"metadata must be a list or tuple with names of parameters, not {validation.preview(metadata)}"
            )
        # Read only as far as needed, because an iterable can be endless.
        self._metadata = tuple(islice(metadata, limits.PAIRS_MAX + 1))
        if unknown := [parameter for parameter in self._metadata if parameter not in self.signature.names]:
            raise InvalidArgument(
                f"task {name!r}: `metadata` contains {validation.preview(unknown[0])}, which is not a parameter of the"
                f" task ({', '.join(self.signature.names)})"
            )
        _check_options(defaults, Defaults.__annotations__)
        _check_urgency(self._options)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly. Nothing is enqueued."""
        return self.function(*args, **kwargs)

    @overload
    def now(self: "Task[P, Awaitable[T]]", *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[T]: ...

    @overload
    def now(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[R]: ...

    def now(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[Any]:
        """Enqueue a call that a worker runs as soon as it takes the message."""
        return self._send(self.message(args, kwargs))

    @overload
    def later(
        self: "Task[P, Awaitable[T]]", delay: Duration, /, *args: P.args, **kwargs: P.kwargs
    ) -> EnqueuedCall[T]: ...

    @overload
    def later(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[R]: ...

    def later(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[Any]:
        """Enqueue a call that a worker runs after ``delay``, a timedelta or a number of seconds, never earlier."""
        return self._send(self._delayed(delay, args, kwargs))

    @overload
    def at(self: "Task[P, Awaitable[T]]", due: datetime, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[T]: ...

    @overload
    def at(self, due: datetime, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[R]: ...

    def at(self, due: datetime, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[Any]:
        """Enqueue a call that a worker runs at ``due``, an aware datetime, never earlier."""
        return self._send(self._due(due, args, kwargs))

    @overload
    async def anow(self: "Task[P, Awaitable[T]]", *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[T]: ...

    @overload
    async def anow(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[R]: ...

    async def anow(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[Any]:
        """Enqueue a call like `now`, for asyncio."""
        return await self._asend(self.message(args, kwargs))

    @overload
    async def alater(
        self: "Task[P, Awaitable[T]]", delay: Duration, /, *args: P.args, **kwargs: P.kwargs
    ) -> EnqueuedCall[T]: ...

    @overload
    async def alater(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[R]: ...

    async def alater(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[Any]:
        """Enqueue a call like `later`, for asyncio."""
        return await self._asend(self._delayed(delay, args, kwargs))

    @overload
    async def aat(
        self: "Task[P, Awaitable[T]]", due: datetime, /, *args: P.args, **kwargs: P.kwargs
    ) -> EnqueuedCall[T]: ...

    @overload
    async def aat(self, due: datetime, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[R]: ...

    async def aat(self, due: datetime, /, *args: P.args, **kwargs: P.kwargs) -> EnqueuedCall[Any]:
        """Enqueue a call like `at`, for asyncio."""
        return await self._asend(self._due(due, args, kwargs))

    def with_options(self, **options: Unpack[Options]) -> Self:
        """Return the task with other message settings: ``send.with_options(id="welcome-7").later(delay, user=7)``.

        Raises InvalidArgument.
        """
        _check_options(options, Options.__annotations__ | Defaults.__annotations__)
        task = copy.copy(self)
        task._options = {**self._options, **options}
        _check_urgency(task._options)
        return task

    def call(self, *args: P.args, **kwargs: P.kwargs) -> "Call":
        """Return a call for `TaskApp.cron` or `TaskApp.every`. Raises InvalidArgument if the option `id` is set."""
        if "id" in self._options:
            raise InvalidArgument(
                f"task {self.name!r}: each message of a schedule gets its own id: leave out the option `id`"
            )
        return Call(self, args, kwargs)

    def message(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
    ) -> NewMessage:
        """Return the message of a call, to enqueue it by other means. Raises InvalidArgument for wrong arguments."""
        payload = self.signature.payload(args, kwargs, self.app.encoding)
        options = self._options
        metadata = dict(options.get("metadata") or {})
        if self._metadata:
            call_arguments = self.signature.bound(args, kwargs)
            metadata |= {name: str(call_arguments[name]) for name in self._metadata}
        return NewMessage(
            payload,
            options.get("id"),
            delay,
            due,
            options.get("deadline"),
            metadata or None,
            options.get("lease"),
            options.get("max_attempts"),
            options.get("priority"),
        )

    @overload
    def handle(self: "Task[P, Awaitable[T]]", id: str, exclusive_value: str | None = None) -> TaskHandle[T]: ...

    @overload
    def handle(self, id: str, exclusive_value: str | None = None) -> TaskHandle[R]: ...

    def handle(self, id: str, exclusive_value: str | None = None) -> TaskHandle[Any]:
        """Return the handle of a call by its id, without a call to the server.

        ``exclusive_value`` is needed if the queue of the task is exclusive. Raises InvalidArgument.
        """
        return TaskHandle(self, id, exclusive_value)

    def _send(self, message: NewMessage) -> EnqueuedCall[Any]:
        result = self.app.enqueue(self, message, timeout=self._timeout)
        return EnqueuedCall(self, result, self._exclusive_value(message))

    async def _asend(self, message: NewMessage) -> EnqueuedCall[Any]:
        result = await self.app.aenqueue(self, message, timeout=self._timeout)
        return EnqueuedCall(self, result, self._exclusive_value(message))

    def _exclusive_value(self, message: NewMessage) -> str | None:
        queue = self.app.queues.get(self.queue)
        key = None if queue is None else queue.config.get("exclusive_key")
        return None if key is None else dict(message.metadata or {}).get(key)

    @property
    def _timeout(self) -> Duration | None:
        return self._options.get("timeout")

    # Without these checks, a call with None instead of a time would run immediately.
    def _delayed(self, delay: Duration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewMessage:
        validation.duration_ms("delay", delay, 0, limits.DELAY_MS_MAX)
        return self.message(args, kwargs, delay=delay)

    def _due(self, due: datetime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewMessage:
        validation.instance("due", due, datetime, "pass an aware datetime.datetime, or use `now` or `anow`")
        return self.message(args, kwargs, due=due)

    def __repr__(self) -> str:
        return f"<Task {self.name} of queue {self.queue!r}>"


_CHECKS: dict[str, Callable[[Any], object]] = {
    "deadline": validation.deadline_ms,
    "lease": lambda value: validation.duration_ms("lease", value, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
    "max_attempts": lambda value: validation.integer("max_attempts", value, 1, limits.MAX_ATTEMPTS_MAX),
    "priority": lambda value: validation.integer("priority", value, 0, limits.PRIORITY_MAX),
    "id": validation.message_id,
    "timeout": lambda value: validation.duration_ms("timeout", value, 1, limits.RETRY_MS),
    "metadata": message_content.metadata,
}


def _check_options(options: Mapping[str, Any], allowed: Collection[str]) -> None:
    validation.reject_unknown("a task", options, allowed)
    for name, value in options.items():
        if value is not None:
            _CHECKS[name](value)


def _check_urgency(options: Options) -> None:
    if options.get("priority") is not None:
        priority_deadline_ms(options["priority"], options.get("deadline"), 0)


@dataclass(frozen=True, slots=True)
class Call:
    """A task and its arguments, as created by `Task.call`."""

    task: Task[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
