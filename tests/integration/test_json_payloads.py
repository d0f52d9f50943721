"""Payloads as text and as JSON: the stored bytes, the refused values, and the value that a message returns."""

from typing import Any

import pytest

from tickwheel import InvalidArgument, NewMessage, PayloadTooLarge, Queue, Tickwheel

pytestmark = pytest.mark.integration


def test_a_text_is_stored_as_utf_8(queue: Queue) -> None:
    queue.enqueue("größer", id="m")
    assert queue.get("m").payload == "größer".encode()
    assert not queue.enqueue("größer".encode(), id="m").created
    [message] = queue.dequeue()
    assert message.payload == "größer".encode()


def test_json_is_stored_in_compact_form_and_read_by_the_message(queue: Queue) -> None:
    order = {"order": 17, "lines": [1.5, None, True], "name": "größer"}
    queue.enqueue(json=order, id="m")
    assert queue.get("m").payload == '{"order":17,"lines":[1.5,null,true],"name":"größer"}'.encode()
    assert queue.get("m").json() == order
    queue.enqueue_many([NewMessage(json=[1], id="n")])
    assert [message.json() for message in queue.dequeue(2)] == [order, [1]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "json must be a value that JSON can represent"),
        ({"at": float("inf")}, "json must be a value that JSON can represent"),
        ({"ids": {1, 2}}, "json must be a value that JSON can represent.*set is not JSON serializable"),
        ("\ud800", "json must be a value that JSON can represent"),
    ],
)
def test_a_value_that_json_cannot_represent_is_refused(queue: Queue, value: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        queue.enqueue(json=value)
    assert queue.counts()["pending"] == 0


def test_a_value_that_is_nested_too_deeply_is_refused(queue: Queue) -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidArgument, match="json is nested too deeply"):
        queue.enqueue(json=value)


def test_json_and_a_payload_exclude_each_other(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="give a payload or json, not both"):
        queue.enqueue(b"x", json={})


def test_the_limit_of_the_payload_applies_to_json_and_text(tw: Tickwheel) -> None:
    queue = tw.create_queue("small", payload_limit=10)
    queue.enqueue(json="12345678")
    with pytest.raises(PayloadTooLarge, match="payload has 11 bytes, at most 10 are allowed"):
        queue.enqueue(json="123456789")
    with pytest.raises(PayloadTooLarge, match="payload has 12 bytes"):
        queue.enqueue("é" * 6)


def test_a_payload_that_is_not_json_is_an_error_that_names_the_message(queue: Queue) -> None:
    queue.enqueue(b"\xff{", id="m")
    with pytest.raises(InvalidArgument, match=r"the payload of message 'm' of queue 'q' is not JSON: b'\\xff{'"):
        queue.get("m").json()
    [message] = queue.dequeue()
    with pytest.raises(InvalidArgument, match="is not JSON"):
        message.json()
