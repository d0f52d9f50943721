"""The records that readers of Kafka receive: topic, keys and values of transitions, and headers of sink messages."""

import json
from datetime import timedelta
from importlib.resources import files
from typing import Any

from tickwheel.events import SCHEMA_VERSION, TOPIC

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def encoded() -> list[tuple[bytes, bytes]]:
    """Return key and value of two transitions, of a plain and of an exclusive message. Follows `encode`."""
    from tickwheel.events.encoding import encode
    from tickwheel.storage.record import State
    from tickwheel.storage.transition import OutboxTransition

    plain = OutboxTransition(7, "m1", None, 3, 4, State.PENDING, State.RUNNING, 1_000, 2_000, 1, "worker", 5)
    more = {"due_ms": 900, "deadline_ms": 950, "metadata": {"gpu": "a100"}}
    new = OutboxTransition(7, "m1", "p1", 3, 1, None, State.INVISIBLE, 1_000, 2_000, 0, **more)  # type: ignore[arg-type]
    return list(encode("tw", "jobs", [plain, new]))


def sink_record() -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return key and headers of a sink message. Follows `kafka_sink` and `SinkMessage`."""
    from tickwheel.sinks.kafka_sink import headers, key
    from tickwheel.sinks.sink import SinkMessage
    from tickwheel.storage.record import FIXED, HEAD, PAIRS, name

    pairs = _packed({"gpu": "a100", "traceparent": TRACEPARENT})
    detail = bytes(9) + len(pairs).to_bytes(2, "big") + pairs
    record = (
        HEAD.pack(3, PAIRS, 4, 1, 0, 2_000)
        + bytes(16)
        + b"\0"
        + FIXED.pack(0, 3, 0, 900, bytes(8), 0)
        + detail
        + b"body"
    )
    message = SinkMessage("jobs", b"\0\7" + name(b"m1", b"p1"), record, b"", True)
    return key(message), headers("tw", message)


def _packed(pairs: dict[str, str]) -> bytes:
    from tickwheel.storage.record import encode_pairs

    return encode_pairs(pairs)


def schema() -> dict[str, Any]:
    """Return the topic, the schema version, two transitions, and one record of a sink."""
    plain, new = encoded()
    key, headers = sink_record()
    return {
        "topic": TOPIC,
        "schema version": SCHEMA_VERSION,
        "transition": {"key": plain[0].decode(), "value": json.loads(plain[1])},
        "transition of a new message of an exclusive queue": {"key": new[0].decode(), "value": json.loads(new[1])},
        "order of fields": list(json.loads(new[1])),
        "record of a sink": {"key": key.decode(), "headers": {name: value.decode() for name, value in headers}},
        "transition.schema.json": _without_prose(
            json.loads((files("tickwheel.events") / "transition.schema.json").read_text())
        ),
        "milliseconds in": {"lateness": timedelta(milliseconds=json.loads(plain[1])["lateness"]).microseconds // 1_000},
    }


def _without_prose(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_prose(value) for key, value in node.items() if key not in ("description", "title")}
    return [_without_prose(item) for item in node] if isinstance(node, list) else node
