"""Objects that programs may have pickled. Their pickles from commit 2821acb must still load.

The bytes are in `recorded/pickles.json`, in base64. They are never recorded again, because a new version must read
the pickles of an old one. The classes are the messages of both clients, and the classes that a public module names.
Pickles of other classes are valid for one version only. For a new class, add an entry here, and the result of `added`
to the file.
"""

import base64
import pickle
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import tickwheel
from tickwheel import aio, errors

_AT: Final = datetime(2030, 1, 1, tzinfo=UTC)
_AT_MS: Final = int(_AT.timestamp() * 1_000)
# The attributes of a message of either client, under the names that pickles use.
_MESSAGE: Final[dict[str, Any]] = {
    "id": "m1",
    "queue": "jobs",
    "payload": b"film",
    "attempt": 2,
    "version": 5,
    "token": bytes(range(16)),
    "exclusive_value": "p1",
    "metadata": {"project": "p1"},
    "due": _AT,
    "deadline": _AT + timedelta(minutes=1),
    "lease_until": _AT + timedelta(seconds=30),
}


def message(kind: Any) -> Any:
    """Return a message as a client holds it after a dequeue. Follows the slots of `LeasedMessage`."""
    from tickwheel.storage.record import encode_pairs

    message = kind.by_lease("jobs", 7, "m1", "p1", _MESSAGE["token"], 2)
    message.payload, message.version, message._pairs = b"film", 5, encode_pairs({"project": "p1"})
    message._due_ms, message._deadline_ms = _AT_MS, _AT_MS + 60_000
    message._lease_until_ms, message._lease_ms = _AT_MS + 30_000, 30_000
    return message


def contents(value: Any) -> Any:
    """Return everything that users see of an object, for a comparison."""
    if isinstance(value, tickwheel.Message | aio.Message):
        return {name: getattr(value, name) for name in _MESSAGE}
    if isinstance(value, BaseException):
        return str(value), {name: attribute for name, attribute in vars(value).items() if not name.startswith("_")}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value


EXPECTED: Final[dict[str, Any]] = {
    "EnqueueResult": tickwheel.EnqueueResult("m1", "pending", True),
    "Message": message(tickwheel.Message),
    "MessageView": tickwheel.MessageView(
        "m1", "jobs", "errored", b"film", {"a": "b"}, _AT, _AT, 2, 5, "p1", "w", "x", _AT
    ),
    "NewMessage": tickwheel.NewMessage(b"film", "m1", timedelta(seconds=1), metadata={"a": "b"}, max_attempts=3),
    "aio.Message": message(aio.Message),
    "errors.Fenced": errors.Fenced("fenced", 3),
    "errors.IdConflict": errors.IdConflict("another", [tickwheel.EnqueueResult("m1", "pending", False)]),
    "errors.InvalidArgument": errors.InvalidArgument("wrong"),
    "errors.InvalidTransition": errors.InvalidTransition("no", "completed"),
    "errors.LeaseLost": errors.LeaseLost("lost", ["m1"]),
    "errors.LimitExceeded": errors.LimitExceeded("too many", 20),
    "errors.OutboxFull": errors.OutboxFull("full", 3, 2),
    "errors.QueueNotFound": errors.QueueNotFound("there is no queue"),
    "errors.Unavailable": errors.Unavailable("away", may_have_happened=False),
}


def added(name: str) -> str:
    """Return the bytes of a new entry."""
    return base64.b64encode(pickle.dumps(EXPECTED[name])).decode()
