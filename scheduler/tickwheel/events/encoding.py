"""Transitions as the records of a Kafka topic: key and value, both JSON (`transition.schema.json`).

Put together by hand, as this is the relay's innermost loop: `json.dumps` of a dictionary takes three times as long.
"""

from collections.abc import Iterable, Iterator
from json import JSONEncoder

from tickwheel.record import State
from tickwheel.transitions import Transition

SCHEMA_VERSION = 1

_text = JSONEncoder(ensure_ascii=False).encode
# By number; 0 and None are 'not there'.
_STATES = {None: "null"} | {state: f'"{state.label}"' for state in State}


def records(namespace: str, queue: str, transitions: Iterable[Transition]) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each transition of one queue."""
    name = _text(queue)
    head = f'{{"schema_version":{SCHEMA_VERSION},"namespace":{_text(namespace)},"queue":{name},"id":'
    for told in transitions:
        identity = id_ = _text(told.id)
        value = "null"
        if told.exclusive_value is not None:
            value = _text(told.exclusive_value)
            identity = f"{id_},{value}"
        late = "null" if told.lateness_ms is None else told.lateness_ms
        worker = _text(told.worker) if told.worker else "null"
        detail = ""
        if told.metadata is not None:
            pairs = ",".join([f"{_text(key)}:{_text(value)}" for key, value in told.metadata.items()])
            detail = f',"due":{told.due_ms},"deadline":{told.deadline_ms},"metadata":{{{pairs}}}'
        yield (
            f"[{name},{identity}]".encode(),
            f'{head}{id_},"exclusive_value":{value},"incarnation":{told.incarnation},"version":{told.version}'
            f',"from":{_STATES[told.from_state]},"to":{_STATES[told.to_state]},"time":{told.time_ms}'
            f',"attempt":{told.attempt},"worker":{worker},"lateness":{late}{detail}}}'.encode(),
        )
