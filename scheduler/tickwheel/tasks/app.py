"""`TaskApp`: the tasks of a program, their queues, and the client that sends them."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack, overload

from tickwheel.client import Queue, Tickwheel
from tickwheel.errors import InvalidArgument, QueueNotFound
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, NewMessage
from tickwheel.tasks import celery_routes
from tickwheel.tasks.app_clients import AppClients
from tickwheel.tasks.celery_routes import Route
from tickwheel.tasks.middleware import Middleware
from tickwheel.tasks.retry import Retry
from tickwheel.tasks.schedule import OCCURRENCE_QUEUE_CONFIG, Policies, Schedule
from tickwheel.tasks.schedule_times import Cron, Every, FireTimes
from tickwheel.tasks.signature import ENCODINGS
from tickwheel.tasks.task import TIME_LIMIT, Call, Defaults, Task
from tickwheel.tasks.task_queue import TaskQueue

P = ParamSpec("P")
R = TypeVar("R")


class TaskApp:
    """Tasks, the queues they go to, and where those are.

    ``url``, ``namespace``, ``data_dir`` and further arguments are those of `Tickwheel`; what is not said here is said
    by TICKWHEEL_URL, TICKWHEEL_NAMESPACE and TICKWHEEL_DATA_DIR, and without these it is an embedded server.
    ``encoding`` of arguments is ``json`` or ``msgpack``; workers read both. ``schedule_queue`` is where times of its
    schedules wait: each app of a namespace has one of its own. The client is opened by the first call that needs it.
    Safe to share between threads, and with processes that are forked, which open a client of their own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        data_dir: str | Path | None = None,
        encoding: str = "json",
        schedule_queue: str = "schedules",
        **client: Any,
    ) -> None:
        if encoding not in ENCODINGS:
            raise InvalidArgument(f"encoding must be one of {', '.join(ENCODINGS)}, not {validation.preview(encoding)}")
        self.encoding = encoding
        self.tasks: dict[str, Task[..., Any]] = {}
        self.queues: dict[str, TaskQueue] = {}
        self.schedules: dict[str, Schedule] = {}
        self.schedule_queue = validation.plain_name("schedule_queue", schedule_queue)
        self.middleware: list[Middleware] = []
        self._on_load: list[Callable[[], None]] = []
        if url is None and data_dir is None:
            url, data_dir = os.environ.get("TICKWHEEL_URL") or None, os.environ.get("TICKWHEEL_DATA_DIR") or None
        client_options: dict[str, Any] = {
            "url": url,
            "namespace": namespace or os.environ.get("TICKWHEEL_NAMESPACE") or "tw",
            "data_dir": data_dir,
            **client,
        }
        self._clients = AppClients(client_options, self._config)

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        time_limit: timedelta = TIME_LIMIT,
        retry: Retry | None = None,
        metadata: Iterable[str] = (),
        **defaults: Unpack[Defaults],
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        time_limit: timedelta = TIME_LIMIT,
        retry: Retry | None = None,
        metadata: Iterable[str] = (),
        **defaults: Unpack[Defaults],
    ) -> Any:
        """Make a task of a function, sync or async; as a decorator, with or without arguments.

        ``name`` is what its messages say, by default ``module.function``: a function whose arguments change so that
        waiting messages no longer fit gets a new one. ``time_limit``: after so long it is stopped, and has failed
        (default 30 min). ``retry`` is its back-off, by default the queue's. ``metadata`` names arguments that go along
        as metadata, for filters and for the key of an exclusive queue. ``max_attempts``, ``lease``, ``deadline`` and so
        on are what its messages are enqueued with, by default the queue's. Raises InvalidArgument.
        """

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            task = Task(
                self,
                function,
                _name_of(function) if name is None else name,
                queue,
                time_limit=time_limit,
                retry=retry,
                metadata=metadata,
                defaults=defaults,
            )
            if task.name in self.tasks:
                raise InvalidArgument(f"there are two tasks {task.name!r} in one app: give one of them another name")
            self.tasks[task.name] = task
            if task.queue not in self.queues:
                self.queue(task.queue)
            return task

        return decorate if function is None else decorate(function)

    def queue(
        self,
        name: str,
        *,
        weight: int = TaskQueue.weight,
        batch: int = TaskQueue.batch,
        long_poll: timedelta = TaskQueue.long_poll,
        iterations: int = TaskQueue.iterations,
        **config: Any,
    ) -> TaskQueue:
        """Say how workers take from a queue, and the configuration that it has; see `TaskQueue` and `create_queue`.

        The queue is made, or changed where it says otherwise, by the first that uses it. Raises InvalidArgument.
        """
        if name == self.schedule_queue:
            raise InvalidArgument(
                f"queue {name!r} is for the app's schedules: give this one, or TaskApp(schedule_queue=…), another name"
            )
        task_queue = TaskQueue(name, weight, batch, long_poll, iterations, config)
        self.queues[name] = task_queue
        self._clients.forget_queue(name)
        return task_queue

    def cron(
        self, expression: str, call: Call | Task[..., Any], *, timezone: str = "UTC", **policies: Unpack[Policies]
    ) -> Schedule:
        """Have a task called whenever a cron expression says so: ``app.cron("0 9 * * MON-FRI", send.call(user=7))``.

        `Cron` says what happens when the clocks of the time zone change. ``name`` tells it from the other schedules of
        the app; by default it is made of the task and the times. With ``overlap=False`` it is skipped while its
        message of before is not finished, waits or is to be tried again. ``missed`` says what becomes of the times that
        nobody could see to for longer than ``grace`` (1 min): only the ``last`` of them fires, or ``all``, or they are
        left out (``skip``). Times before a schedule's first worker are not missed. Raises InvalidArgument.
        """
        return self._schedule(Cron(expression, timezone), call, policies)

    def every(self, interval: timedelta, call: Call | Task[..., Any], **policies: Unpack[Policies]) -> Schedule:
        """Have a task called at each whole multiple of an interval since 1970 in UTC; see `cron` for the rest."""
        return self._schedule(Every(interval), call, policies)

    def _schedule(self, times: FireTimes, call: Call | Task[..., Any], policies: Policies) -> Schedule:
        call = call.call() if isinstance(call, Task) else call
        if call.task.app is not self:
            raise InvalidArgument(f"task {call.task.name!r} is of another app: declare its schedule there")
        policies.setdefault("name", f"{call.task.name} {times.text}")
        schedule = Schedule(call=call, times=times, **policies)
        if schedule.name in self.schedules:
            raise InvalidArgument(
                f"there are two schedules {schedule.name!r} in one app: give one of them another name"
            )
        self.schedules[schedule.name] = schedule
        return schedule

    def on_load(self, declare: Callable[[], None]) -> None:
        """Have it called when a worker has imported the app, for what is not declared by then."""
        self._on_load.append(declare)

    def load(self) -> None:
        """Declare all that it has; workers do it before anything else. Again is fine."""
        while self._on_load:
            self._on_load.pop(0)()

    def route(self, task: str, *, to: str, share: float = 1.0) -> None:
        """Say where the calls of a Celery task go: ``share`` of them to ``celery`` or ``tickwheel``, the others to the
        other. Producers follow within about a second. Raises InvalidArgument.
        """
        celery_routes.write(self.tickwheel, task, Route(to, share))

    def routes(self) -> dict[str, Route]:
        """The routes of all tasks that have one; all others are Celery's."""
        return celery_routes.list_routes(self.tickwheel)

    def add_middleware(self, middleware: Middleware) -> None:
        """Have it called around all tasks, inside of those that were added before."""
        self.middleware.append(middleware)

    @property
    def tickwheel(self) -> Tickwheel:
        """The client, which is opened if need be."""
        return self._clients.client()

    @property
    def where(self) -> dict[str, Any]:
        """The arguments that its client is opened with."""
        return dict(self._clients.options)

    def move(self, **where: Any) -> None:
        """Have it work elsewhere: arguments for its client, instead of those that it was made with.

        Clients of event loops are dropped, as another loop cannot close them: `aclose` in each loop does so before.
        """
        self._clients.move(where)

    def enqueue(self, task: Task[..., Any], message: NewMessage) -> EnqueueResult:
        """Send a message of a task; what `now`, `later` and `at` do."""
        try:
            return self.declared(task.queue).enqueue_many([message])[0]
        except QueueNotFound:
            # Not there, or no longer, though it was declared: somebody has deleted it, or its namespace.
            self._clients.forget_queue(task.queue)
            return self.declared(task.queue).enqueue_many([message])[0]

    async def aenqueue(self, task: Task[..., Any], message: NewMessage) -> EnqueueResult:
        """`enqueue`, for asyncio: with a client for each event loop."""
        try:
            return (await (await self._clients.ensure_queue_async(task.queue)).enqueue_many([message]))[0]
        except QueueNotFound:
            self._clients.forget_queue(task.queue)
            return (await (await self._clients.ensure_queue_async(task.queue)).enqueue_many([message]))[0]

    def declared(self, name: str) -> Queue:
        """A queue of the app, made as it says where that has not been done yet."""
        return self._clients.ensure_queue(name)

    def close(self) -> None:
        """Let go of the client; the next call opens another."""
        self._clients.close()

    async def aclose(self) -> None:
        """Let go of the client of the running event loop, and of the other one."""
        await self._clients.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _config(self, name: str) -> Mapping[str, Any]:
        if name == self.schedule_queue:
            return OCCURRENCE_QUEUE_CONFIG
        return self.queues[name].config if name in self.queues else {}

    def __repr__(self) -> str:
        return f"<TaskApp of {len(self.tasks)} tasks>"


def _name_of(function: Callable[..., Any]) -> str:
    module = function.__module__
    if module == "__main__":
        # As its worker imports it, or none would know its messages.
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}.{function.__qualname__}"
