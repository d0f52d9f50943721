"""Transitions as the records of a Kafka topic: key and value, both JSON (`transition.schema.json`).

Written by hand, as this is the relay's innermost loop: `json.dumps` of a dictionary takes three times as long.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from json import JSONEncoder
from typing import Final

from tickwheel.errors import TickwheelError
from tickwheel.model.validation import from_ms
from tickwheel.storage import transition as transitions
from tickwheel.storage.record import State

SCHEMA_VERSION: Final = 1

_text = JSONEncoder(ensure_ascii=False).encode
_STATES: Final = {None: "null"} | {state: f'"{state.label}"' for state in State}


@dataclass(frozen=True, slots=True)
class Transition:
    """One state change of one message. ``from_state`` is None for a new message, ``to_state`` for one that is gone.

    ``due``, ``deadline`` and ``metadata`` are there for new and rescheduled messages, ``lateness`` where the message
    became deliverable. ``worker`` is the name that the caller gave.
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


def encode(namespace: str, queue: str, happened: Iterable[transitions.Transition]) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each transition of one queue."""
    name = _text(queue)
    head = f'{{"schema_version":{SCHEMA_VERSION},"namespace":{_text(namespace)},"queue":{name},"id":'
    for one in happened:
        identity = id_ = _text(one.id)
        value = "null"
        if one.exclusive_value is not None:
            value = _text(one.exclusive_value)
            identity = f"{id_},{value}"
        late = "null" if one.lateness_ms is None else one.lateness_ms
        worker = _text(one.worker) if one.worker else "null"
        detail = ""
        if one.metadata is not None:
            pairs = ",".join([f"{_text(key)}:{_text(value)}" for key, value in one.metadata.items()])
            detail = f',"due":{one.due_ms},"deadline":{one.deadline_ms},"metadata":{{{pairs}}}'
        yield (
            f"[{name},{identity}]".encode(),
            f'{head}{id_},"exclusive_value":{value},"incarnation":{one.incarnation},"version":{one.version}'
            f',"from":{_STATES[one.from_state]},"to":{_STATES[one.to_state]},"time":{one.time_ms}'
            f',"attempt":{one.attempt},"worker":{worker},"lateness":{late}{detail}}}'.encode(),
        )


def decode(value: bytes) -> Transition:
    """What a record tells. Raises TickwheelError where it is none of this version."""
    try:
        found = json.loads(value)
        if found["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {found['schema_version']!r}, and this version reads {SCHEMA_VERSION}")
        late, due = found["lateness"], found.get("due")
        return Transition(
            found["namespace"],
            found["queue"],
            found["id"],
            found["exclusive_value"],
            found["incarnation"],
            found["version"],
            found["from"],
            found["to"],
            from_ms(found["time"]),
            found["attempt"],
            found["worker"],
            None if late is None else timedelta(milliseconds=late),
            None if due is None else from_ms(due),
            None if due is None else from_ms(found["deadline"]),
            None if due is None else found["metadata"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise TickwheelError(f"not a transition of Tickwheel: {value!r:.80}: {error!r}") from error
