"""The result of each request of a round: answered, redirected, sent again, or in doubt."""

from typing import Any

import pytest
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from tickwheel.errors import Forbidden, NotDurable, OutOfMemory, TickwheelError, Unavailable
from tickwheel.plan import Request
from tickwheel.redis.replies import ASKING, TemporaryError
from tickwheel.redis.retry_budget import RetryBudget
from tickwheel.redis.round_trip import RoundTrip, ServerBatch
from tickwheel.redis.topology import HASH_SLOTS, Topology, hash_slot
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.storage.scripts import Call, load

pytestmark = pytest.mark.unit

A, B = "a:1", "b:2"
# Shard 3 is on A, shard 63 on B.
HALVES = [[0, 8_191, [b"a", 1]], [8_192, HASH_SLOTS - 1, [b"b", 2]]]
BARRIER = load("replication_barrier")


def cluster() -> Topology:
    topology = Topology([A])
    topology.update_from_cluster_slots(HALVES, A)
    return topology


def call(shard: int, **options: Any) -> Request:
    return Request(shard, Call(BARRIER, [f"tw:{{{shard}}}:clock"], []), **options)


def attempt(delivery: RoundTrip, answers: dict[str, list[object]]) -> Exception | None:
    """Make one attempt in which the named servers reply with ``answers``. Other servers lose their connection."""
    for parcel in delivery.next_batches():
        delivery.mark_sent(parcel)
        if parcel.server not in answers:
            delivery.on_connection_lost(parcel, ConnectionError("lost"))
            continue
        left = list(answers[parcel.server])
        for _ in parcel.loads:
            delivery.on_script_loaded(left.pop(0))
        for n, sent in parcel.requests:
            delivery.on_answers(parcel, n, sent, [left.pop(0) for _ in sent])
    return delivery.finish_attempt()


def sent(delivery: RoundTrip) -> dict[str, list[Any]]:
    """Return the commands that would be sent next, by server."""
    return {parcel.server: parcel.commands() for parcel in delivery.next_batches()}


def values(delivery: RoundTrip) -> list[Any]:
    return [reply and reply.value for reply in delivery.replies]


def test_requests_to_the_shards_of_one_server_are_sent_together() -> None:
    delivery = RoundTrip([call(3), call(63), call(3)], cluster(), 0)
    parcels: list[ServerBatch] = delivery.next_batches()
    assert [(parcel.server, [n for n, _ in parcel.requests]) for parcel in parcels] == [(A, [0, 2]), (B, [1])]


def test_answered_requests_are_kept_and_only_the_others_are_sent_again() -> None:
    delivery = RoundTrip([call(3), call(63)], cluster(), 0)
    assert isinstance(attempt(delivery, {A: [1]}), ConnectionError)
    assert (values(delivery), delivery.in_doubt, delivery.unresponsive) == ([1, None], True, {B})
    assert delivery.slots_stale
    assert attempt(delivery, {B: [2]}) is None
    assert (values(delivery), delivery.is_done) == ([1, 2], True)
    assert [reply.resent for reply in delivery.replies if reply] == [False, True]


def test_only_the_request_that_may_have_been_executed_counts_as_repeated() -> None:
    delivery = RoundTrip([call(3), call(63)], cluster(), 0)
    # One server has lost its connection, the other has rejected the call.
    attempt(delivery, {A: [TryAgainError("half moved")]})
    attempt(delivery, {A: [1], B: [2]})
    assert [reply.resent for reply in delivery.replies if reply] == [False, True]


def test_a_call_deferred_until_its_slot_has_moved_is_reported_as_answered() -> None:
    error = attempt(RoundTrip([call(3)], cluster(), 0), {A: [TryAgainError("Multiple keys request during rehashing")]})
    assert error is not None
    refused = r"^temporarily refused by the cluster in .*: its slot is being moved; nothing was done$"
    with pytest.raises(Unavailable, match=refused):
        RetryBudget("the cluster", 0, LogThrottle()).backoff_or_raise(error, sent=False)


