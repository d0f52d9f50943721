"""The servers at which wake channels are subscribed to, while slots move and servers fail."""

from typing import Any

import pytest
from redis.exceptions import MovedError, NoPermissionError

from tickwheel.errors import TickwheelError
from tickwheel.plan import Search
from tickwheel.redis import probes, subscriptions
from tickwheel.redis.subscriptions import REFUSED_S, Subscriptions
from tickwheel.redis.topology import HASH_SLOTS, Topology, hash_slot
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.unit

A, B = "a:1", "b:2"
# The queue has two shards. At first, shard 0 is on B and shard 1 is on A.
HALVES = [[0, 9_999, [b"a", 1]], [10_000, HASH_SLOTS - 1, [b"b", 2]]]
ZERO, ONE = b"work-0", b"work-1"


class Confirmation:
    """Replaces an event: adds its queue to a list when it is set."""

    def __init__(self, queue: str, confirmed_queues: list[str]) -> None:
        self._queue = queue
        self._confirmed_queues = confirmed_queues

    def set(self) -> None:
        self._confirmed_queues.append(self._queue)


class Listened(Subscriptions[Confirmation]):
    """Subscriptions whose listener wakes all waiters that have possibly missed messages."""

    def on_message(self, server: str, message: Any) -> None:
        super().on_message(server, message)
        self._wake_parts()

    def end_idle(self) -> dict[str, list[bytes]]:
        ended = super().end_idle()
        self._wake_parts()
        return ended

    def sweep_if_due(self) -> None:
        super().sweep_if_due()
        self._wake_parts()

    def _wake_parts(self) -> None:
        while self._waiters.wake_lost_part() or self._waiters.sweep_part():
            pass


class SubscriptionState:
    """Subscriptions of one queue, and the effects of the servers' messages."""

    def __init__(self) -> None:
        self.topology = Topology([A])
        self.topology.update_from_cluster_slots(HALVES, A)
        self.waiters = WaitList()
        self.confirmed_queues: list[str] = []
        self.woken = 0
        self.work_waiters = [self.waiters.add("work", self._woken)]
        self.subscriptions = Listened(self.topology, self.waiters, lambda queue: [f"{queue}-0", f"{queue}-1"])
        self.add("work")

    def add(self, queue: str) -> None:
        """Add a waiter for the queue."""
        self.subscriptions.confirmation(queue, lambda: Confirmation(queue, self.confirmed_queues))

    def _woken(self) -> None:
        self.woken += 1

    def subscribed(self) -> None:
        """Subscribe to all missing channels, and confirm them. Waiters that this wakes go on waiting."""
        for server, channels in self.subscriptions.missing_by_server().items():
            for channel in channels:
                self.subscriptions.on_message(server, [b"ssubscribe", channel, 1])
        self.waiters.consume(self.work_waiters[0])
        self.woken = 0


@pytest.fixture
def state() -> SubscriptionState:
    return SubscriptionState()


def test_each_channel_is_wanted_once_at_the_server_of_its_shard(state: SubscriptionState) -> None:
    assert (state.topology.server(0), state.topology.server(1)) == (B, A)
    assert state.subscriptions.missing_by_server() == {B: [ZERO], A: [ONE]}
    assert state.subscriptions.missing_by_server() == {}


def test_a_queue_is_ready_and_its_waiters_check_once_all_its_channels_are_confirmed(state: SubscriptionState) -> None:
    state.subscriptions.missing_by_server()
    state.subscriptions.on_message(B, [b"ssubscribe", ZERO, 1])
    assert (state.confirmed_queues, state.woken) == ([], 0)
    state.subscriptions.on_message(A, [b"ssubscribe", ONE, 1])
    assert (state.confirmed_queues, state.woken) == (["work"], 1)
    state.subscriptions.on_message(A, [b"ssubscribe", ONE, 1])
    assert (state.confirmed_queues, state.woken) == (["work"], 1)


def test_a_message_wakes_the_queue(state: SubscriptionState) -> None:
    state.subscribed()
    state.subscriptions.on_message(A, [b"smessage", ONE, b"1"])
    assert state.woken == 1


