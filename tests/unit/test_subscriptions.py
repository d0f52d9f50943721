"""Where wake channels are subscribed to, as slots move and servers go."""

from typing import Any

import pytest
from redis.exceptions import MovedError

from tickwheel.redis.subscriptions import Subscriptions
from tickwheel.redis.topology import HASH_SLOTS, Topology, hash_slot
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.unit

A, B = "a:1", "b:2"
# The queue has two shards here: the first is shard 0 at B, the second shard 1 at A, or where they move to.
HALVES = [[0, 9_999, [b"a", 1]], [10_000, HASH_SLOTS - 1, [b"b", 2]]]
ZERO, ONE = b"work-0", b"work-1"


class Confirmation:
    """Stands in for an event: enters its queue in a list once it is set."""

    def __init__(self, queue: str, stand: list[str]) -> None:
        self._queue = queue
        self._stand = stand

    def set(self) -> None:
        self._stand.append(self._queue)


class Heard:
    """Subscriptions of one queue, and what was made of the servers' messages."""

    def __init__(self) -> None:
        self.topology = Topology([A])
        self.topology.update_from_cluster_slots(HALVES, A)
        self.waiters = WaitList()
        self.stand: list[str] = []
        self.woken = 0
        self.waiters.add("work", self._woken)
        self.of: Subscriptions[Confirmation] = Subscriptions(
            self.topology, self.waiters, lambda queue: [f"{queue}-0", f"{queue}-1"]
        )
        self.add("work")

    def add(self, queue: str) -> None:
        """Somebody waits for the queue."""
        self.of.add(queue, Confirmation(queue, self.stand))

    def _woken(self) -> None:
        self.woken += 1

    def subscribed(self) -> None:
        """All that is wanted is subscribed to, and confirmed."""
        for server, channels in self.of.missing_by_server().items():
            for channel in channels:
                self.of.on_message(server, [b"ssubscribe", channel, 1])


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_each_channel_is_wanted_once_at_the_server_of_its_shard(heard: Heard) -> None:
    assert (heard.topology.server(0), heard.topology.server(1)) == (B, A)
    assert heard.of.missing_by_server() == {B: [ZERO], A: [ONE]}
    assert heard.of.missing_by_server() == {}


def test_a_queue_is_ready_once_all_its_channels_are_confirmed(heard: Heard) -> None:
    heard.of.missing_by_server()
    heard.of.on_message(B, [b"ssubscribe", ZERO, 1])
    assert heard.stand == []
    heard.of.on_message(A, [b"ssubscribe", ONE, 1])
    assert (heard.stand, heard.woken) == (["work"], 0)


def test_a_message_wakes_the_queue(heard: Heard) -> None:
    heard.subscribed()
    heard.of.on_message(A, [b"smessage", ONE, b"1"])
    assert heard.woken == 1


def test_a_withdrawn_subscription_is_renewed_at_the_server_of_the_map(heard: Heard) -> None:
    heard.subscribed()
    heard.of.on_message(A, [b"sunsubscribe", ONE, 0])
    assert heard.of.slots_stale
    heard.topology.apply_moved(hash_slot(1), B)
    assert heard.of.missing_by_server() == {B: [ONE]}
    assert heard.woken == 0
    heard.of.on_message(B, [b"ssubscribe", ONE, 1])
    assert heard.woken == 1


def test_a_subscription_follows_a_slot_that_moved_in_the_map(heard: Heard) -> None:
    heard.subscribed()
    heard.topology.apply_moved(hash_slot(1), B)
    assert heard.of.missing_by_server() == {B: [ONE]}
    # What the former server still says of it is old.
    heard.of.on_message(A, [b"sunsubscribe", ONE, 0])
    assert heard.of.missing_by_server() == {}


def test_a_subscription_follows_the_redirect_of_a_server(heard: Heard) -> None:
    heard.subscribed()
    heard.of.on_connection_lost(A)
    assert heard.of.missing_by_server() == {A: [ONE]}
    heard.of.on_redirect(A, MovedError(f"{hash_slot(1)} b:2"))
    assert heard.of.missing_by_server() == {B: [ONE]}


def test_all_waiters_check_once_after_the_subscriptions_of_a_lost_server_are_restored(heard: Heard) -> None:
    heard.add("other")
    heard.subscribed()
    heard.of.on_connection_lost(A)
    [(server, channels)] = heard.of.missing_by_server().items()
    assert (server, len(channels)) == (A, 2)
    confirmed: Any = iter(channels)
    heard.of.on_message(A, [b"ssubscribe", next(confirmed), 1])
    assert heard.woken == 0
    heard.of.on_message(A, [b"ssubscribe", next(confirmed), 1])
    assert heard.woken == 1


def test_all_queues_are_ready_once_nothing_is_unconfirmed_or_interrupted(heard: Heard) -> None:
    assert not heard.of.all_confirmed
    heard.subscribed()
    assert heard.of.all_confirmed
    heard.of.on_connection_lost(A)
    assert not heard.of.all_confirmed
    heard.of.on_message(B, [b"smessage", ZERO, b"1"])
    assert not heard.of.all_confirmed
    heard.subscribed()
    assert heard.of.all_confirmed
    heard.add("other")
    assert not heard.of.all_confirmed
