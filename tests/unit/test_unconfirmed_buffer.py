"""The messages for unconfirmed sinks take a limited part of the buffer that all shards share."""

from contextlib import closing

import pytest

from tests.unit.test_sinks import URL, LimitedSink, message
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.sinks.in_flight_messages import InFlightMessages
from tickwheel.sinks.registry import SinkRegistry
from tickwheel.sinks.sink import DeliveryStatus
from tickwheel.sinks.unconfirmed_buffer import RECORD_BYTES, UnconfirmedBuffer

pytestmark = pytest.mark.unit

OTHER = "kafka://other"


def take_all(buffer: UnconfirmedBuffer, shard: int, size: int = 0) -> int:
    """Take room for as many messages as there is room for, and return their number."""
    count = 0
    while buffer.take(shard, size):
        count += 1
    return count


def test_shards_share_the_room_and_one_that_was_refused_gets_its_share_first() -> None:
    buffer = UnconfirmedBuffer(10 * RECORD_BYTES)
    assert take_all(buffer, 0) == 10
    assert not buffer.take(1, 0)
    for _ in range(5):
        buffer.release(0, 0)
    buffer.release(0, 0)
    # The first shard has less than its half.
    assert buffer.take(0, 0)
    assert (take_all(buffer, 0), take_all(buffer, 1)) == (0, 5)
    for _ in range(5):
        buffer.release(1, 0)
    # The second shard was refused once more, so its half remains free until it no longer waits.
    assert take_all(buffer, 0) == 0
    buffer.leave(1)
    assert take_all(buffer, 0) == 5


def test_a_shard_has_room_although_many_others_have_little() -> None:
    buffer = UnconfirmedBuffer(100 * RECORD_BYTES)
    assert all(buffer.take(shard, 0) for shard in range(50))
    assert take_all(buffer, 50) == 50


def test_a_shard_that_no_longer_waits_has_no_share() -> None:
    buffer = UnconfirmedBuffer(10 * RECORD_BYTES)
    assert take_all(buffer, 0) == 10
    assert not buffer.take(1, 0)
    buffer.leave(1)
    buffer.leave(0)
    buffer.release(0, 0)
    assert (take_all(buffer, 0), take_all(buffer, 0)) == (1, 0)


def test_a_message_that_is_larger_than_the_room_can_be_sent() -> None:
    buffer = UnconfirmedBuffer(1)
    assert (take_all(buffer, 0, 10**6), take_all(buffer, 1, 10**6)) == (1, 0)
    buffer.release(0, 10**6)
    assert take_all(buffer, 1, 10**6) == 1


@pytest.mark.parametrize(
    ("overrides", "mib"),
    [
        ({}, 32),
        ({"queue.buffering.max.kbytes": "8192"}, 4),
        ({"queue.buffering.max.kbytes": "0x2000"}, 4),
        # The library reads this as an octal number.
        ({"queue.buffering.max.kbytes": "020000"}, 4),
        # The library accepts this, and reads the number before the point.
        ({"queue.buffering.max.kbytes": "8192.5"}, 32),
        ({"queue.buffering.max.messages": "0"}, 32),
        # With 2,048 records of at least 1 KiB each.
        ({"queue.buffering.max.messages": "2048"}, 1),
    ],
)
def test_the_unconfirmed_sinks_have_half_of_the_buffer_of_kafkas_client(overrides: dict[str, str], mib: int) -> None:
    with closing(KafkaProducers("127.0.0.1:1", overrides=overrides)) as producers:
        buffer = SinkRegistry("tw", producers).unconfirmed_buffer
        assert take_all(buffer, 0, 2**18 - RECORD_BYTES) == 4 * mib


def test_a_message_without_room_delays_no_message_for_a_confirmed_sink() -> None:
    in_flight = InFlightMessages(lambda: None, 0, UnconfirmedBuffer(1))
    unconfirmed, confirmed = LimitedSink(9), LimitedSink(9)
    in_flight.add(OTHER, confirmed, [message("confirms")], 30_000, 0)
    in_flight.send()
    confirmed.callbacks[0](DeliveryStatus.ACKNOWLEDGED, "")
    in_flight.drain_answers()
    for name in ("a", "b"):
        in_flight.add(f"{URL}-{name}", unconfirmed, [message(name)], 30_000, 0)
    in_flight.add(OTHER, confirmed, [message("c")], 30_000, 0)
    in_flight.send()
    assert (len(unconfirmed.callbacks), len(confirmed.callbacks), len(in_flight.held_back)) == (1, 2, 1)
    assert in_flight.sinks.limit(OTHER) > 200
    # An answer makes room, in whatever thread it arrives.
    unconfirmed.callbacks[0](DeliveryStatus.REFUSED, "no such topic")
    in_flight.send()
    assert (len(unconfirmed.callbacks), len(in_flight.held_back)) == (2, 0)


def test_a_message_that_is_not_sent_any_more_releases_its_room() -> None:
    buffer = UnconfirmedBuffer(1)
    full, one, another = LimitedSink(0), message("a"), message("b")
    in_flight = InFlightMessages(lambda: None, 0, buffer)
    in_flight.add(URL, full, [one], 30_000, 0)
    in_flight.add(OTHER, LimitedSink(9), [another], 30_000, 0)
    in_flight.send()
    assert (list(in_flight.unsent), list(in_flight.held_back)) == ([one], [another])
    # Their leases are lost.
    in_flight.on_settled([one, another])
    in_flight.send()
    assert (len(in_flight.unsent), len(in_flight.held_back), take_all(buffer, 1)) == (0, 0, 1)


def test_a_forwarder_that_ends_releases_the_room_of_messages_that_it_has_not_sent() -> None:
    buffer = UnconfirmedBuffer(1)
    in_flight = InFlightMessages(lambda: None, 0, buffer)
    in_flight.add(URL, LimitedSink(0), [message("a")], 30_000, 0)
    in_flight.add(OTHER, LimitedSink(9), [message("b")], 30_000, 0)
    in_flight.send()
    assert take_all(buffer, 1) == 0
    in_flight.forget_unsent()
    assert take_all(buffer, 1) == 1


def test_a_message_whose_answer_is_unknown_takes_its_room_again() -> None:
    buffer, sink = UnconfirmedBuffer(1), LimitedSink(2)
    in_flight = InFlightMessages(lambda: None, 0, buffer)
    in_flight.add(URL, sink, [message("a")], 30_000, 0)
    in_flight.send()
    sink.callbacks[0](DeliveryStatus.UNKNOWN, "")
    in_flight.drain_answers()
    in_flight.send()
    assert (len(sink.callbacks), take_all(buffer, 1)) == (2, 0)
    sink.callbacks[1](DeliveryStatus.ACKNOWLEDGED, "")
    assert take_all(buffer, 1) == 1
