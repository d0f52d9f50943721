"""The calls that wait for the end of a message: who is woken, and when they read the message again."""

from typing import Any

import pytest

from tickwheel.operations.inspect import RECHECK_S
from tickwheel.redis.end_waits import EndWaits
from tickwheel.storage.end_topic import end_topic, ended_fields, is_end_topic

pytestmark = pytest.mark.unit

TOPIC = end_topic("jobs", 3)


def announcement(*fields: bytes) -> bytes:
    return b"".join(len(field).to_bytes(2) + field for field in fields)


def test_an_announcement_wakes_the_waiters_of_its_messages_only() -> None:
    waits, woken = EndWaits(), []
    for name in (b"a", b"a", b"b", b"c"):
        waits.add(TOPIC, name, lambda name=name: woken.append(name))  # type: ignore[misc]
    waits.add(end_topic("jobs", 4), b"a", lambda: woken.append(b"other shard"))
    waits.announce(TOPIC, announcement(b"a", b"c", b"unknown"))
    assert sorted(woken) == [b"a", b"a", b"c"]


def test_waiters_that_left_are_not_woken_and_leave_nothing_behind() -> None:
    waits, woken = EndWaits(), []
    waiter = waits.add(TOPIC, b"a", lambda: woken.append(1))
    assert waits.has_waiter(TOPIC)
    waits.remove(waiter)
    waits.remove(waiter)
    waits.announce(TOPIC, announcement(b"a"))
    assert woken == []
    assert not waits.has_waiter(TOPIC)
    assert waits._topics == {}


def test_lost_announcements_wake_all_waiters_of_the_topic() -> None:
    waits, woken = EndWaits(), []
    waits.add(TOPIC, b"a", lambda: woken.append("a"))
    waits.add(end_topic("jobs", 4), b"b", lambda: woken.append("b"))
    waits.wake(TOPIC)
    assert woken == ["a"]
    waits.wake()
    assert woken == ["a", "a", "b"]


def test_a_broken_announcement_is_read_to_its_end() -> None:
    fields: list[Any] = list(ended_fields(announcement(b"a") + b"\0\xffcut"))
    assert fields == [b"a", b"cut"]


def test_the_topic_of_a_queue_is_no_topic_of_ends() -> None:
    assert is_end_topic(TOPIC)
    assert not is_end_topic("jobs")
    assert RECHECK_S > 1
