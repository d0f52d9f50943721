"""The names of the queues of a Celery app, in Celery and in Tickwheel."""

from collections.abc import Iterable, Mapping
from typing import Any

from tickwheel.errors import InvalidArgument
from tickwheel.model import validation

_BUILT_IN = "celery."


def queue_name(celery_name: str, queues: Mapping[str, str]) -> str:
    """Return the Tickwheel name for a Celery queue. Raises InvalidArgument if Tickwheel does not allow the name."""
    name = queues.get(celery_name, celery_name)
    try:
        return validation.plain_name("a queue's name", name)
    except InvalidArgument as error:
        raise InvalidArgument(f"{error}; set another name: migrate(…, queues={{{celery_name!r}: …}})") from error


def own_tasks(celery: Any) -> list[Any]:
    """Return the tasks of the app, without those of Celery itself, sorted by name."""
    return [task for name, task in sorted(celery.tasks.items()) if not name.startswith(_BUILT_IN)]


def queue_of_task(celery: Any, task: Any) -> str:
    """Return the Celery queue that the router of the app chooses for a call of the task without options."""
    own = {"queue": task.queue} if getattr(task, "queue", None) else {}
    routed = celery.amqp.router.route(own, task.name, (), {}, task)["queue"]
    return str(getattr(routed, "name", routed))


def names_of_queues(celery: Any, queues: Mapping[str, str]) -> list[str]:
    """Return the Tickwheel names of all queues that the app knows. Names that Tickwheel does not allow are left out."""
    names = [*celery.amqp.queues, *(queue_of_task(celery, task) for task in own_tasks(celery))]
    return list(dict.fromkeys(_allowed(names, queues)))


def _allowed(names: Iterable[str], queues: Mapping[str, str]) -> Iterable[str]:
    for name in names:
        try:
            yield queue_name(name, queues)
        except InvalidArgument:
            # Calls of this queue stay with Celery.
            continue
