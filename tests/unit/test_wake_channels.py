"""The wake channels of a process that has more of them than it subscribes to at a time."""

import threading
from typing import Any

import pytest

from tickwheel.redis.subscription import Subscription
from tickwheel.redis.wake_channels import CHANNELS_AT_ONCE, WakeChannels

pytestmark = pytest.mark.unit

SHARDS = CHANNELS_AT_ONCE


class Servers:
    """A topology with one server of the even shards, and one of the odd shards."""

    def __init__(self, even: str, odd: str) -> None:
        self.names = even, odd

    def server(self, shard: int) -> str:
        return self.names[shard % 2]


def channels_of(servers: Any, *queues: str) -> WakeChannels:
    channels = WakeChannels(servers, lambda queue: [f"{queue}-{shard}" for shard in range(SHARDS)])
    for queue in queues:
        channels.add(queue)
    return channels


def lose_connection(channels: WakeChannels, server: str) -> None:
    while channels.has_channels(server):
        channels.forget_part(server)


def queues_of(part: dict[str, list[bytes]]) -> set[str]:
    return {name.decode().split("-")[0] for names in part.values() for name in names}


def test_after_a_lost_connection_a_part_restores_its_own_queues_only() -> None:
    channels = channels_of(Servers("A", "A"), "a", "b", "c")
    while channels.has_missing:
        channels.missing_by_server()
    lose_connection(channels, "A")
    restored: list[set[str]] = []
    while channels.has_missing:
        [names] = channels.missing_by_server().values()
        assert channels.end_interruptions(names[1:]) == set()
        restored.append(channels.end_interruptions(names[:1]))
    assert sorted(map(sorted, restored)) == [["a"], ["b"], ["c"]]
    assert not channels.is_interrupted


def test_the_channels_of_a_lost_connection_are_sent_after_those_of_other_servers() -> None:
    channels = channels_of(Servers("down", "up"), "a", "b")
    channels.missing_by_server()
    lose_connection(channels, "down")
    parts = [channels.missing_by_server() for _ in range(3)]
    assert [queues_of(part) for part in parts] == [{"b"}, {"a"}, set()]
    assert [sorted(part) for part in parts] == [["down", "up"], ["down"], []]


def test_a_caller_with_few_channels_does_not_wait_for_the_channels_of_the_first_caller() -> None:
    servers: Any = Servers("a:1", "b:2")
    channels = WakeChannels(servers, lambda queue: [f"{queue}-{n}" for n in range(4 if queue == "shared" else 900)])
    channels.add("many", "a")
    shared = channels.add("shared", "a")
    channels.share(shared, "c")
    assert "shared" in queues_of(channels.missing_by_server())
    # The subscription has begun, so nothing moves.
    channels.share(shared, "d")
    assert channels.remove(shared)


def test_unconfirmed_channels_are_shared_with_each_new_caller_once() -> None:
    subscription = Subscription(threading.Event(), [b"x", b"y"], {b"x"}, 0.0, "a")
    shared = [subscription.new_to(caller) for caller in ("a", "b", "b", "c", "a")]
    assert shared == [(), (b"x",), (), (b"x",), ()]
