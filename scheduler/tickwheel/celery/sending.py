"""A Celery app whose calls go to Celery or to Tickwheel, as the route of their task says, when they are made.

It stands where Celery hands a finished message to its broker: so `delay`, `apply_async`, `send_task`, beat and retries
all go through it, and `AsyncResult` is what it always was. What Tickwheel cannot do stays with Celery, and is logged.
"""

import json
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from celery import signals
from kombu.common import Broadcast
from kombu.utils.imports import symbol_by_name
from kombu.utils.json import dumps

from tickwheel.celery import running
from tickwheel.celery.call import CeleryCall
from tickwheel.errors import InvalidArgument, PayloadTooLarge
from tickwheel.seldom import Seldom
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.routes import TICKWHEEL, Routes

_log = logging.getLogger("tickwheel.celery")
_Send = Callable[..., Any]


def migrate(celery: Any, app: TaskApp, *, queues: Mapping[str, str] | None = None) -> None:
    """Send the calls of a Celery app's tasks where `TaskApp.route` says, and have the app run those that come to it.

    Call it where the Celery app is made, in producers and workers alike. Nothing is connected or imported by it.
    ``queues`` names Tickwheel's queue for a queue of Celery's; by default they have the same name.
    """
    names = dict(queues or {})
    base: Any = symbol_by_name(celery.amqp_cls)

    class RoutedAMQP(base):  # type: ignore[misc]  # whatever the app has
        @cached_property
        def send_task_message(self) -> "Sender":
            return Sender(celery, app, names, super().send_task_message)

    celery.amqp_cls = RoutedAMQP
    if "amqp" in vars(celery):
        celery.amqp.__class__ = RoutedAMQP
        vars(celery.amqp).pop("send_task_message", None)
    app.on_load(lambda: running.declare(celery, app, names))


class Sender:
    """Called in place of Celery's own ``send_task_message``, with what it is called with."""

    def __init__(self, celery: Any, app: TaskApp, queues: Mapping[str, str], send: _Send) -> None:
        self._celery = celery
        self._app = app
        self._queues = queues
        self._send = send
        self._routes = Routes(lambda name: app.tickwheel.setting(name))
        self._seldom = Seldom()

    def __call__(self, producer: Any, name: str, message: Any, **options: Any) -> Any:
        """Raises what `Queue.enqueue` raises: nothing is sent to Celery then."""
        if running.is_retry(message):
            return None
        id_ = message.headers.get("id")
        if id_ is None or self._routes.of(name).target(id_) != TICKWHEEL:
            return self._send(producer, name, message, **options)
        try:
            queue = self._queue_of(options)
            self._enqueue(name, queue, message, options)
        except _Stays as reason:
            text = f"a call of {name} stays with Celery: {reason}"
            _log.log(self._seldom.level(text), "%s", text)
            return self._send(producer, name, message, **options)
        return None

    def _queue_of(self, options: Mapping[str, Any]) -> str:
        """Tickwheel's queue for the one that Celery's router chose."""
        chosen = options.get("queue")
        if chosen is None and (options.get("exchange") or options.get("routing_key")):
            raise _Stays("it names an exchange or a routing key instead of a queue")
        if isinstance(chosen, Broadcast):
            raise _Stays("its queue is a broadcast")
        if chosen is None:
            chosen = self._celery.amqp.default_queue
        try:
            return running.queue_name(getattr(chosen, "name", chosen), self._queues)
        except InvalidArgument as error:
            raise _Stays(str(error)) from error

    def _enqueue(self, name: str, queue: str, message: Any, options: Mapping[str, Any]) -> None:
        headers = {**message.headers, **(options.get("headers") or {})}
        properties = {**message.properties, "priority": options.get("priority")}
        about = {"exchange": "", "routing_key": queue, "headers": headers, "properties": properties}
        signals.before_task_publish.send(sender=name, body=message.body, declare=[], retry_policy={}, **about)
        call = self._call(name, message.body, headers, properties)
        task = self._celery._tasks.get(name)
        running.declare_queue(self._app, queue)
        try:
            new = call.message(
                self._celery.timezone, running.most_attempts(task, call.retries), lowest_first=self._lowest_first
            )
            self._app.declared(queue).enqueue_many([new])
        except PayloadTooLarge as error:
            # Said before anything is sent.
            raise _Stays(str(error)) from error
        signals.after_task_publish.send(sender=name, body=message.body, exchange="", routing_key=queue, headers=headers)

    def _call(
        self, name: str, body: tuple[Any, ...], headers: Mapping[str, Any], properties: Mapping[str, Any]
    ) -> CeleryCall:
        """Raises _Stays for what Celery alone can do."""
        try:
            plain = json.loads(dumps(headers))
            call = CeleryCall(plain, dumps(body), properties.get("reply_to") or "", properties["priority"])
        except (TypeError, ValueError, RecursionError) as error:
            raise _Stays(f"its arguments cannot be written as JSON: {error}") from error
        if obstacle := call.obstacle(body[2]):
            raise _Stays(obstacle)
        task, limit = self._celery._tasks.get(name), headers.get("timelimit")
        if limit and any(limit) and (task is None or list(limit) != [task.time_limit, task.soft_time_limit]):
            raise _Stays("it has a time limit of its own; give it to the task")
        try:
            call.message(self._celery.timezone)
        except InvalidArgument as error:
            raise _Stays(str(error)) from error
        return call

    @cached_property
    def _lowest_first(self) -> bool:
        return str(self._celery.conf.broker_write_url or "").startswith(("redis", "sentinel"))


class _Stays(Exception):
    """Why a call is sent to Celery although its route says otherwise."""
