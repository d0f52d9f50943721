"""Every argument of every public call: the types that it may have, and a call that passes a value for it."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tickwheel import Message, NewMessage, Queue, Tickwheel

HOUR = timedelta(hours=1)
_fresh = itertools.count()


class CallTargets:
    """A plain and an exclusive queue, with a message in each state that a call needs."""

    def __init__(self, tickwheel: Tickwheel) -> None:
        self.tickwheel = tickwheel
        self.plain = tickwheel.create_queue("plain", lease=HOUR, max_attempts=1_000, forecast=True)
        self.own = tickwheel.create_queue("own", exclusive_key="of", lease=HOUR)
        self.own.enqueue(b"", id="m", metadata={"of": "1"})
        self.plain.enqueue(b"", id="later", delay=HOUR)
        self.plain.enqueue(b"", id="ended")
        self.plain.cancel("ended")
        self.held: Message | None = None

    def prepare(self) -> None:
        """Ensure that one message is leased, and that one is pending."""
        if self.held is None:
            self.plain.enqueue(b"", id=f"held{next(_fresh)}", metadata={"held": "yes"})
            [self.held] = self.plain.dequeue(where={"held": "yes"})
        if not self.plain.counts()["pending"]:
            self.plain.enqueue(b"", id=f"ready{next(_fresh)}")
        self.own.unblock()
        self.tickwheel.create_queue("unused")

    def fail(self, error: Any, retry_in: Any, final: Any = False) -> None:
        assert self.held is not None
        self.held.fail(error, retry_in, final=final)
        self.held = None

    def complete(self, result: Any) -> None:
        assert self.held is not None
        self.held.complete(result)
        self.held = None

    def complete_many(self, results: Any) -> None:
        assert self.held is not None
        self.plain.complete_many([self.held], results)
        self.held = None

    def take(self, **arguments: Any) -> None:
        for message in self.plain.dequeue(**arguments):
            message.complete()


class Argument(NamedTuple):
    """One argument of one call. A value of another type than ``types`` must be rejected; a bool is not an int."""

    types: tuple[type, ...]
    call: Callable[[CallTargets, Any], object]


TEXT, FLAG, NUMBER, NOTHING = (str,), (bool,), (int,), type(None)
LENGTH = (timedelta, int, float)
DURATION, MOMENT = (*LENGTH, NOTHING), (datetime, NOTHING)
BYTES = (bytes, bytearray, memoryview, str)
ANY = (object, bool)
PAIRS = (Mapping, NOTHING)


def _of(queue: str, method: str, argument: str, types: tuple[type, ...], **others: Any) -> Argument:
    def call(targets: CallTargets, value: Any) -> object:
        target: Queue = getattr(targets, queue)
        return getattr(target, method)(**others | {argument: value})

    return Argument(types, call)


def _setting(name: str, types: tuple[type, ...]) -> Argument:
    return Argument(types, lambda targets, value: targets.tickwheel.create_queue(f"q{next(_fresh)}", **{name: value}))


def _taken(name: str, types: tuple[type, ...]) -> Argument:
    return Argument(types, lambda targets, value: targets.take(**{name: value}))


def _leased(targets: CallTargets, id: Any = None, token: Any = None) -> Message:
    assert targets.held is not None
    return targets.plain.leased(targets.held.id if id is None else id, targets.held.token if token is None else token)


def _extend(targets: CallTargets, duration: Any) -> datetime:
    assert targets.held is not None
    return targets.held.extend(duration)


def _extend_many(targets: CallTargets, duration: Any) -> None:
    assert targets.held is not None
    targets.plain.extend_many([targets.held], duration)


_WITH_VALUE = {"id": "m", "exclusive_value": "1"}

ARGUMENTS: dict[str, Argument] = {
    "queue name": Argument(TEXT, lambda targets, value: targets.tickwheel.queue(value)),
    "create_queue name": Argument(TEXT, lambda targets, value: targets.tickwheel.create_queue(value)),
    "create_queue update": Argument(
        FLAG, lambda targets, value: targets.tickwheel.create_queue("own", update=value, exclusive_key="of", lease=HOUR)
    ),
    "create_queue exclusive_key": _setting("exclusive_key", (str, NOTHING)),
    "create_queue indexed": _setting("indexed", (list, tuple, set, frozenset, NOTHING)),
    "create_queue lease": _setting("lease", DURATION),
    "create_queue backoff": _setting("backoff", DURATION),
    "create_queue backoff_max": _setting("backoff_max", DURATION),
    "create_queue retention": _setting("retention", DURATION),
    "create_queue errored_retention": _setting("errored_retention", DURATION),
    "create_queue max_attempts": _setting("max_attempts", (int, NOTHING)),
    "create_queue payload_limit": _setting("payload_limit", (int, NOTHING)),
    "create_queue forecast": _setting("forecast", (bool, NOTHING)),
    "create_queue sink": _setting("sink", (str, NOTHING)),
    "create_queue no_such_setting": _setting("no_such_setting", ()),
    "setting name": Argument(TEXT, lambda targets, value: targets.tickwheel.setting(value)),
    "set_setting name": Argument(TEXT, lambda targets, value: targets.tickwheel.set_setting(value, "on")),
    "set_setting value": Argument((str, NOTHING), lambda targets, value: targets.tickwheel.set_setting("mail", value)),
    "enqueue payload": _of("plain", "enqueue", "payload", BYTES),
    "enqueue json": _of("plain", "enqueue", "json", ANY),
    "enqueue id": _of("plain", "enqueue", "id", (str, NOTHING)),
    "enqueue delay": _of("plain", "enqueue", "delay", DURATION),
    "enqueue due": _of("plain", "enqueue", "due", MOMENT),
    "enqueue deadline": _of("plain", "enqueue", "deadline", (datetime, timedelta, NOTHING)),
    "enqueue priority": _of("plain", "enqueue", "priority", (int, NOTHING)),
    "enqueue metadata": _of("plain", "enqueue", "metadata", PAIRS),
    "enqueue metadata with an exclusive key": _of("own", "enqueue", "metadata", (Mapping,)),
    "enqueue exclusive value": Argument(TEXT, lambda targets, value: targets.own.enqueue(metadata={"of": value})),
    "enqueue lease": _of("plain", "enqueue", "lease", DURATION),
    "enqueue max_attempts": _of("plain", "enqueue", "max_attempts", (int, NOTHING)),
    "enqueue timeout": _of("plain", "enqueue", "timeout", DURATION),
    "counts timeout": _of("plain", "counts", "timeout", DURATION),
    "enqueue_many messages": _of("plain", "enqueue_many", "messages", (Iterable,)),
    "enqueue_many one message": Argument((), lambda targets, value: targets.plain.enqueue_many([NewMessage(), value])),
    "dequeue limit": _taken("limit", NUMBER),
    "dequeue where": _taken("where", PAIRS),
    "dequeue lease": _taken("lease", DURATION),
    "dequeue worker": _taken("worker", (str, NOTHING)),
    "dequeue request_id": _taken("request_id", (str, NOTHING)),
    "dequeue consistency": _taken("consistency", TEXT),
    "dequeue wait": _taken("wait", DURATION),
    "leased id": Argument((str, NOTHING), lambda targets, value: _leased(targets, id=value)),
    "leased token": Argument((bytes, NOTHING), lambda targets, value: _leased(targets, token=value)),
    "leased exclusive_value": _of("own", "leased", "exclusive_value", TEXT, id="m", token=bytes(16)),
    "complete_many messages": _of("plain", "complete_many", "messages", (Sequence,)),
    "complete_many one message": Argument((), lambda targets, value: targets.plain.complete_many([value])),
    "complete_many results": Argument((Sequence, NOTHING), lambda targets, value: targets.complete_many(value)),
    "complete_many one result": Argument((str, NOTHING), lambda targets, value: targets.complete_many([value])),
    "complete result": Argument((str, NOTHING), lambda targets, value: targets.complete(value)),
    "release_many messages": _of("plain", "release_many", "messages", (Sequence,)),
    "extend_many messages": _of("plain", "extend_many", "messages", (Sequence,), duration=timedelta(minutes=1)),
    "extend_many duration": Argument(LENGTH, _extend_many),
    "cancel id": _of("plain", "cancel", "id", TEXT),
    "cancel exclusive_value": _of("own", "cancel", "exclusive_value", TEXT, id="m"),
    "cancel exclusive_value of a plain queue": _of("plain", "cancel", "exclusive_value", (NOTHING,), id="later"),
    "cancel release": _of("own", "cancel", "release", FLAG, **_WITH_VALUE),
    "cancel_many exclusive_value": _of("own", "cancel_many", "exclusive_value", TEXT, ids=["m"]),
    "cancel_many release": _of("own", "cancel_many", "release", FLAG, ids=["m"], exclusive_value="1"),
    "cancel_many ids": _of("plain", "cancel_many", "ids", (Sequence,)),
    "reschedule id": _of("own", "reschedule", "id", TEXT, exclusive_value="1", delay=HOUR),
    "reschedule exclusive_value": _of("own", "reschedule", "exclusive_value", TEXT, id="m", delay=HOUR),
    "reschedule delay": _of("plain", "reschedule", "delay", LENGTH, id="later"),
    "reschedule due": _of("plain", "reschedule", "due", (datetime,), id="later"),
    "reschedule deadline": _of("plain", "reschedule", "deadline", (datetime, timedelta), id="later"),
    "redrive id": _of("own", "redrive", "id", TEXT, exclusive_value="1"),
    "redrive exclusive_value": _of("own", "redrive", "exclusive_value", TEXT, id="m"),
    "get id": _of("own", "get", "id", TEXT, exclusive_value="1"),
    "get exclusive_value": _of("own", "get", "exclusive_value", TEXT, id="m"),
    "get wait": _of("plain", "get", "wait", DURATION, id="ended"),
    "explain id": _of("own", "explain", "id", TEXT, exclusive_value="1"),
    "explain exclusive_value": _of("own", "explain", "exclusive_value", TEXT, id="m"),
    "messages state": Argument((str, NOTHING), lambda targets, value: list(targets.plain.messages(value))),
    "purge states": Argument((list, tuple, set, frozenset, NOTHING), lambda targets, value: targets.own.purge(value)),
    "delete_queue name": Argument(TEXT, lambda targets, value: targets.tickwheel.delete_queue(value)),
    "delete_queue purge": Argument(FLAG, lambda targets, value: targets.tickwheel.delete_queue("unused", purge=value)),
    "depth where": _of("plain", "depth", "where", PAIRS),
    "forecast minutes": _of("plain", "forecast", "minutes", NUMBER),
    "block enqueue": _of("own", "block", "enqueue", FLAG),
    "block dequeue": _of("own", "block", "dequeue", FLAG),
    "unblock enqueue": _of("own", "unblock", "enqueue", FLAG),
    "unblock dequeue": _of("own", "unblock", "dequeue", FLAG),
    "fail error": Argument((str, NOTHING), lambda targets, value: targets.fail(value, timedelta(0))),
    "fail retry_in": Argument(DURATION, lambda targets, value: targets.fail(None, value)),
    "fail final": Argument(FLAG, lambda targets, value: targets.fail(None, None, value)),
    "extend duration": Argument(LENGTH, _extend),
}
