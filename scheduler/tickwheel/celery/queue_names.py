"""The names of the queues of a Celery app, in Celery and in Tickwheel."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.tasks.app import TaskApp

_BUILT_IN = "celery."


def queue_name(celery_name: str, queues: Mapping[str, str], app: TaskApp) -> str:
    """Return the Tickwheel name for a Celery queue. Raises InvalidArgument if Tickwheel does not allow the name."""
    name = validation.plain_name("a queue's name", queues.get(celery_name, celery_name))
    if name == app.schedule_queue:
        raise InvalidArgument(f"queue {name!r} is reserved for the schedules of the TaskApp")
    return name


def allowed_names(celery_names: Iterable[str], queues: Mapping[str, str], app: TaskApp) -> Iterator[str]:
    """Yield the Tickwheel names for Celery queues. Names that Tickwheel does not allow are left out."""
    for name in celery_names:
        try:
            yield queue_name(name, queues, app)
        except InvalidArgument:
            # Calls of this queue stay with Celery.
            continue


def advise_mapping(celery_name: str) -> str:
    """Return how to route calls of a queue whose name Tickwheel does not allow."""
    return f"set another name: migrate(…, queues={{{celery_name!r}: …}})"


def own_tasks(celery: Any) -> list[Any]:
    """Return the tasks of the app, without those of Celery itself, sorted by name."""
    return [task for name, task in sorted(celery.tasks.items()) if not name.startswith(_BUILT_IN)]


def queue_of_task(celery: Any, task: Any) -> str:
    """Return the Celery queue that the router of the app chooses for a call of the task without options."""
    own = {"queue": task.queue} if getattr(task, "queue", None) else {}
    routed = celery.amqp.router.route(own, task.name, (), {}, task)["queue"]
    return str(getattr(routed, "name", routed))


def usual_queue_of_task(celery: Any, task: Any) -> str:
    """Return the Celery queue like `queue_of_task`: the default queue if a router needs the arguments of a call."""
    try:
        return queue_of_task(celery, task)
    except Exception:
        return str(getattr(task, "queue", None) or celery.conf.task_default_queue)


def is_named(celery: Any, queue: str, task_name: str, queues: Mapping[str, str], app: TaskApp) -> bool:
    """Return whether a declaration or a route, of ``task_name`` or of a task of this program, names the Tickwheel
    queue. Then each worker takes its messages by default.

    A call can add any queue to ``celery.amqp.queues``, so the answer depends on the configuration only. This function
    imports no tasks.
    """
    # An app can forbid the registration of its tasks at this time.
    with suppress(RuntimeError):
        celery.finalize(auto=True)
    tasks = dict(celery._tasks)
    names = [usual_queue_of_task(celery, task) for name, task in tasks.items() if not name.startswith(_BUILT_IN)]
    if task_name not in tasks:
        with suppress(Exception):
            routed = celery.amqp.router.route({}, task_name, (), {})["queue"]
            names.append(str(getattr(routed, "name", routed)))
    names += celery.amqp.Queues(celery.conf.task_queues)
    return queue in app.queues or queue in allowed_names(names, queues, app)


def names_of_queues(celery: Any, queues: Mapping[str, str], app: TaskApp) -> list[str]:
    """Return the Tickwheel names of all queues that the app knows. Names that Tickwheel does not allow are left out."""
    names = [*celery.amqp.queues, *(usual_queue_of_task(celery, task) for task in own_tasks(celery))]
    return list(dict.fromkeys(allowed_names(names, queues, app)))
