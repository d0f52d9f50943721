"""Sends each call of a Celery app to Celery or to Tickwheel, by the route of its task at the time of the call.

`Sender` replaces the function by which Celery passes a complete message to its broker. So `delay`, `apply_async`,
`send_task`, beat and retries all use `Sender`, and `AsyncResult` works as before. Calls that Tickwheel cannot run stay
with Celery, and the reasons are logged.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import cached_property, partial
from string import digits
from time import monotonic
from typing import Any, Final

from celery import signals
from kombu.common import Broadcast
from kombu.utils.imports import symbol_by_name
from kombu.utils.json import dumps

from tickwheel.celery import carry_over, failure_record, task_adapter, trace_log
from tickwheel.celery.celery_message import CeleryMessage, call_of, decode_message
from tickwheel.celery.control import UNFINISHED, routed_control
from tickwheel.celery.queue_names import advise_mapping, is_named, queue_name
from tickwheel.errors import IdConflict, InvalidArgument, MessageNotFound, PayloadTooLarge
from tickwheel.model import validation
from tickwheel.model.message import NewMessage
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.celery_routes import TICKWHEEL, Routes

_log = logging.getLogger("tickwheel.celery")
_Send = Callable[..., Any]
_WITHOUT_DIGITS: Final = str.maketrans("", "", digits)


def migrate(
    celery: Any, app: TaskApp, *, queues: Mapping[str, str] | None = None, carries_over: Iterable[str] = ()
) -> None:
    """Send the calls of a Celery app by the routes of `TaskApp.route`, and declare its tasks in ``app``.

    Call this function in the module that creates the Celery app, so that producers and workers both run it. It opens no
    connection and imports no tasks. ``queues`` maps names of Celery queues to names of Tickwheel queues; by default the
    names are the same.

    A task with a setting that Tickwheel ignores, such as ``rate_limit``, stays with Celery whatever its route is. The
    tasks in ``carries_over`` go to Tickwheel nevertheless. A task whose name or queue Tickwheel does not allow stays
    with Celery, too. If a route sends calls of a task that stays to Tickwheel, and no worker of Celery answers, workers
    of Tickwheel do not start, and a program that makes such calls logs an error once. Raises InvalidArgument.
    """
    if not isinstance(app, TaskApp) or not hasattr(celery, "amqp_cls"):
        raise InvalidArgument(
            "migrate needs a Celery app and then a TaskApp, not"
            f" {validation.preview(celery)} and {validation.preview(app)}"
        )
    names, moved_anyway = dict(queues or {}), carry_over.check_names(carries_over)
    for celery_queue, name in names.items():
        validation.plain_name(f"the queue for Celery's queue {validation.preview(celery_queue)}", name)
    base: Any = symbol_by_name(celery.amqp_cls)

    class RoutedAMQP(base):  # type: ignore[misc]  # the class that the Celery app uses
        @cached_property
        def send_task_message(self) -> "Sender":
            return Sender(celery, app, names, moved_anyway, super().send_task_message)

    celery.amqp_cls = RoutedAMQP
    if "amqp" in vars(celery):
        celery.amqp.__class__ = RoutedAMQP
        vars(celery.amqp).pop("send_task_message", None)
    celery.control_cls = routed_control(symbol_by_name(celery.control_cls), app, names)
    if "control" in vars(celery):
        celery.control.__class__ = celery.control_cls
    app.on_load(trace_log.mark_logged_errors)
    app.on_load(lambda: task_adapter.declare(celery, app, names))
    app._declare_queue = partial(task_adapter.declare_named_queue, celery, app, names)
    app._why_task_stays = partial(carry_over.explain_stay, celery, app, names, moved_anyway)
    app._start_checks.append(partial(carry_over.check_tasks, celery, app, names, moved_anyway))


class Sender:
    """Replaces Celery's ``send_task_message``, with the same arguments."""

    def __init__(
        self, celery: Any, app: TaskApp, queues: Mapping[str, str], carries_over: Collection[str], send: _Send
    ) -> None:
        self._celery = celery
        self._app = app
        self._queues = queues
        self._carries_over = carries_over
        self._send = send
        # The tasks that stay with Celery, as far as the log names them.
        self._staying: set[str] = set()
        # Why workers of Tickwheel do not have a task, or None. The router of the app is asked once for each task.
        self._not_declared: dict[str, carry_over.Stay | None] = {}
        self._unanswered_calls = carry_over.UnansweredCalls(celery)
        self._routes = Routes(self._read_setting, lambda: app._clients.current)
        self._log_throttle = LogThrottle()
        # The queues that a declaration or a route names, and those about which the log has a warning already.
        self._known_queues: set[str] = set()

    def __call__(self, producer: Any, name: str, message: Any, **options: Any) -> Any:
        """Send the call to the system that its route names, or to Celery if Tickwheel cannot accept it.

        A retry of the running call is not sent. Raises all other errors of `Queue.enqueue`. After these, the call is
        not sent to Celery.
        """
        began = monotonic()
        if task_adapter.is_retry(message):
            return None
        id_ = message.headers.get("id")
        if id_ is None:
            text = (
                "all calls stay with Celery, whatever their routes are: they have no id in their headers; remove the"
                " setting task_protocol=1, because Tickwheel needs Celery's default, task_protocol=2"
            )
            _log.log(self._log_throttle.level(text), "%s", text)
            return self._send(producer, name, message, **options)
        # Celery also accepts a UUID as an id.
        if self._routes.get(name).target(str(id_)) != TICKWHEEL or self._stays(name):
            return self._send(producer, name, message, **options)
        try:
            self._enqueue(name, self._queue_of(options), message, options, began)
        except _NotRoutable as reason:
            text = f"a call of {name} stays with Celery: {reason}"
            # Reasons that differ only in numbers, such as the size of the call, are one reason.
            _log.log(self._log_throttle.level(text.translate(_WITHOUT_DIGITS)), "%s", text)
            return self._send(producer, name, message, **options)
        return None

    def _stays(self, name: str) -> bool:
        """Return whether a task stays with Celery. For its first call, log the reason, and check that Celery runs."""
        task = self._celery._tasks.get(name)
        if task is None:
            return False
        if name not in self._not_declared:
            self._not_declared[name] = carry_over.why_not_declared(task, self._app, self._queues)
        stay = carry_over.ignored_setting(task, self._carries_over) or self._not_declared[name]
        if stay is not None and name not in self._staying:
            self._staying.add(name)
            advice = carry_over.advice({name: stay})
            _log.warning("calls of task %s stay with Celery: %s; %s", name, stay.reason, advice)
            self._unanswered_calls.check(name, stay)
        return stay is not None

    def _queue_of(self, options: Mapping[str, Any]) -> str:
        """Return the Tickwheel queue for the queue that Celery's router chose."""
        chosen = options.get("queue")
        if _goes_to_exchange(options):
            raise _NotRoutable("it names an exchange or a routing key instead of a queue")
        if isinstance(chosen, Broadcast):
            raise _NotRoutable("its queue is a broadcast")
        if chosen is None:
            chosen = self._celery.amqp.default_queue
        name = getattr(chosen, "name", chosen)
        try:
            return queue_name(name, self._queues, self._app)
        except InvalidArgument as error:
            raise _NotRoutable(f"{error}; {advise_mapping(name)}") from error

    def _read_setting(self, name: str, is_known: bool) -> str | None:
        """Read a route. If an earlier route is known, leave half of the time of the call for sending it."""
        clients = self._app._clients.current
        return clients.client().setting(name, timeout=_half(clients.timeout) if is_known else None)

    def _enqueue(self, name: str, queue: str, message: Any, options: Mapping[str, Any], began: float) -> None:
        headers = {**message.headers, **(options.get("headers") or {})}
        properties = {**message.properties, "priority": options.get("priority")}
        body = self._body(name, message.body, headers, options)
        try:
            # Before the signal, which Celery sends again for a call that stays with Celery.
            new = self._to_new_message(name, body, headers, properties)
            self._explain_queue(name, queue)
            task_adapter.declare_queue(self._app, queue)
            if signals.before_task_publish.receivers:
                fields = {"exchange": "", "routing_key": queue, "headers": headers, "properties": properties}
                signals.before_task_publish.send(sender=name, body=message.body, declare=[], retry_policy={}, **fields)
                # Receivers of the signal may have added headers.
                new = self._to_new_message(name, body, headers, properties)
            self._enqueue_once(queue, new, began)
        except (InvalidArgument, PayloadTooLarge) as error:
            # These errors concern only this message. It was not enqueued, so Celery can still send it.
            raise _NotRoutable(str(error)) from error
        signals.after_task_publish.send(sender=name, body=message.body, exchange="", routing_key=queue, headers=headers)

    def _explain_queue(self, name: str, queue: str) -> None:
        """Log once for each queue that only its calls name, which workers take its messages."""
        if queue in self._known_queues:
            return
        self._known_queues.add(queue)
        if not is_named(self._celery, queue, name, self._queues, self._app):
            _log.warning(
                "calls of %s go to the queue %s, which no declaration and no route in this program names: start a"
                " worker with --queue %s, or declare the queue in the TaskApp, so that all workers take its messages",
                name,
                queue,
                queue,
            )

    def _to_new_message(
        self, name: str, body: str, headers: Mapping[str, Any], properties: Mapping[str, Any]
    ) -> NewMessage:
        call = CeleryMessage(_as_json(headers), body, properties.get("reply_to") or "", properties["priority"])
        max_attempts = failure_record.max_attempts(self._celery._tasks.get(name), call.retries)
        return call.to_new_message(max_attempts, lowest_first=self._lowest_first)

    def _enqueue_once(self, queue: str, new: NewMessage, began: float) -> None:
        """Enqueue a message, unless the queue has a message of the same call. The time since ``began``, in which the
        route was read, shortens the timeout, to half of it at most.

        Raises IdConflict, also if the service withholds the payload of an unfinished message, so that the calls cannot
        be compared.
        """
        clients = self._app._clients.current
        timeout = max(clients.timeout - timedelta(seconds=monotonic() - began), _half(clients.timeout))
        try:
            clients.enqueue(queue, new, timeout)
        except IdConflict:
            # A repeated call with a countdown has another ETA.
            try:
                present = clients.ensure_queue(queue).get(str(new.id))
            except MessageNotFound:
                # The retention of the finished message is over by now.
                clients.enqueue(queue, new)
                return
            if present.payload_withheld and present.state in UNFINISHED:
                raise
            if not present.payload:
                # The message of a finished call has no payload to compare.
                text = "call %s was not sent: queue %s had a call with this id, now %s"
                _log.info(text, new.id, queue, present.state)
            elif call_of(present.payload) != call_of(new.payload):
                raise

    def _body(self, name: str, body: tuple[Any, ...], headers: Mapping[str, Any], options: Mapping[str, Any]) -> str:
        """Return the body of the message as JSON. Raises _NotRoutable if only Celery can run the call."""
        if reason := CeleryMessage(headers, "").why_not_movable(body[2]):
            raise _NotRoutable(reason)
        if task_adapter.is_running(headers.get("id")):
            raise _NotRoutable("it replaces the running call, and their messages would have the same id")
        task, limit = self._celery._tasks.get(name), headers.get("timelimit")
        if limit and any(limit) and (task is None or list(limit) != [task.time_limit, task.soft_time_limit]):
            raise _NotRoutable("it has its own time limit; set the limit on the task")
        serializer = options.get("serializer") or self._celery.conf.task_serializer
        if serializer != "json":
            # Other serializers distinguish a tuple from a list, and the key 1 from the key "1". JSON does not.
            raise _NotRoutable(f"its serializer is {serializer}, and Tickwheel supports only json")
        return _encode("arguments", body)

    @cached_property
    def _lowest_first(self) -> bool:
        urls = self._celery.conf.broker_write_url
        # Several URLs are a list, or one text with semicolons.
        first = urls[0] if urls and isinstance(urls, list | tuple) else urls
        return str(first or "").startswith(("redis", "sentinel"))