@pytest.mark.parametrize("reached", [0, 1])
def test_fewer_replicas_than_required_raise_not_durable(reached: int) -> None:
    delivery = RoundTrip([call(3, durable=True)], cluster(), 2)
    with pytest.raises(NotDurable, match=f"{reached} of 2 replicas"):
        attempt(delivery, {A: [1, 1, reached]})
    assert delivery.in_doubt


def test_a_request_of_a_moved_slot_is_sent_to_the_new_server_at_once() -> None:
    topology = cluster()
    delivery = RoundTrip([call(3)], topology, 0)
    assert attempt(delivery, {A: [MovedError(f"{hash_slot(3)} b:2")]}) is None
    assert (delivery.in_doubt, topology.server(3)) == (False, B)
    assert attempt(delivery, {B: [1]}) is None
    assert [reply.resent for reply in delivery.replies if reply] == [False]


def test_a_request_of_a_key_that_moved_ahead_of_its_slot_is_redirected_once_and_the_map_stays() -> None:
    topology = cluster()
    delivery = RoundTrip([call(3)], topology, 0)
    assert attempt(delivery, {A: [AskError(f"{hash_slot(3)} b:2")]}) is None
    assert attempt(delivery, {B: [b"OK", TryAgainError("half")]}) is not None
    assert topology.server(3) == A
    assert list(sent(delivery)) == [A]


def test_a_transaction_is_redirected_as_a_whole_with_the_wait_for_replicas_after_it() -> None:
    delivery = RoundTrip([call(3, prelude=("SET", "tw:{3}:x", 1), durable=True)], cluster(), 1)
    moved = AskError(f"{hash_slot(3)} b:2")
    attempt(delivery, {A: [b"OK", moved, moved, Exception("EXECABORT"), 1, 0]})
    names = [command[0] for command in sent(delivery)[B]]
    assert names == ["ASKING", "MULTI", "SET", "EVALSHA", "EXEC", "ASKING", "EVALSHA", "ASKING", "WAIT"]


def test_replies_to_asking_are_dropped() -> None:
    delivery = RoundTrip([call(3, durable=True)], cluster(), 1)
    attempt(delivery, {A: [AskError(f"{hash_slot(3)} b:2"), 1, 1]})
    assert [command for command in sent(delivery)[B] if command is ASKING] == [ASKING] * 3
    delivery = RoundTrip([call(3, durable=True)], cluster(), 1)
    attempt(delivery, {A: [AskError(f"{hash_slot(3)} b:2"), 1, 1]})
    assert attempt(delivery, {B: [b"OK", 7, b"OK", 1, b"OK", 1]}) is None
    assert values(delivery) == [7]


@pytest.mark.parametrize(
    ("refusal", "elsewhere"),
    [
        (ClusterDownError("down"), True),
        (ReadOnlyError("replica"), True),
        (BusyLoadingError("loading"), True),
        (TryAgainError("half moved"), False),
    ],
)
def test_a_request_refused_temporarily_was_not_executed_and_is_sent_later(refusal: Exception, elsewhere: bool) -> None:
    delivery = RoundTrip([call(3)], cluster(), 0)
    assert attempt(delivery, {A: [refusal]}) is not None
    assert (delivery.in_doubt, delivery.slots_stale) == (False, elsewhere)


def test_a_request_in_doubt_before_a_refusal_stays_in_doubt() -> None:
    delivery = RoundTrip([call(3)], cluster(), 0)
    attempt(delivery, {})
    attempt(delivery, {A: [TryAgainError("half moved")]})
    assert delivery.in_doubt


def test_an_executed_call_stays_in_doubt_if_its_slot_moved_before_the_wait_for_replicas() -> None:
    delivery = RoundTrip([call(3, durable=True)], cluster(), 1)
    assert attempt(delivery, {A: [1, MovedError(f"{hash_slot(3)} b:2"), 1]}) is None
    assert delivery.in_doubt
    attempt(delivery, {B: [1, 1, 1]})
    assert [reply.resent for reply in delivery.replies if reply] == [True]


