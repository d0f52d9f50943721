"""`TaskApp`: the tasks of a program, their queues, and the client that sends them."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack, overload

from tickwheel.client import Queue, Tickwheel
from tickwheel.client.settings import ClientOptions, WhereOptions
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, LeasedMessage, NewMessage
from tickwheel.model.queue_config import QueueSettings
from tickwheel.model.validation import Duration
from tickwheel.tasks import celery_routes
from tickwheel.tasks.app_clients import AppClients
from tickwheel.tasks.celery_routes import Route
from tickwheel.tasks.middleware import Middleware
from tickwheel.tasks.retry import Retry
from tickwheel.tasks.schedule import OCCURRENCE_QUEUE_CONFIG, Policies, Schedule
from tickwheel.tasks.schedule_times import INTERVAL_MS, Cron, Every, FireTimes
from tickwheel.tasks.signature import ENCODINGS
from tickwheel.tasks.task import TIME_LIMIT, Call, Defaults, Task
from tickwheel.tasks.task_queue import TaskQueue

P = ParamSpec("P")
R = TypeVar("R")


class TaskApp:
    """The tasks, queues and schedules of a program, and the client that sends the calls.

    ``url``, ``namespace``, ``data_dir`` and further arguments are those of `Tickwheel`. If ``url`` and ``data_dir`` are
    both missing, the environment variables TICKWHEEL_URL and TICKWHEEL_DATA_DIR replace them; TICKWHEEL_NAMESPACE
    replaces a missing ``namespace``. Without a URL, the app uses an embedded server. ``encoding`` is the format of
    arguments, ``json`` or ``msgpack``; workers read both. ``schedule_queue`` is the queue that stores the next time of
    each schedule; each app of a namespace needs its own schedule queue.

    If the server does not answer, calls give up after 5 s, because they are often part of a web request. In a worker,
    they give up after 30 s. ``timeout`` replaces both.

    The first call that needs the client opens it. Threads may share an app, and so may forked processes, which open
    their own client. Raises InvalidArgument.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        data_dir: str | Path | None = None,
        encoding: str = "json",
        schedule_queue: str = "schedules",
        **client: Unpack[ClientOptions],
    ) -> None:
        self.encoding = validation.one_of("encoding", encoding, ENCODINGS)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.queues: dict[str, TaskQueue] = {}
        self.schedules: dict[str, Schedule] = {}
        self.schedule_queue = validation.plain_name("schedule_queue", schedule_queue)
        self.middleware: list[Middleware] = []
        self._on_load: list[Callable[[], None]] = []
        # The names of the tasks that `tickwheel.celery.migrate` has declared.
        self._celery_tasks: set[str] = set()
        # Whether a leased message may wait in a worker while other tasks run. None: every message may.
        self._may_wait: Callable[[LeasedMessage], bool] | None = None
        # Called for a message whose last attempt is refused: its task is unknown, or its arguments are wrong.
        self._on_refused: Callable[[LeasedMessage], None] = lambda message: None
        # What a worker process checks after it has loaded the app and before it takes messages. The argument of a check
        # is whether an earlier process of the same worker has passed it.
        self._start_checks: list[Callable[[bool], None]] = []
        # Declares a queue that only the command line of a worker names. None: such a queue is an error.
        self._declare_queue: Callable[[str], None] | None = None
        # Returns whether the worker process that runs the tasks is stopping.
        self._is_stopping: Callable[[], bool] = lambda: False
        # Returns why the calls of a task of Celery go to Celery whatever their route is; None if the route decides.
        self._why_task_stays: Callable[[str], str | None] = lambda task: None
        if url is None and data_dir is None:
            url, data_dir = os.environ.get("TICKWHEEL_URL") or None, os.environ.get("TICKWHEEL_DATA_DIR") or None
        client_options: dict[str, Any] = {
            "url": url,
            "namespace": os.environ.get("TICKWHEEL_NAMESPACE") or "tw" if namespace is None else namespace,
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
        time_limit: Duration = TIME_LIMIT,
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
        time_limit: Duration = TIME_LIMIT,
        retry: Retry | None = None,
        metadata: Iterable[str] = (),
        **defaults: Unpack[Defaults],
    ) -> Any:
        """Make a task of a function, sync or async. Use it as a decorator, with or without arguments.

        ``name`` identifies the task in messages; the default is ``module.function``. If the parameters of a function
        change so that waiting messages no longer fit, give the task a new name. ``time_limit`` (default 30 min) stops
        and fails a run that takes longer. ``retry`` is the back-off of the task, by default that of its queue.
        ``metadata`` names parameters whose values are also stored as metadata of the message, for filters and for the
        key of an exclusive queue. ``max_attempts``, ``lease``, and ``deadline`` or ``priority`` are stored with each
        message. ``max_attempts`` and ``lease`` are by default those of the queue; the default deadline is the due time.
        Durations are timedeltas or numbers of seconds. Raises InvalidArgument.
        """

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            validation.function("a task", function)
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
        long_poll: Duration = TaskQueue.long_poll,
        iterations: int = TaskQueue.iterations,
        **config: Unpack[QueueSettings],
    ) -> TaskQueue:
        """Declare a queue: its configuration (see `create_queue`), and how workers take messages from it (`TaskQueue`).

        The first use of the queue creates it, or updates it if its configuration differs. Raises InvalidArgument.
        """
        if name == self.schedule_queue:
            raise InvalidArgument(
                f"queue {name!r} is reserved for the app's schedules: give this queue another name, or set another"
                " queue for the schedules by TaskApp(schedule_queue=…)"
            )
        task_queue = TaskQueue(name, weight, batch, long_poll, iterations, config)
        self.queues[name] = task_queue
        self._clients.forget_queue(name)
        return task_queue

    def cron(
        self, expression: str, call: Call | Task[..., Any], *, timezone: str = "UTC", **policies: Unpack[Policies]
    ) -> Schedule:
        """Call a task at the times of a cron expression: ``app.cron("0 9 * * MON-FRI", send.call(user=7))``.

        `Cron` describes the effect of a clock change in the time zone. ``name`` identifies the schedule in the app; the
        default consists of the task and the times. With ``overlap=False`` a time is skipped while the message of the
        previous time waits, runs, or will be retried.

        A time is missed if no worker handles it within ``grace`` (default 1 min). ``missed`` decides which
        missed times fire: only the ``last`` of several in a row (the default), ``all``, or none (``skip``). Times
        before a worker first runs with the schedule do not count as missed. Raises InvalidArgument.
        """
        return self._schedule(Cron(expression, timezone), call, policies)

    def every(self, interval: Duration, call: Call | Task[..., Any], **policies: Unpack[Policies]) -> Schedule:
        """Call a task at each whole multiple of an interval since 1970 in UTC. See `cron` for the other arguments.

        The interval is a timedelta or a number of seconds.
        """
        return self._schedule(Every(validation.duration("interval", interval, *INTERVAL_MS)), call, policies)

    def _schedule(self, times: FireTimes, call: Call | Task[..., Any], policies: Policies) -> Schedule:
        call = call.call() if isinstance(call, Task) else call
        validation.instance("call", call, Call, "pass a task, or task.call(…) with its arguments")
        validation.reject_unknown("a schedule", policies, Policies.__annotations__)
        if call.task.app is not self:
            raise InvalidArgument(f"task {call.task.name!r} belongs to another app: declare its schedule in that app")
        policies.setdefault("name", f"{call.task.name} {times.text}")
        schedule = Schedule(call=call, times=times, **policies)
        if schedule.name in self.schedules:
            raise InvalidArgument(
                f"there are two schedules {schedule.name!r} in one app: give one of them another name"
            )
        self.schedules[schedule.name] = schedule
        return schedule

    def on_load(self, declare: Callable[[], None]) -> None:
        """Register a function that `load` calls, to declare tasks that the import of the module does not declare."""
        self._on_load.append(validation.function("declare", declare))

    def load(self) -> None:
        """Call the functions that `on_load` has registered. Each worker process calls `load` when it starts. A second
        call does nothing.
        """
        while self._on_load:
            self._on_load.pop(0)()

    def route(self, task: str, *, to: str, share: float = 1.0) -> None:
        """Route the calls of a Celery task: ``share`` of them to ``to``, all others to the other system.

        ``to`` is ``celery`` or ``tickwheel``, and ``share`` is a number from 0 to 1. Producers use the new route within
        about a second. Raises InvalidArgument.
        """
        name, route = celery_routes.task_name(task), Route(to, share)
        celery_routes.write(self.tickwheel, name, route)

    def routes(self) -> dict[str, Route]:
        """Return the routes by task name. The calls of all other tasks go to Celery.

        Raises DataLoss if a stored route is damaged.
        """
        return celery_routes.list_routes(self.tickwheel)

    def add_middleware(self, middleware: Middleware) -> None:
        """Add a middleware. Its hooks run around each task, inside the hooks of the middleware added before.

        Raises InvalidArgument.
        """
        self.middleware.append(
            validation.instance("middleware", middleware, Middleware, "pass an instance of a class derived from it")
        )

    @property
    def tickwheel(self) -> Tickwheel:
        """The client of the app. The first use opens it. Close the app, not this client."""
        return self._clients.current.client()

    @property
    def where(self) -> dict[str, Any]:
        """A copy of the arguments that the app passes to its client."""
        return dict(self._clients.current.options)

    def move(self, **where: Unpack[WhereOptions]) -> None:
        """Change arguments of the client, for example ``url``. Arguments that are not given stay.

        Closes the blocking client, which all threads share, as `close` does. The clients of event loops are dropped
        without being closed, because only their own loop can close them. To close them, call `aclose` in each loop
        first. In a worker process, the worker and its schedules stay where they are, and so does their client. Raises
        InvalidArgument.
        """
        self._clients.move(where)

    def enqueue(self, task: Task[..., Any], message: NewMessage, *, timeout: Duration | None = None) -> EnqueueResult:
        """Send a message of a task, for `Task.now`, `Task.later` and `Task.at`. Raises errors like `Queue.enqueue`.

        ``timeout`` replaces the timeout of the app's client for this call.
        """
        self._check_call(task, message)
        return self._clients.current.enqueue(task.queue, message, timeout)

    async def aenqueue(
        self, task: Task[..., Any], message: NewMessage, *, timeout: Duration | None = None
    ) -> EnqueueResult:
        """Send a message of a task like `enqueue`, with the client of the running event loop."""
        self._check_call(task, message)
        return await self._clients.current.enqueue_async(task.queue, message, timeout)

    def declared(self, name: str) -> Queue:
        """Return a queue of the app. Create or update the queue first, unless this client has done so already."""
        return self._clients.current.ensure_queue(validation.plain_name("a queue's name", name))

    def close(self) -> None:
        """Close the client. The next call opens another one.

        In a worker process, the tasks share the client with the worker. So `close` closes nothing there, and neither
        does the end of a ``with`` block: the worker closes the client at its end. A `TaskTester` does the same.
        """
        self._clients.close()

    async def aclose(self) -> None:
        """Close the client of the running event loop, and the blocking client.

        In a worker process, `aclose` closes only the client of an event loop that a task has started itself. See
        `close`.
        """
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

    def _check_call(self, task: object, message: object) -> None:
        validation.instance("task", task, Task, "pass a task of this app")
        validation.instance("message", message, NewMessage, "create the message by task.message(…)")

    def _config(self, name: str) -> Mapping[str, Any]:
        if name == self.schedule_queue:
            return OCCURRENCE_QUEUE_CONFIG
        return self.queues[name].config if name in self.queues else {}

    def __repr__(self) -> str:
        return f"<TaskApp of {len(self.tasks)} tasks>"


def _name_of(function: Callable[..., Any]) -> str:
    # Not every callable is a function: a `functools.partial`, for example, has no name.
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module is None or name is None:
        raise InvalidArgument(f"{validation.preview(function)} has no name: name the task by `name`")
    if module == "__main__":
        # Workers import the program by its module name. Under ``__main__`` they would not find the task.
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else module
    return f"{module}.{name}"