def test_a_withdrawn_subscription_is_renewed_at_the_server_of_the_map(state: SubscriptionState) -> None:
    state.subscribed()
    state.subscriptions.on_message(A, [b"sunsubscribe", ONE, 0])
    assert state.subscriptions.slots_stale
    state.topology.apply_moved(hash_slot(1), B)
    assert state.subscriptions.missing_by_server() == {B: [ONE]}
    assert state.woken == 0
    state.subscriptions.on_message(B, [b"ssubscribe", ONE, 1])
    assert state.woken == 1


def test_a_subscription_follows_a_slot_that_moved_in_the_map(state: SubscriptionState) -> None:
    state.subscribed()
    state.topology.apply_moved(hash_slot(1), B)
    assert state.subscriptions.missing_by_server() == {B: [ONE]}
    # A late message of the former server is ignored.
    state.subscriptions.on_message(A, [b"sunsubscribe", ONE, 0])
    assert state.subscriptions.missing_by_server() == {}


def test_a_subscription_follows_the_redirect_of_a_server(state: SubscriptionState) -> None:
    state.subscribed()
    state.subscriptions.on_connection_lost(A)
    assert state.subscriptions.missing_by_server() == {A: [ONE]}
    state.subscriptions.on_redirect(A, MovedError(f"{hash_slot(1)} b:2"))
    assert state.subscriptions.missing_by_server() == {B: [ONE]}


def test_all_waiters_check_once_after_the_subscriptions_of_a_lost_server_are_restored(state: SubscriptionState) -> None:
    state.add("other")
    state.subscribed()
    state.subscriptions.on_connection_lost(A)
    [(server, channels)] = state.subscriptions.missing_by_server().items()
    assert (server, len(channels)) == (A, 2)
    confirmed: Any = iter(channels)
    state.subscriptions.on_message(A, [b"ssubscribe", next(confirmed), 1])
    assert state.woken == 0
    state.subscriptions.on_message(A, [b"ssubscribe", next(confirmed), 1])
    assert state.woken == 1


def test_all_queues_are_ready_once_nothing_is_unconfirmed_or_interrupted(state: SubscriptionState) -> None:
    assert not state.subscriptions.all_confirmed
    state.subscribed()
    assert state.subscriptions.all_confirmed
    state.subscriptions.on_connection_lost(A)
    assert not state.subscriptions.all_confirmed
    state.subscriptions.on_message(B, [b"smessage", ZERO, b"1"])
    assert not state.subscriptions.all_confirmed
    state.subscribed()
    assert state.subscriptions.all_confirmed
    state.add("other")
    assert not state.subscriptions.all_confirmed


def test_a_permanent_error_of_the_slots_ends_all_waits_until_the_slots_are_read(state: SubscriptionState) -> None:
    state.subscriptions.on_slots_unknown(ConnectionError("lost"))
    state.subscriptions.check()
    assert (state.woken, state.confirmed_queues) == (0, [])
    refused = TickwheelError("the server must not be used")
    assert state.subscriptions.on_slots_unknown(refused) == REFUSED_S
    assert (state.woken, state.confirmed_queues) == (1, ["work"])
    with pytest.raises(TickwheelError) as raised:
        state.subscriptions.check()
    assert raised.value is refused
    state.subscriptions.on_slots_read()
    state.subscriptions.check()


def test_a_server_that_must_not_be_used_ends_all_waits(state: SubscriptionState) -> None:
    state.subscribed()
    assert state.subscriptions.on_error(B, TickwheelError("the server must not be used")) == REFUSED_S
    assert state.woken == 1
    with pytest.raises(TickwheelError, match="must not be used"):
        state.subscriptions.check()


def begin(state: SubscriptionState) -> Search:
    search = Search("work", b"filter", "", False, True)
    state.subscriptions.begin_search(search, lambda: None)
    return search


@pytest.fixture
def idle(state: SubscriptionState, monkeypatch: pytest.MonkeyPatch) -> SubscriptionState:
    """A process with a filter whose search found nothing. The sweep is due."""
    monkeypatch.setattr(probes, "_PROBE_S", 0)
    state.work_waiters.append(state.waiters.add("work", lambda: None, b"filter"))
    state.subscribed()
    search = begin(state)
    search.found, search.is_complete = False, True
    state.subscriptions.end_search(search)
    return state