def test_a_script_that_a_server_lacks_is_loaded_before_the_calls() -> None:
    delivery = RoundTrip([call(3), call(63)], cluster(), 0)
    assert attempt(delivery, {A: [NoScriptError("none")], B: [2]}) is None
    assert not delivery.in_doubt
    assert sent(delivery)[A][0][:2] == ("SCRIPT", "LOAD")
    delivery = RoundTrip([call(3)], cluster(), 0)
    attempt(delivery, {A: [NoScriptError("none")]})
    attempt(delivery, {A: [b"sha", 1]})
    assert values(delivery) == [1]


def test_a_server_gets_its_missing_script_before_the_client_waits_again_for_a_silent_server() -> None:
    delivery = RoundTrip([call(3), call(63)], cluster(), 0)
    assert attempt(delivery, {A: [NoScriptError("none")]}) is None
    # The client sends only to A now. The next attempt returns the error of B.
    assert sent(delivery).keys() == {A}
    delivery = RoundTrip([call(3), call(63)], cluster(), 0)
    attempt(delivery, {A: [NoScriptError("none")]})
    assert isinstance(attempt(delivery, {A: [b"sha", 1]}), ConnectionError)
    assert values(delivery) == [1, None]
    assert sent(delivery).keys() == {B}


def test_a_server_that_keeps_lacking_a_script_delays_no_other() -> None:
    delivery = RoundTrip([call(3), call(63)], cluster(), 0)
    attempt(delivery, {A: [NoScriptError("none")], B: [TryAgainError("half moved")]})
    assert isinstance(attempt(delivery, {A: [b"sha", NoScriptError("none")]}), TemporaryError)
    assert sent(delivery).keys() == {A, B}


def test_a_server_that_refuses_a_script_ends_the_round_trip() -> None:
    delivery = RoundTrip([call(3)], cluster(), 0)
    attempt(delivery, {A: [NoScriptError("none")]})
    with pytest.raises(Forbidden, match="no permissions"):
        attempt(delivery, {A: [NoPermissionError("no permissions to load"), NoScriptError("none")]})


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (call(3), "EVALSHA of the script replication_barrier"),
        (Request(3, command=("HGET", "tw:{3}:clock", "high")), "HGET"),
    ],
    ids=["script", "plain"],
)
def test_the_refusal_of_a_key_names_the_namespace_and_the_command(request_: Request, command: str) -> None:
    delivery = RoundTrip([request_], cluster(), 0)
    with pytest.raises(Forbidden, match=rf"No permissions to access a key; .* namespace 'tw' \(command: {command}\)"):
        attempt(delivery, {A: [NoPermissionError("No permissions to access a key")]})


def test_the_refusal_of_a_command_does_not_name_the_namespace() -> None:
    delivery = RoundTrip([Request(3, command=("HGET", "tw:{3}:clock", "high"))], cluster(), 0)
    with pytest.raises(Forbidden, match=r"permissions to run the 'hget' command$"):
        attempt(delivery, {A: [NoPermissionError("User x has no permissions to run the 'hget' command")]})


@pytest.mark.parametrize("refusal", [BusyLoadingError("loading"), ResponseError("BUSY running a script")])
def test_a_script_refused_temporarily_is_sent_again(refusal: Exception) -> None:
    delivery = RoundTrip([call(3)], cluster(), 0)
    attempt(delivery, {A: [NoScriptError("none")]})
    assert isinstance(attempt(delivery, {A: [refusal, NoScriptError("none")]}), TemporaryError)
    assert not delivery.in_doubt
    assert attempt(delivery, {A: [b"sha", 1]}) is None
    assert values(delivery) == [1]


def test_a_script_missing_on_the_new_server_of_a_slot_is_loaded_there_before_the_call() -> None:
    delivery = RoundTrip([call(3)], cluster(), 0)
    attempt(delivery, {A: [AskError(f"{hash_slot(3)} b:2")]})
    assert attempt(delivery, {B: [b"OK", NoScriptError("none")]}) is None
    # The replies to the script, to ASKING, and to the call.
    assert attempt(delivery, {B: [b"sha", b"OK", 1]}) is None
    assert values(delivery) == [1]


