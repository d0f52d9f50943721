"""Records of the topic of transitions: whatever somebody wrote, a record is a transition or a TickwheelError."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tickwheel import TickwheelError
from tickwheel.events.encoding import decode, encode
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

pytestmark = pytest.mark.unit

OTHER_KINDS = {
    "no value": None,
    "empty": b"",
    "an object": b"{}",
    "a list": b"[]",
    "a string": b'"schema_version"',
    "not UTF-8": b"\xff",
    "another version": b'{"schema_version":2}',
    "only a version": b'{"schema_version":1}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"schema_version":' * 100_000,
    "too many digits": b'{"schema_version":' + b"1" * 5_000 + b"}",
}
HOSTILE: list[Any] = [
    *(
        True,
        1.5,
        float("nan"),
        float("inf"),
        -(10**30),
        10**30,
        10**400,
        "7",
        "x",
        "\ud800",
        b"",
        [],
        {},
        [[]],
        {"a": 1},
    ),
    None,
]


def valid() -> dict[str, Any]:
    transition = OutboxTransition(
        *(1, "m", "v", 1, 2, None, State.PENDING, 1_700_000_000_000, 0, 3, "w", 5),
        *(1_700_000_000_000, 1_700_000_002_000, {"a": "b"}),
    )
    [(_, value)] = encode("tw", "q", [transition])
    fields: dict[str, Any] = json.loads(value)
    return fields


@pytest.mark.parametrize("value", OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_a_record_of_another_kind_is_refused_with_its_kind(value: bytes | None) -> None:
    with pytest.raises(TickwheelError, match="not a transition"):
        decode(value)


@pytest.mark.parametrize("name", valid())
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: f"{value!r:.12}")
def test_a_field_of_another_type_is_an_error_or_has_the_type_of_the_field(name: str, hostile: Any) -> None:
    fields = valid() | {name: str(hostile) if isinstance(hostile, bytes) else hostile}
    try:
        transition = decode(json.dumps(fields).encode())
    except TickwheelError:
        return
    assert type(transition.incarnation) is type(transition.version) is type(transition.attempt) is int
    for text in (transition.namespace, transition.queue, transition.id, transition.worker, transition.exclusive_value):
        assert text is None or text.encode()
    assert all(key.encode() and isinstance(pair, str) for key, pair in (transition.metadata or {}).items())
    assert transition.namespace is not None
    assert transition.queue is not None
    assert transition.id is not None


@given(st.binary())
def test_random_bytes_are_a_tickwheel_error(value: bytes) -> None:
    with pytest.raises(TickwheelError):
        decode(value)


def test_a_valid_record_is_decoded() -> None:
    transition = decode(json.dumps(valid()).encode())
    assert (transition.id, transition.version, transition.metadata) == ("m", 2, {"a": "b"})