def test_a_search_that_found_nothing_answers_others_while_the_servers_answer_their_probes(
    idle: SubscriptionState,
) -> None:
    assert idle.subscriptions.due_probes() == {A: [ONE], B: [ZERO]}
    assert idle.subscriptions.due_probes() == {}
    for server, channel in ((A, ONE), (B, ZERO)):
        idle.subscriptions.on_message(server, [b"ssubscribe", channel, 1])
    idle.subscriptions.sweep_if_due()

    assert begin(idle).is_answered


def test_dequeues_search_themselves_while_a_server_does_not_answer_its_probe(idle: SubscriptionState) -> None:
    idle.subscriptions.due_probes()
    idle.subscriptions.on_message(B, [b"ssubscribe", ZERO, 1])
    idle.subscriptions.sweep_if_due()
    assert not begin(idle).is_answered

    idle.subscriptions.on_message(A, [b"ssubscribe", ONE, 1])

    assert begin(idle).is_answered


def test_a_sweep_waits_for_the_answers_to_its_probes(idle: SubscriptionState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_PROBE_S", 60)
    idle.subscriptions.due_probes()
    idle.subscriptions.sweep_if_due()
    assert (idle.woken, idle.subscriptions.seconds_to_sweep() > 0) == (0, True)

    for server, channel in ((A, ONE), (B, ZERO)):
        idle.subscriptions.on_message(server, [b"ssubscribe", channel, 1])
    idle.subscriptions.sweep_if_due()

    assert idle.woken == 1


def test_a_server_that_lost_its_connection_or_its_channels_owes_no_answer(idle: SubscriptionState) -> None:
    idle.subscriptions.due_probes()
    idle.topology.apply_moved(hash_slot(0), A)
    idle.subscriptions.missing_by_server()
    idle.subscriptions.sweep_if_due()
    idle.subscriptions.on_connection_lost(B)
    idle.subscriptions.on_connection_lost(A)
    idle.subscribed()
    search = begin(idle)
    search.found, search.is_complete = False, True
    idle.subscriptions.end_search(search)

    assert begin(idle).is_answered


def test_dequeues_without_a_filter_need_no_probes(state: SubscriptionState) -> None:
    state.subscribed()
    assert state.subscriptions.due_probes() == {}
    state.subscriptions.sweep_if_due()
    assert state.woken == 1


def end_idle(state: SubscriptionState) -> dict[str, list[bytes]]:
    """End the idle subscriptions, after the waiters of the queue `work` have left."""
    for waiter in state.work_waiters:
        state.waiters.remove(waiter)
    return state.subscriptions.end_idle()


@pytest.fixture
def short(state: SubscriptionState, monkeypatch: pytest.MonkeyPatch) -> SubscriptionState:
    """A process whose subscriptions end as soon as their last waiter has left."""
    monkeypatch.setattr(subscriptions, "IDLE_S", -1)
    monkeypatch.setattr(subscriptions, "SWEEP_S", 0)
    return state


def test_a_subscription_ends_after_its_last_waiter_has_left(short: SubscriptionState) -> None:
    short.subscribed()
    assert short.subscriptions.end_idle() == {}
    assert end_idle(short) == {A: [ONE], B: [ZERO]}
    assert short.subscriptions.end_idle() == {}
    assert short.subscriptions.missing_by_server() == {}
    assert short.subscriptions.all_confirmed


def test_a_subscription_lasts_between_two_waits(short: SubscriptionState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "IDLE_S", 60)
    short.subscribed()
    assert end_idle(short) == {}


def test_a_caller_that_waits_for_a_confirmation_learns_that_its_subscription_ended(short: SubscriptionState) -> None:
    short.subscriptions.missing_by_server()
    end_idle(short)
    assert short.confirmed_queues == ["work"]


def test_late_messages_of_an_ended_subscription_have_no_effect(short: SubscriptionState) -> None:
    short.subscribed()
    end_idle(short)
    for message in ([b"smessage", ONE, b"1"], [b"ssubscribe", ONE, 1], [b"sunsubscribe", ONE, 0]):
        short.subscriptions.on_message(A, message)
    short.subscriptions.on_message(A, [b"sunsubscribe", ONE, 0])
    assert short.subscriptions.missing_by_server() == {}
    assert short.subscriptions.all_confirmed


def test_a_queue_that_is_used_again_is_confirmed_by_the_answers_to_its_new_subscription(
    short: SubscriptionState,
) -> None:
    short.subscriptions.missing_by_server()
    for _ in range(2):
        end_idle(short)
        short.add("work")
        assert short.subscriptions.missing_by_server() == {A: [ONE], B: [ZERO]}
    short.confirmed_queues.clear()
    for server, channel in ((A, ONE), (B, ZERO)):
        for kind in (b"ssubscribe", b"sunsubscribe", b"ssubscribe", b"sunsubscribe"):
            short.subscriptions.on_message(server, [kind, channel, 0])
    assert (short.confirmed_queues, short.subscriptions.missing_by_server()) == ([], {})

    for server, channel in ((A, ONE), (B, ZERO)):
        short.subscriptions.on_message(server, [b"ssubscribe", channel, 1])

    assert (short.confirmed_queues, short.subscriptions.all_confirmed) == (["work"], True)


@pytest.mark.parametrize("failure", ["redirect", "connection"])
def test_a_server_that_owes_no_answer_may_end_the_new_subscription(short: SubscriptionState, failure: str) -> None:
    short.subscribed()
    end_idle(short)
    if failure == "redirect":
        short.subscriptions.on_redirect(A, MovedError(f"{hash_slot(1)} b:2"))
        short.topology.apply_moved(hash_slot(1), A)
    else:
        short.subscriptions.on_error(A, ConnectionError("lost"))
    short.add("work")
    short.subscribed()
    short.subscriptions.on_message(A, [b"sunsubscribe", ONE, 0])
    assert short.subscriptions.missing_by_server() == {A: [ONE]}


def test_an_empty_search_answers_none_after_the_subscription_has_ended_in_between(
    idle: SubscriptionState, short: SubscriptionState
) -> None:
    assert begin(idle).is_answered
    end_idle(idle)
    idle.add("work")
    short.subscriptions.missing_by_server()
    for server, channel in ((A, ONE), (B, ZERO)):
        for kind in (b"sunsubscribe", b"ssubscribe"):
            short.subscriptions.on_message(server, [kind, channel, 0])
    assert short.subscriptions.all_confirmed

    assert not begin(idle).is_answered


def test_the_end_of_an_interrupted_subscription_does_not_hide_the_interruption_of_others(
    short: SubscriptionState,
) -> None:
    woken: list[str] = []
    other = short.waiters.add("other", lambda: woken.append("other"))
    short.add("other")
    short.subscribed()
    short.subscriptions.on_connection_lost(A)
    short.subscriptions.missing_by_server()
    short.waiters.consume(other)
    woken.clear()
    short.subscriptions.on_message(A, [b"ssubscribe", b"other-1", 1])
    assert woken == []

    end_idle(short)

    assert (woken, short.subscriptions.all_confirmed) == (["other"], True)


def test_a_queue_whose_probe_is_not_answered_keeps_its_subscription(
    idle: SubscriptionState, short: SubscriptionState
) -> None:
    idle.subscriptions.due_probes()
    assert end_idle(idle) == {}
    for server, channel in ((A, ONE), (B, ZERO)):
        short.subscriptions.on_message(server, [b"ssubscribe", channel, 1])
    assert idle.subscriptions.end_idle() == {A: [ONE], B: [ZERO]}


def test_subscriptions_stay_if_a_server_refuses_to_end_them(
    short: SubscriptionState, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = NoPermissionError("User worker has no permissions to run the 'sunsubscribe' command")
    short.subscribed()
    end_idle(short)
    assert not short.subscriptions.is_end_refused(A, ConnectionError("lost"))
    assert short.subscriptions.is_end_refused(A, refusal)
    assert short.subscriptions.is_end_refused(B, refusal)
    short.add("work")
    short.subscribed()

    assert short.subscriptions.end_idle() == {}

    short.subscriptions.check()
    assert (len(caplog.records), short.subscriptions.all_confirmed) == (1, True)