def test_circular_redirects_are_retried_after_a_while() -> None:
    delivery = RoundTrip([call(3)], cluster(), 0)
    moved: dict[str, list[object]] = {A: [MovedError(f"{hash_slot(3)} b:2")], B: [MovedError(f"{hash_slot(3)} a:1")]}
    redirects = 0
    while attempt(delivery, moved) is None:
        redirects += 1
        assert redirects < 10
    assert delivery.slots_stale


def test_a_shard_without_a_server_is_retried() -> None:
    topology = cluster()
    topology.update_from_cluster_slots(HALVES[1:], B)
    delivery = RoundTrip([call(3), call(63)], topology, 0)
    assert "no server of the cluster has shard 3" in str(attempt(delivery, {B: [2]}))
    assert (values(delivery), delivery.in_doubt, delivery.slots_stale) == ([None, 2], False, True)


def test_a_permanent_refusal_ends_the_round_trip_once_all_replies_are_read() -> None:
    delivery = RoundTrip([call(3), call(63)], cluster(), 0)
    with pytest.raises(OutOfMemory):
        attempt(delivery, {A: [OutOfMemoryError("full")], B: [2]})
    assert values(delivery) == [None, 2]


def test_a_url_of_one_server_is_refused_by_a_cluster() -> None:
    with pytest.raises(TickwheelError, match=r"redis\+cluster://"):
        attempt(RoundTrip([call(3)], Topology(), 0), {"": [MovedError(f"{hash_slot(3)} b:2")]})


def test_a_call_executed_by_one_server_may_have_happened_though_the_other_was_never_reached() -> None:
    delivery = RoundTrip([call(3, durable=True), call(63, durable=True)], cluster(), 0)
    parcels = delivery.next_batches()
    for parcel in parcels:
        if parcel.server == A:
            delivery.mark_sent(parcel)
            delivery.on_answers(parcel, 0, parcel.requests[0][1], [1])
        else:
            # No connection could be opened, so the request was never sent.
            delivery.on_connection_lost(parcel, ConnectionError("refused"))
    assert delivery.in_doubt


def test_a_call_with_refusals_only_has_not_happened() -> None:
    delivery = RoundTrip([call(3, durable=True), call(63, durable=True)], cluster(), 0)
    for parcel in delivery.next_batches():
        if parcel.server == A:
            delivery.mark_sent(parcel)
            delivery.on_answers(parcel, 0, parcel.requests[0][1], [ResponseError("BLOCKED the queue is blocked")])
        else:
            delivery.on_connection_lost(parcel, ConnectionError("refused"))
    assert not delivery.in_doubt


def test_reads_leave_nothing_in_doubt() -> None:
    delivery = RoundTrip([call(3), call(63, durable=True)], cluster(), 0)
    for parcel in delivery.next_batches():
        if parcel.server == A:
            delivery.mark_sent(parcel)
            delivery.on_answers(parcel, 0, parcel.requests[0][1], [7])
        else:
            delivery.on_connection_lost(parcel, ConnectionError("refused"))
    assert not delivery.in_doubt


def test_a_call_with_an_earlier_executed_round_trip_may_have_happened() -> None:
    delivery = RoundTrip([call(3, durable=True)], cluster(), 0, already_applied=True)
    assert delivery.in_doubt


def test_in_a_partial_round_trip_a_silent_server_is_tried_twice() -> None:
    topology = cluster()
    delivery = RoundTrip([call(3), call(63)], topology, 0, allow_partial=True)
    assert attempt(delivery, {A: [1]}) is not None
    assert delivery.slots_stale
    assert not delivery.is_done
    delivery.mark_slots_fresh()
    assert sent(delivery).keys() == {B}
    assert attempt(delivery, {}) is not None
    assert delivery.is_done
    assert values(delivery) == [1, None]


def test_a_partial_round_trip_waits_for_its_first_answer() -> None:
    delivery = RoundTrip([call(3), call(63)], cluster(), 0, allow_partial=True)
    for _ in range(3):
        attempt(delivery, {})
        assert not delivery.is_done
