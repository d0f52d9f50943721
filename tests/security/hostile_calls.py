"""The calls of a client against a hostile server: what each call does, and its answer in a comparable form."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tests.support.several_queues import Caller
from tests.support.tickets import Tickets
from tickwheel import NewMessage, Tickwheel, TickwheelError, Unavailable

T = TypeVar("T")

WAIT = timedelta(milliseconds=100)
HOUR = timedelta(hours=1)
# Fields of a queue's configuration that differ between queues.
_UNIQUE = {"number", "uid"}
# Time limit for a call on a well server, with all its attempts.
_WELL_S = 60.0
# A part of the name of each queue.
_numbers = itertools.count()


class Prepared(NamedTuple):
    """What a call uses: a client, a queue with the Pending message ``m``, and the message that the client leased."""

    tickwheel: Any
    queue: Any
    leased: Any


def wait_for_several_queues(prepared: Prepared) -> list[str]:
    """Wait for the messages of two queues that have none. Return the ids of the batch."""
    caller = Caller(prepared.tickwheel, [Tickets(f"{prepared.queue.name}-{n}") for n in range(2)])
    # The first call does not wait.
    return [*caller.take()[1], *caller.take(WAIT.total_seconds())[1]]


OPERATIONS: dict[str, Callable[[Prepared], Any]] = {
    "create_queue": lambda prepared: prepared.tickwheel.create_queue(f"{prepared.queue.name}-new"),
    "delete_queue": lambda prepared: prepared.tickwheel.delete_queue(prepared.queue.name, purge=True),
    "queues": lambda prepared: [each.name for each in prepared.tickwheel.queues() if each.name == prepared.queue.name],
    "settings": lambda prepared: prepared.tickwheel.settings().get(f"{prepared.queue.name}-set"),
    "set_setting": lambda prepared: prepared.tickwheel.set_setting(prepared.queue.name, "b"),
    "enqueue": lambda prepared: prepared.queue.enqueue(b"x", id="new"),
    "enqueue_many": lambda prepared: prepared.queue.enqueue_many(
        [NewMessage(b"x", id="new"), NewMessage(b"y", id="late", delay=HOUR)]
    ),
    "dequeue": lambda prepared: prepared.queue.dequeue(limit=2),
    "dequeue with a filter": lambda prepared: prepared.queue.dequeue(where={"a": "b"}),
    "dequeue in exact order": lambda prepared: prepared.queue.dequeue(consistency="exact"),
    "dequeue with a wait": lambda prepared: prepared.queue.dequeue(wait=WAIT),
    "complete": lambda prepared: prepared.leased.complete("done"),
    "complete_many": lambda prepared: prepared.queue.complete_many([prepared.leased]),
    "fail": lambda prepared: prepared.leased.fail("broken", HOUR),
    "release": lambda prepared: prepared.leased.release(),
    "release_many": lambda prepared: prepared.queue.release_many([prepared.leased]),
    "extend": lambda prepared: prepared.leased.extend(HOUR),
    "extend_many": lambda prepared: prepared.queue.extend_many([prepared.leased], HOUR),
    "cancel": lambda prepared: prepared.queue.cancel("m"),
    "cancel_many": lambda prepared: prepared.queue.cancel_many(["m", "none"]),
    "reschedule": lambda prepared: prepared.queue.reschedule("m", delay=HOUR),
    "redrive": lambda prepared: prepared.queue.redrive("m"),
    "purge": lambda prepared: prepared.queue.purge(),
    "messages": lambda prepared: sorted(view.id for view in prepared.queue.messages()),
    "counts": lambda prepared: prepared.queue.counts(),
    "lateness": lambda prepared: prepared.queue.lateness(),
    "depth": lambda prepared: prepared.queue.depth({"a": "b"}),
    "forecast": lambda prepared: prepared.queue.forecast(1),
    "explain": lambda prepared: prepared.queue.explain("m"),
    "get": lambda prepared: prepared.queue.get("m"),
    "get with a wait": lambda prepared: prepared.queue.get("m", wait=WAIT),
    "wait for several queues": lambda prepared: wait_for_several_queues(prepared),
    "config": lambda prepared: prepared.queue.config(),
    "block": lambda prepared: prepared.queue.block(),
    "unblock": lambda prepared: prepared.queue.unblock(),
}


def undisturbed(call: Callable[[], T]) -> T:
    """Return the answer of a call on a well server.

    The clients have a short timeout, in which even a well server may not answer if the machine is busy. The call is
    then made again. A first attempt may have taken effect, so the call must begin with a new queue.
    """
    deadline = time.monotonic() + _WELL_S
    while True:
        try:
            return call()
        except Unavailable:
            if time.monotonic() > deadline:
                raise


def prepare(healthy: Tickwheel, client: Any, name: str) -> Prepared:
    """Prepare a call on a new queue, whose name begins with ``name``, while the server answers well."""
    return undisturbed(lambda: _prepare(healthy, client, f"{name}-{next(_numbers)}"))


def _prepare(healthy: Tickwheel, client: Any, name: str) -> Prepared:
    """Create the queue, and lease a message with the client, while the server answers well."""
    source = healthy.create_queue(name, forecast=True)
    healthy.set_setting(f"{name}-set", "value")
    source.enqueue(b"leased", id="leased")
    queue = client.queue(name)
    [leased] = queue.dequeue()
    source.enqueue(b"x", id="m", metadata={"a": "b"})
    return Prepared(client, queue, leased)


def state_of(healthy: Tickwheel, name: str) -> object:
    """Return what the calls change, read from the server itself."""
    reads: dict[str, Callable[[], object]] = {
        "setting": lambda: healthy.setting(name),
        "other queue": lambda: healthy.queue(f"{name}-new").config().enqueue_blocked,
        "blocked": lambda: healthy.queue(name).config().enqueue_blocked,
    }
    for id in ("m", "leased", "new", "late"):
        reads[id] = partial(healthy.queue(name).get, id)
    return {part: outcome(read, name) for part, read in reads.items()}


def truth(healthy: Tickwheel, client: Any, operation: str) -> tuple[object, object]:
    """Return what an operation answers on a well server, and the state that the operation leaves."""

    def call() -> tuple[object, object]:
        prepared = _prepare(healthy, client, f"truth-{next(_numbers)}")
        answer = outcome(partial(OPERATIONS[operation], prepared), prepared.queue.name, Unavailable)
        return answer, state_of(healthy, prepared.queue.name)

    return undisturbed(call)


def outcome(call: Callable[[], object], name: str, raised: type[Exception] | tuple[()] = ()) -> object:
    """Return the answer of a call about a queue, or its error, in a form that `comparable` describes.

    Errors of the type ``raised`` are raised instead.
    """
    try:
        return comparable(call(), name)
    except raised:
        raise
    except TickwheelError as error:
        return comparable(repr(error), name)


def comparable(value: Any, name: str) -> object:
    """Return a value that is equal for equal answers about two queues: without their names, and with hours as times."""
    if isinstance(value, datetime):
        return f"in {round((value - datetime.now(UTC)) / HOUR)} h"
    if isinstance(value, timedelta | str):
        return str(value).replace(name, "QUEUE")
    if dataclasses.is_dataclass(value):
        parts = [field.name for field in dataclasses.fields(value) if field.name not in _UNIQUE]
        return [comparable(getattr(value, part), name) for part in parts]
    if isinstance(value, Mapping):
        return {key: comparable(each, name) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(each, name) for each in value]
    if hasattr(value, "lease_until"):
        return [comparable(getattr(value, part), name) for part in ("id", "payload", "attempt", "lease_until")]
    return comparable(value.name, name) if hasattr(value, "name") else value
