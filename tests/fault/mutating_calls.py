"""A table of all mutating calls, a namespace that is prepared for all of them, and their answers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from tickwheel import Message, NewMessage, Queue, Tickwheel, TickwheelError
from tickwheel.model.queue_config import QueueConfig

NOW, HOUR = timedelta(0), timedelta(hours=1)
# Enough ids that every shard has some.
MANY = [f"later{n}" for n in range(12)]


@dataclass
class PreparedNamespace:
    """A plain queue and an exclusive queue, with leases on the messages `held`, `other`, `last` and `cancelled`."""

    tickwheel: Tickwheel
    work: Queue
    films: Queue
    leases: dict[str, Message]


def prepare_namespace(tickwheel: Tickwheel) -> PreparedNamespace:
    """Running: `held`, `other`, and `last` in its last attempt. Pending: `next`. Delayed: MANY. Ended: the others."""
    work = tickwheel.create_queue("work")
    films = tickwheel.create_queue("films", exclusive_key="of")
    leases = {}
    for id, attempts in (("held", 5), ("other", 5), ("last", 1), ("errored", 1)):
        work.enqueue(b"", id=id, max_attempts=attempts)
        [leases[id]] = work.dequeue(worker="w")
    leases.pop("errored").fail("boom")
    films.enqueue(b"", id="cancelled", metadata={"of": "1"})
    [leases["cancelled"]] = films.dequeue()
    films.cancel("cancelled", "1")
    films.enqueue(b"", id="held", metadata={"of": "2"})
    [leases["film"]] = films.dequeue()
    work.enqueue(b"next", id="next", metadata={"region": "eu"})
    work.enqueue_many(NewMessage(b"", id=id, delay=HOUR) for id in MANY)
    return PreparedNamespace(tickwheel, work, films, leases)


@dataclass(frozen=True)
class Call:
    """A call, the script that it runs, and the number of transitions that it makes."""

    script: str
    run: Callable[[PreparedNamespace], Any]
    changes: int = 1


CALLS: dict[str, Call] = {
    "enqueue": Call("enqueue", lambda on: on.work.enqueue(b"new", id="new")),
    "enqueue an existing message": Call("enqueue", lambda on: on.work.enqueue(b"", id="later1", delay=HOUR), 0),
    "enqueue an existing id with other content": Call("enqueue", lambda on: on.work.enqueue(b"other", id="next"), 0),
    "enqueue many": Call(
        "enqueue", lambda on: on.work.enqueue_many(NewMessage(b"", id=f"new{n}", delay=n * HOUR) for n in range(12)), 12
    ),
    "dequeue": Call("dequeue", lambda on: on.work.dequeue(worker="v")),
    "dequeue with a filter": Call("dequeue", lambda on: on.work.dequeue(5, where={"region": "eu"}, lease=HOUR)),
    "dequeue with a request id": Call("dequeue", lambda on: on.work.dequeue(request_id="caller:1")),
    "complete": Call("complete", lambda on: on.leases["held"].complete()),
    "complete many": Call("complete", lambda on: on.work.complete_many([on.leases["held"], on.leases["other"]]), 2),
    "complete a cancelled message": Call("complete", lambda on: on.leases["cancelled"].complete(), 0),
    "fail": Call("fail", lambda on: on.leases["held"].fail("why", retry_in=NOW)),
    "fail with a delay": Call("fail", lambda on: on.leases["held"].fail(retry_in=HOUR)),
    "fail on the last attempt": Call("fail", lambda on: on.leases["last"].fail("why")),
    "fail a cancelled message": Call("fail", lambda on: on.leases["cancelled"].fail(), 0),
    "fail without a retry": Call("fail", lambda on: on.leases["held"].fail("why", final=True)),
    "complete with a result": Call("complete", lambda on: on.leases["held"].complete("done")),
    "release": Call("release", lambda on: on.leases["held"].release()),
    "release many": Call("release", lambda on: on.work.release_many([on.leases["held"], on.leases["other"]]), 2),
    "release a lost lease": Call("release", lambda on: on.leases["cancelled"].release(), 0),
    "extend": Call("extend", lambda on: on.leases["held"].extend(HOUR), 0),
    "extend many": Call("extend", lambda on: on.work.extend_many([on.leases["held"], on.leases["other"]], HOUR), 0),
    "reschedule": Call("reschedule", lambda on: on.work.reschedule("later1", delay=NOW, deadline=HOUR)),
    "reschedule a running message": Call("reschedule", lambda on: on.work.reschedule("held", delay=NOW), 0),
    "redrive": Call("redrive", lambda on: on.work.redrive("errored")),
    "cancel": Call("cancel", lambda on: on.work.cancel("later1")),
    "cancel a running message": Call("cancel", lambda on: on.films.cancel("held", "2")),
    "cancel and release": Call("cancel", lambda on: on.films.cancel("held", "2", release=True)),
    "cancel a cancelled message": Call("cancel", lambda on: on.films.cancel("cancelled", "1"), 0),
    "cancel and release a cancelled message": Call(
        "cancel", lambda on: on.films.cancel("cancelled", "1", release=True), 0
    ),
    "cancel many": Call("cancel", lambda on: on.work.cancel_many(MANY), 12),
    "cancel many, some twice": Call("cancel", lambda on: on.work.cancel_many([*MANY, "later1", "held"]), 13),
    "cancel many, one missing": Call("cancel", lambda on: on.work.cancel_many([*MANY, "no"]), 12),
    "purge": Call("purge", lambda on: on.work.purge(["invisible"]), 24),
    "purge errored messages": Call("purge", lambda on: on.work.purge(["errored"])),
    "create a queue": Call("create_queue", lambda on: on.tickwheel.create_queue("new", lease=HOUR), 0),
    "change a queue": Call("update_queue", lambda on: on.tickwheel.create_queue("work", update=True, lease=HOUR), 0),
    "change a setting": Call("set_setting", lambda on: on.tickwheel.set_setting("a", "b"), 0),
    "block a queue": Call("update_queue", lambda on: on.work.block(enqueue=False), 0),
}


def answer(call: Call, on: PreparedNamespace) -> Any:
    """Return the answer or the error as the caller gets it, without random parts such as the token of a lease."""
    try:
        return _comparable(call.run(on))
    except TickwheelError as error:
        return type(error), str(error)


def _comparable(value: Any) -> Any:
    match value:
        case list():
            return [_comparable(item) for item in value]
        case Message():
            message = (value.queue, value.id, value.payload, value.metadata, value.exclusive_value)
            return *message, value.attempt, value.version, value.due, value.deadline, value.lease_until
        case Queue():
            return _comparable(value.config())
        case QueueConfig():
            # The `uid` of a queue is random.
            return replace(value, uid=bytes(4))
        case _:
            return value
