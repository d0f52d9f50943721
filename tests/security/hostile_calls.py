"""The calls of a client against a hostile server: what each call does, and its answer in a comparable form."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from tickwheel import NewMessage, Tickwheel, TickwheelError

WAIT = timedelta(milliseconds=100)
HOUR = timedelta(hours=1)
# Fields of a queue's configuration that differ between queues.
_UNIQUE = {"number", "uid"}


class Place(NamedTuple):
    """What a call uses: a client, a queue with the Pending message ``m``, and the message that the client leased."""

    tickwheel: Any
    queue: Any
    leased: Any


OPERATIONS: dict[str, Callable[[Place], Any]] = {
    "create_queue": lambda place: place.tickwheel.create_queue(f"{place.queue.name}-new"),
    "delete_queue": lambda place: place.tickwheel.delete_queue(place.queue.name, purge=True),
    "queues": lambda place: [each.name for each in place.tickwheel.queues() if each.name == place.queue.name],
    "settings": lambda place: place.tickwheel.settings().get(f"{place.queue.name}-set"),
    "set_setting": lambda place: place.tickwheel.set_setting(place.queue.name, "b"),
    "enqueue": lambda place: place.queue.enqueue(b"x", id="new"),
    "enqueue_many": lambda place: place.queue.enqueue_many(
        [NewMessage(b"x", id="new"), NewMessage(b"y", id="late", delay=HOUR)]
    ),
    "dequeue": lambda place: place.queue.dequeue(limit=2),
    "dequeue with a filter": lambda place: place.queue.dequeue(where={"a": "b"}),
    "dequeue in exact order": lambda place: place.queue.dequeue(consistency="exact"),
    "dequeue with a wait": lambda place: place.queue.dequeue(wait=WAIT),
    "complete": lambda place: place.leased.complete("done"),
    "complete_many": lambda place: place.queue.complete_many([place.leased]),
    "fail": lambda place: place.leased.fail("broken", HOUR),
    "release": lambda place: place.leased.release(),
    "release_many": lambda place: place.queue.release_many([place.leased]),
    "extend": lambda place: place.leased.extend(HOUR),
    "extend_many": lambda place: place.queue.extend_many([place.leased], HOUR),
    "cancel": lambda place: place.queue.cancel("m"),
    "cancel_many": lambda place: place.queue.cancel_many(["m", "none"]),
    "reschedule": lambda place: place.queue.reschedule("m", delay=HOUR),
    "redrive": lambda place: place.queue.redrive("m"),
    "purge": lambda place: place.queue.purge(),
    "messages": lambda place: sorted(view.id for view in place.queue.messages()),
    "counts": lambda place: place.queue.counts(),
    "lateness": lambda place: place.queue.lateness(),
    "depth": lambda place: place.queue.depth({"a": "b"}),
    "forecast": lambda place: place.queue.forecast(1),
    "explain": lambda place: place.queue.explain("m"),
    "get": lambda place: place.queue.get("m"),
    "config": lambda place: place.queue.config(),
    "block": lambda place: place.queue.block(),
    "unblock": lambda place: place.queue.unblock(),
}


def prepare(healthy: Tickwheel, client: Any, name: str) -> Place:
    """Create the queue, and lease a message with the client, while the server answers well."""
    source = healthy.create_queue(name, forecast=True)
    healthy.set_setting(f"{name}-set", "value")
    source.enqueue(b"leased", id="leased")
    queue = client.queue(name)
    [leased] = queue.dequeue()
    source.enqueue(b"x", id="m", metadata={"a": "b"})
    return Place(client, queue, leased)


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


def outcome(call: Callable[[], object], name: str) -> object:
    """Return the answer of a call about a queue, or its error, in a form that `comparable` describes."""
    try:
        return comparable(call(), name)
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
