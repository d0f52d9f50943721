"""Every argument of every public method of `TaskApp`, `Task` and `TaskHandle`: its types, and a call that passes a
value.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

from tests.security.calls import DURATION, FLAG, LENGTH, MOMENT, NOTHING, NUMBER, PAIRS, TEXT
from tickwheel import NewMessage
from tickwheel.model.queue_config import SETTINGS
from tickwheel.tasks import Middleware, Retry, Task, TaskApp
from tickwheel.tasks.schedule import Policies
from tickwheel.tasks.task import Call, Defaults, Options

_fresh = itertools.count()
# The arguments of a client that an app passes on, without those that TaskApp names itself.
CLIENT: dict[str, tuple[type, ...]] = {
    "shards": (int, NOTHING),
    "durability": (str, NOTHING),
    "drive": (bool, NOTHING),
    "history": (str, NOTHING),
    "auto_create": (bool, NOTHING),
    "clock_guard": DURATION,
    "outbox_limit": (int, NOTHING),
    "outbox_full": (str, NOTHING),
    "existing": FLAG,
    "timeout": DURATION,
    "clock": TEXT,
}
WHERE: dict[str, tuple[type, ...]] = {
    "url": (str, NOTHING),
    "namespace": TEXT,
    "data_dir": (str, Path, NOTHING),
} | CLIENT
_CONFIG: dict[str, tuple[type, ...]] = {
    "exclusive_key": (str, NOTHING),
    "indexed": (list, tuple, set, frozenset, NOTHING),
    "forecast": (bool, NOTHING),
    "sink": (str, NOTHING),
    "max_attempts": (int, NOTHING),
    "payload_limit": (int, NOTHING),
} | dict.fromkeys(("lease", "backoff", "backoff_max", "retention", "errored_retention"), DURATION)
# The keyword arguments that the methods pass on, by method.
PASSED_ON: dict[str, set[str]] = {
    "__init__": set(CLIENT),
    "task": set(Defaults.__annotations__),
    "queue": set(SETTINGS),
    "cron": set(Policies.__annotations__),
    "every": set(Policies.__annotations__),
    "move": set(WHERE),
    "with_options": {*Defaults.__annotations__, *Options.__annotations__},
}
_OPTIONS: dict[str, tuple[type, ...]] = {
    "id": (str, NOTHING),
    "metadata": PAIRS,
    "deadline": (datetime, timedelta, NOTHING),
    "lease": DURATION,
    "max_attempts": (int, NOTHING),
    "priority": (int, NOTHING),
    "timeout": DURATION,
}
_POLICIES: dict[str, tuple[type, ...]] = {"name": TEXT, "overlap": FLAG, "missed": TEXT, "grace": LENGTH}


@dataclass
class AppTargets:
    """An app with a server, and the arguments with which further apps are created.

    The app has the task ``send``, whose queue exists. Its call "sent" is due in an hour, and its call "done" has a
    result. The asyncio client of the app uses ``loop``.
    """

    url: str
    namespace: str
    app: TaskApp
    loop: asyncio.Runner

    @property
    def send(self) -> Any:
        return self.app.tasks["send"]

    def fresh(self, **options: Any) -> TaskApp:
        return TaskApp(**{"url": None if "data_dir" in options else self.url, "namespace": self.namespace} | options)


class AppArgument(NamedTuple):
    """One argument of one call, like `calls.Argument`."""

    types: tuple[type, ...]
    call: Callable[[Any, Any], object]


def send(user: int = 1) -> None: ...


def _new(name: str, types: tuple[type, ...]) -> AppArgument:
    return AppArgument(types, lambda targets, value: targets.fresh(**{name: value}))


def _of(method: str, argument: str, types: tuple[type, ...], **others: Any) -> AppArgument:
    """Call the method on a new app, so that an accepted value has no effect on the next one."""

    def call(targets: Any, value: Any) -> object:
        return getattr(targets.fresh(), method)(**others | {argument: value})

    return AppArgument(types, call)


def _task(name: str, types: tuple[type, ...]) -> AppArgument:
    return AppArgument(types, lambda targets, value: targets.fresh().task(**{name: value})(send))


def _schedule(method: str, time: Any, name: str, types: tuple[type, ...]) -> AppArgument:
    def call(targets: Any, value: Any) -> object:
        app = targets.fresh()
        return getattr(app, method)(time, app.task(send), **{name: value})

    return AppArgument(types, call)


def _with_task(call: Callable[[TaskApp, Task[..., Any], Any], object], types: tuple[type, ...]) -> AppArgument:
    def with_task(targets: Any, value: Any) -> object:
        app = targets.fresh()
        return call(app, app.task(name=f"send{next(_fresh)}")(send), value)

    return AppArgument(types, with_task)


def _with_options(name: str, types: tuple[type, ...]) -> AppArgument:
    return _with_task(lambda app, task, value: cast(Any, task).with_options(**{name: value}), types)


def _send(call: Callable[[Any, Any], object], types: tuple[type, ...]) -> AppArgument:
    """Enqueue a call of the task ``send``."""
    return AppArgument(types, lambda targets, value: call(targets.send, value))


def _send_async(call: Callable[[Any, Any], Coroutine[Any, Any, object]], types: tuple[type, ...]) -> AppArgument:
    return AppArgument(types, lambda targets, value: targets.loop.run(call(targets.send, value)))


def _handle(id: str, method: str, argument: str, types: tuple[type, ...], **others: Any) -> dict[str, AppArgument]:
    """Return the argument of a method of a handle, and the same argument of the twin for asyncio."""

    def call(targets: Any, value: Any) -> object:
        return getattr(targets.send.handle(id), method)(**others | {argument: value})

    def call_async(targets: Any, value: Any) -> object:
        return targets.loop.run(getattr(targets.send.handle(id), f"a{method}")(**others | {argument: value}))

    return {
        f"handle.{method} {argument}": AppArgument(types, call),
        f"handle.a{method} {argument}": AppArgument(types, call_async),
    }


def _message(call: Callable[[Any, Any], NewMessage], types: tuple[type, ...]) -> AppArgument:
    return _send(lambda task, value: task.app.enqueue(task, call(task, value)), types)


HOUR = timedelta(hours=1)
TOMORROW = datetime.now(UTC) + timedelta(days=1)
CRON = "30 9 * * *"

APP_ARGUMENTS: dict[str, AppArgument] = {
    **{f"__init__ {name}": _new(name, types) for name, types in WHERE.items()},
    "__init__ namespace": _new("namespace", (str, NOTHING)),
    "__init__ encoding": _new("encoding", TEXT),
    "__init__ schedule_queue": _new("schedule_queue", TEXT),
    "__init__ no_such_option": _new("no_such_option", ()),
    "task function": AppArgument((Callable,), lambda targets, value: targets.fresh().task()(value)),  # type: ignore[arg-type]
    "task name": _task("name", (str, NOTHING)),
    "task queue": _task("queue", TEXT),
    "task time_limit": _task("time_limit", LENGTH),
    "task retry": _task("retry", (Retry, NOTHING)),
    "task metadata": _task("metadata", (Iterable,)),
    "task deadline": _task("deadline", (datetime, timedelta, NOTHING)),
    "task lease": _task("lease", DURATION),
    "task max_attempts": _task("max_attempts", (int, NOTHING)),
    "task priority": _task("priority", (int, NOTHING)),
    "task no_such_option": _task("no_such_option", ()),
    "queue name": _of("queue", "name", TEXT),
    "queue weight": _of("queue", "weight", NUMBER, name="q"),
    "queue batch": _of("queue", "batch", NUMBER, name="q"),
    "queue long_poll": _of("queue", "long_poll", LENGTH, name="q"),
    "queue iterations": _of("queue", "iterations", NUMBER, name="q"),
    **{f"queue {name}": _of("queue", name, types, name="q") for name, types in _CONFIG.items()},
    "queue no_such_setting": _of("queue", "no_such_setting", (), name="q"),
    "cron expression": _with_task(lambda app, task, value: app.cron(value, task), TEXT),
    "cron call": AppArgument((Call, Task), lambda targets, value: targets.fresh().cron(CRON, value)),
    "cron timezone": _with_task(lambda app, task, value: app.cron(CRON, task, timezone=value), TEXT),
    "every interval": _with_task(lambda app, task, value: app.every(value, task), LENGTH),
    "every call": AppArgument((Call, Task), lambda targets, value: targets.fresh().every(HOUR, value)),
    **{f"cron {name}": _schedule("cron", CRON, name, types) for name, types in _POLICIES.items()},
    **{f"every {name}": _schedule("every", HOUR, name, types) for name, types in _POLICIES.items()},
    "every no_such_policy": _schedule("every", HOUR, "no_such_policy", ()),
    "on_load declare": _of("on_load", "declare", (Callable,)),  # type: ignore[arg-type]
    "route task": AppArgument(TEXT, lambda targets, value: targets.app.route(value, to="celery")),
    "route to": AppArgument(TEXT, lambda targets, value: targets.app.route("shop.send", to=value)),
    "route share": AppArgument(
        (int, float), lambda targets, value: targets.app.route("shop.send", to="celery", share=value)
    ),
    "add_middleware middleware": _of("add_middleware", "middleware", (Middleware,)),
    **{f"move {name}": _of("move", name, types) for name, types in WHERE.items()},
    "move no_such_option": _of("move", "no_such_option", ()),
    "enqueue task": AppArgument(
        (), lambda targets, value: targets.app.enqueue(value, targets.app.tasks["send"].message((), {}))
    ),
    "enqueue message": AppArgument((), lambda targets, value: targets.app.enqueue(targets.app.tasks["send"], value)),
    "aenqueue task": AppArgument(
        (), lambda targets, value: asyncio.run(targets.app.aenqueue(value, targets.app.tasks["send"].message((), {})))
    ),
    "aenqueue message": AppArgument(
        (), lambda targets, value: asyncio.run(targets.app.aenqueue(targets.app.tasks["send"], value))
    ),
    "enqueue timeout": AppArgument(
        DURATION,
        lambda targets, value: targets.app.enqueue(
            targets.app.tasks["send"], targets.app.tasks["send"].message((), {}), timeout=value
        ),
    ),
    "aenqueue timeout": AppArgument(
        DURATION,
        lambda targets, value: targets.loop.run(
            targets.app.aenqueue(targets.send, targets.send.message((), {}), timeout=value)
        ),
    ),
    "declared name": AppArgument(TEXT, lambda targets, value: targets.app.declared(value)),
    **{f"with_options {name}": _with_options(name, types) for name, types in _OPTIONS.items()},
    "with_options no_such_option": _with_options("no_such_option", ()),
    "handle id": _with_task(lambda app, task, value: task.handle(value), TEXT),
    "handle exclusive_value": _with_task(lambda app, task, value: task.handle("m", value), (str, NOTHING)),
    **_handle("sent", "cancel", "release", FLAG),
    **_handle("sent", "cancel", "timeout", DURATION),
    **_handle("sent", "reschedule", "delay", LENGTH),
    **_handle("sent", "reschedule", "due", (datetime,)),
    **_handle("sent", "reschedule", "deadline", (datetime, timedelta)),
    **_handle("sent", "reschedule", "timeout", DURATION, delay=HOUR),
    **_handle("sent", "state", "timeout", DURATION),
    **_handle("done", "result", "wait", DURATION),
    **_handle("done", "result", "timeout", DURATION),
    "now args": _send(lambda task, value: task.now(value), NUMBER),
    "now kwargs": _send(lambda task, value: task.now(user=value), NUMBER),
    "later delay": _send(lambda task, value: task.later(value), LENGTH),
    "later args": _send(lambda task, value: task.later(HOUR, value), NUMBER),
    "later kwargs": _send(lambda task, value: task.later(HOUR, user=value), NUMBER),
    "at due": _send(lambda task, value: task.at(value), (datetime,)),
    "at args": _send(lambda task, value: task.at(TOMORROW, value), NUMBER),
    "at kwargs": _send(lambda task, value: task.at(TOMORROW, user=value), NUMBER),
    "anow args": _send_async(lambda task, value: task.anow(value), NUMBER),
    "anow kwargs": _send_async(lambda task, value: task.anow(user=value), NUMBER),
    "alater delay": _send_async(lambda task, value: task.alater(value), LENGTH),
    "alater args": _send_async(lambda task, value: task.alater(HOUR, value), NUMBER),
    "alater kwargs": _send_async(lambda task, value: task.alater(HOUR, user=value), NUMBER),
    "aat due": _send_async(lambda task, value: task.aat(value), (datetime,)),
    "aat args": _send_async(lambda task, value: task.aat(TOMORROW, value), NUMBER),
    "aat kwargs": _send_async(lambda task, value: task.aat(TOMORROW, user=value), NUMBER),
    "call args": _with_task(lambda app, task, value: app.cron(CRON, task.call(value)), NUMBER),
    "call kwargs": _with_task(lambda app, task, value: app.cron(CRON, task.call(user=value)), NUMBER),
    "message args": _message(lambda task, value: task.message(value, {}), (Iterable,)),
    "message kwargs": _message(lambda task, value: task.message((), value), (Mapping,)),
    "message delay": _message(lambda task, value: task.message((), {}, delay=value), DURATION),
    "message due": _message(lambda task, value: task.message((), {}, due=value), MOMENT),
    "Retry first": AppArgument(LENGTH, lambda _, value: Retry(first=value)),
    "Retry most": AppArgument(LENGTH, lambda _, value: Retry(most=value)),
    "Retry never": AppArgument((tuple,), lambda _, value: Retry(never=value)),
}