def _half(timeout: timedelta) -> timedelta:
    return max(timeout / 2, timedelta(milliseconds=1))


def _encode(label: str, value: Any) -> str:
    try:
        return str(dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise _NotRoutable(f"its {label} cannot be encoded as JSON: {error}") from error


def _goes_to_exchange(options: Mapping[str, Any]) -> bool:
    """Return whether Celery would send a call to an exchange, and not to its queue (`celery.app.amqp`).

    Celery's router adds the default queue to a call without a queue. Routes can repeat the exchange and the routing key
    of their queue.
    """
    queue, exchange, key = (options.get(name) for name in ("queue", "exchange", "routing_key"))
    if queue is None:
        return bool(exchange or key)
    own = getattr(queue, "exchange", None)
    differs = (
        exchange not in (None, "", getattr(own, "name", None)),
        key not in (None, "", getattr(queue, "routing_key", None)),
    )
    if (options.get("exchange_type") or getattr(own, "type", "direct")) == "direct":
        # One without the other has no effect.
        return bool(exchange and key and any(differs))
    return any(differs)


def _as_json(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers as a worker of Celery receives them. Raises _NotRoutable."""
    text = _encode("headers", headers)
    try:
        decoded: dict[str, Any] = decode_message(text)
    except ValueError as error:
        raise _NotRoutable(f"its headers cannot be encoded as JSON: {error}") from error
    return decoded


class _NotRoutable(Exception):
    """Raised if Tickwheel cannot run a call although the call's route names Tickwheel. The text is the reason."""
