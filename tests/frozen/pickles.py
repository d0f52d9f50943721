"""Objects that programs may have pickled, as they are to come out of pickles that commit 2821acb made.

The bytes are in `recorded/pickles.json`, in base64, and are not made again: what an old program has written must be
read by a new one. Of the classes that can be pickled these are messages, in either client, and what has a public
place that pickles name; pickles of all others live as long as one version. A class that joins them gets a line here,
and its bytes there, by `added`.
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
# What a message of either client holds; its names are those that pickles have.
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
    """A message as a client has it after it was dequeued. Follows the slots of `LeasedMessage`."""
    from tickwheel.storage.record import encode_pairs

    made = kind.by_lease("jobs", 7, "m1", "p1", _MESSAGE["token"], 2)
    made.payload, made.version, made._pairs = b"film", 5, encode_pairs({"project": "p1"})
    made._due_ms, made._deadline_ms = _AT_MS, _AT_MS + 60_000
    made._lease_until_ms, made._lease_ms = _AT_MS + 30_000, 30_000
    return made


def contents(value: Any) -> Any:
    """Everything that users see of it, to be compared."""
    if isinstance(value, tickwheel.Message | aio.Message):
        return {name: getattr(value, name) for name in _MESSAGE}
    if isinstance(value, BaseException):
        return str(value), {name: each for name, each in vars(value).items() if not name.startswith("_")}
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
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
    """The bytes of one that is new."""
    return base64.b64encode(pickle.dumps(EXPECTED[name])).decode()
