"""Transitions as the records of a Kafka topic: key and value, both JSON (`transition.schema.json`).

The JSON is written by hand, because encoding is the relay's innermost loop: `json.dumps` of a dictionary takes three
times as long.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from json import JSONEncoder
from types import NoneType
from typing import Any, Final

from tickwheel.errors import TickwheelError
from tickwheel.model.validation import from_ms
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

SCHEMA_VERSION: Final = 1

_to_json = JSONEncoder(ensure_ascii=False).encode
_STATES: Final = {None: "null"} | {state: f'"{state.label}"' for state in State}


@dataclass(frozen=True, slots=True)
class Transition:
    """One state change of one message.

    ``from_state`` is None for a new message, and ``to_state`` is None for a message that is deleted after its
    retention. ``due``, ``deadline`` and ``metadata`` are set for new and rescheduled messages. ``lateness`` is the time
    from the due time, or from the end of the back-off, until a message became Pending. For a delivery, in every
    attempt, it is the time from the due time. ``worker`` is the name that the caller passed, if any.
    """

    namespace: str
    queue: str
    id: str
    exclusive_value: str | None
    incarnation: int
    version: int
    from_state: str | None
    to_state: str | None
    time: datetime
    attempt: int
    worker: str | None = None
    lateness: timedelta | None = None
    due: datetime | None = None
    deadline: datetime | None = None
    metadata: dict[str, str] | None = None


def encode(namespace: str, queue: str, outbox_transitions: Iterable[OutboxTransition]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key and the value of a record for each transition. All transitions must be of ``queue``."""
    name = _to_json(queue)
    head = f'{{"schema_version":{SCHEMA_VERSION},"namespace":{_to_json(namespace)},"queue":{name},"id":'
    for transition in outbox_transitions:
        identity = id_ = _to_json(transition.id)
        value = "null"
        if transition.exclusive_value is not None:
            value = _to_json(transition.exclusive_value)
            identity = f"{id_},{value}"
        late = "null" if transition.lateness_ms is None else transition.lateness_ms
        worker = _to_json(transition.worker) if transition.worker else "null"
        detail = ""
        if transition.metadata is not None:
            pairs = ",".join([f"{_to_json(key)}:{_to_json(value)}" for key, value in transition.metadata.items()])
            detail = f',"due":{transition.due_ms},"deadline":{transition.deadline_ms},"metadata":{{{pairs}}}'
        yield (
            f"[{name},{identity}]".encode(),
            f'{head}{id_},"exclusive_value":{value},"incarnation":{transition.incarnation},"version":{transition.version}'
            f',"from":{_STATES[transition.from_state]},"to":{_STATES[transition.to_state]},"time":{transition.time_ms}'
            f',"attempt":{transition.attempt},"worker":{worker},"lateness":{late}{detail}}}'.encode(),
        )


def decode(value: bytes | None) -> Transition:
    """Return the transition in the value of a record. Raises TickwheelError if the value has another format."""
    try:
        fields = decode_json(value or b"")
        if fields["schema_version"] != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version is {fields['schema_version']!r}, but this version of Tickwheel reads {SCHEMA_VERSION}"
            )
        late = _typed(fields, "lateness", int, NoneType)
        due = None if fields.get("due") is None else _typed(fields, "due", int)
        return Transition(
            _typed(fields, "namespace", str),
            _typed(fields, "queue", str),
            _typed(fields, "id", str),
            _typed(fields, "exclusive_value", str, NoneType),
            _typed(fields, "incarnation", int),
            _typed(fields, "version", int),
            _typed(fields, "from", str, NoneType),
            _typed(fields, "to", str, NoneType),
            from_ms(_typed(fields, "time", int)),
            _typed(fields, "attempt", int),
            _typed(fields, "worker", str, NoneType),
            None if late is None else timedelta(milliseconds=late),
            None if due is None else from_ms(due),
            None if due is None else from_ms(_typed(fields, "deadline", int)),
            None if due is None else _metadata(fields),
        )
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise TickwheelError(f"not a transition of Tickwheel: {value!r:.80}: {error!r:.200}") from error


def _typed(fields: dict[str, Any], name: str, *types: type) -> Any:
    """Return the field. Raises TypeError for another type, and ValueError for a string that is not Unicode text."""
    value = fields[name]
    # Not isinstance: True and False are not numbers here.
    if type(value) not in types:
        raise TypeError(f"{name} is {value!r:.40}")
    if isinstance(value, str):
        value.encode()
    return value


def _metadata(fields: dict[str, Any]) -> dict[str, str]:
    pairs: dict[str, Any] = _typed(fields, "metadata", dict)
    for key in pairs:
        _typed(pairs, key, str)
        key.encode()
    return pairs
