"""Sinks: their URLs, the Kafka record of a message, and the messages in flight."""

from contextlib import closing

import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.kafka.library import TOPIC
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.model.queue_config import QueueConfig, parse
from tickwheel.sinks.confirmed_sinks import BYTES
from tickwheel.sinks.in_flight_messages import EXTENDED_AT_ONCE, InFlightMessages
from tickwheel.sinks.kafka_sink import KafkaSink, headers, key
from tickwheel.sinks.sink import DeliveryCallback, DeliveryStatus, SinkMessage
from tickwheel.sinks.unconfirmed_buffer import UnconfirmedBuffer
from tickwheel.storage.record import FIXED, HEAD, OWNED, State, encode_pairs

pytestmark = pytest.mark.unit

URL = "kafka://orders"
OTHER = "kafka://other"


def message(id_: str = "m", value: str | None = None, body: bytes = b"") -> SinkMessage:
    """Return a leased message of incarnation 2^32 + 7, due at 1 s."""
    head = HEAD.pack(State.RUNNING, OWNED, 2, 1, 0, 5_000)
    record = head + bytes(16) + b"\4sink" + FIXED.pack(1, 7, 0, 1_000, bytes(8), 0) + b"payload"
    name = id_.encode() if value is None else len(value).to_bytes(2) + value.encode() + id_.encode()
    return SinkMessage("q", b"\0\1" + name, record, body, value is not None)


class LimitedSink:
    """A sink that accepts ``limit`` messages, and records their callbacks."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.callbacks: list[DeliveryCallback] = []

    def send(self, _: SinkMessage, on_delivery: DeliveryCallback) -> bool:
        if len(self.callbacks) == self.limit:
            return False
        self.callbacks.append(on_delivery)
        return True


@pytest.mark.parametrize("url", ["kafka://orders", "kafka://A.b_c-9", "kafka://" + "t" * 249])
def test_every_kafka_topic_name_is_a_sink(url: str) -> None:
    assert parse({"sink": url}).sink == url


@pytest.mark.parametrize(
    "url",
    [
        *("kafka://", "kafka://.", "kafka://..", "kafka://a/b", "kafka://host:9092/topic", "kafka://ü", "kafka://a\n"),
        *("kafka:orders", "orders", "KAFKA://orders", "kafka://" + "t" * 250, 7, b"kafka://orders", True),
    ],
)
def test_every_other_sink_is_refused(url: object) -> None:
    with pytest.raises(InvalidArgument, match="sink"):
        parse({"sink": url})


def test_a_sink_of_rabbitmq_is_refused_and_the_error_lists_the_sinks() -> None:
    with pytest.raises(InvalidArgument, match=r"amqp.* is not supported: the url of a sink starts with kafka://"):
        parse({"sink": "amqp://orders"})


def test_the_topic_of_the_transitions_is_refused_as_a_sink() -> None:
    with pytest.raises(InvalidArgument, match=r"kafka://tickwheel\.transitions.* is not allowed"):
        parse({"sink": f"kafka://{TOPIC}"})


def test_an_update_without_a_sink_keeps_the_sink_and_an_empty_sink_removes_it() -> None:
    existing = parse({"sink": "kafka://orders"})
    assert parse({"max_attempts": 3}, existing).sink == "kafka://orders"
    assert parse({"sink": ""}, existing).sink is None


def test_a_configuration_from_before_sinks_existed_has_none() -> None:
    stored = QueueConfig().to_bytes().replace(b', "sink": null', b"")
    assert b"sink" not in stored
    assert QueueConfig.from_bytes("q", bytes(10) + stored).sink is None


def test_the_key_of_a_record_is_the_exclusive_value_or_the_id() -> None:
    assert key(message("m")) == b"m"


def test_headers_distinguish_two_lives_of_an_id() -> None:
    headers_of_message = dict(headers("tw", message()))
    assert headers_of_message["tickwheel-incarnation"] == b"%d" % (2**32 + 7)
    assert (headers_of_message["tickwheel-due"], headers_of_message["tickwheel-attempt"]) == (b"1000", b"1")


def test_the_trace_of_a_message_has_separate_headers() -> None:
    one = message()
    one._pairs = encode_pairs({"region": "eu", "traceparent": "00-1-2-01"})
    headers_of_message = dict(headers("tw", one))
    assert (headers_of_message["traceparent"], headers_of_message["tickwheel-metadata-region"]) == (b"00-1-2-01", b"eu")
    assert "tickwheel-metadata-traceparent" not in headers_of_message


@pytest.mark.parametrize("pairs", [b"\0", b"\0\1", b"\0\5\1k\xff\xff\xff"])
def test_a_message_whose_metadata_is_damaged_is_refused(pairs: bytes) -> None:
    answers: list[tuple[DeliveryStatus, str]] = []
    one = message()
    one._pairs = pairs
    with closing(KafkaProducers("127.0.0.1:1")) as producers:
        assert KafkaSink(producers, "tw", "orders").send(one, lambda *answer: answers.append(answer))
    [(status, reason)] = answers
    assert status is DeliveryStatus.REFUSED
    assert reason.startswith("the metadata of message 'm' of queue 'q' is damaged: ")


def test_a_message_is_sent_again_if_another_shard_closes_the_producer_while_the_message_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[tuple[DeliveryStatus, str]] = []
    with closing(KafkaProducers("127.0.0.1:1")) as broker:
        producers = broker.sink_producers()
        sink = KafkaSink(producers, "tw", "orders")
        producer = producers.producer()
        with monkeypatch.context() as patch:
            # The sink has the producer already when another shard discards it.
            patch.setattr(producers, "producer", lambda: producer)
            producers.discard(producer)
            assert not sink.send(message(), lambda *answer: answers.append(answer))
        assert sink.send(message(), lambda *answer: answers.append(answer))
    # The answer of the new producer, which was closed before it reached a broker.
    assert answers == [(DeliveryStatus.UNKNOWN, "")]


def test_a_message_is_held_until_it_is_settled_and_sent_again_if_its_outcome_is_unknown() -> None:
    woken: list[bool] = []
    in_flight = InFlightMessages(lambda: woken.append(True), 0, UnconfirmedBuffer(BYTES))
    sink, one = LimitedSink(2), message()
    in_flight.add(URL, sink, [one], 30_000, 0)
    in_flight.send()
    sink.callbacks[0](DeliveryStatus.UNKNOWN, "")
    in_flight.drain_answers()
    assert (len(in_flight), list(in_flight.held_back), woken) == (1, [one], [True])
    in_flight.send()
    sink.callbacks[1](DeliveryStatus.ACKNOWLEDGED, "")
    in_flight.drain_answers()
    assert in_flight.acknowledged == [one]
    in_flight.on_settled([one])
    assert (len(in_flight), in_flight.is_blocked) == (0, False)


def test_nothing_is_leased_while_a_sink_has_no_room() -> None:
    in_flight = InFlightMessages(lambda: None, 0, UnconfirmedBuffer(2 * BYTES))
    in_flight.add(URL, LimitedSink(1), [message("a"), message("b")], 30_000, 0)
    in_flight.send()
    assert (len(in_flight.unsent), in_flight.is_blocked) == (1, True)


def test_nothing_is_leased_while_the_held_messages_are_at_their_limit() -> None:
    in_flight, half = InFlightMessages(lambda: None, 0, UnconfirmedBuffer(2 * BYTES)), bytes(BYTES // 2)
    one, another = message("a", body=half), message("b", body=half)
    in_flight.add(URL, LimitedSink(9), [one], 30_000, 0)
    in_flight.send()
    assert in_flight.sinks.limit(OTHER) == 0
    in_flight.on_settled([one])
    assert in_flight.sinks.limit(OTHER) == 1
    in_flight.add(OTHER, LimitedSink(9), [another], 30_000, 0)
    assert in_flight.sinks.limit(URL) == 0


def test_settled_messages_make_room_for_as_many_others() -> None:
    in_flight, sink = InFlightMessages(lambda: None, 0, UnconfirmedBuffer(2 * BYTES)), LimitedSink(9)
    for _ in range(3):
        large = message(body=bytes(BYTES))
        in_flight.add(URL, sink, [large], 30_000, 0)
        in_flight.send()
        assert in_flight.sinks.limit(OTHER) == 0
        in_flight.on_settled([large])
        # A settled message whose lease is lost is reported a second time, which has no effect.
        in_flight.on_settled([large])
        assert in_flight.sinks.limit(OTHER) == 1


def test_leases_are_extended_after_a_third_of_their_time() -> None:
    in_flight = InFlightMessages(lambda: None, 0, UnconfirmedBuffer(2 * BYTES))
    in_flight.add(URL, LimitedSink(9), [message("a"), message("b")], 30_000, now=100)
    assert in_flight.next_extension() == 10_100
    [batch] = in_flight.to_extend(10_100)
    batch.on_extended(10_100)
    assert (in_flight.to_extend(20_000), in_flight.next_extension()) == ([], 20_100)


def test_few_leases_are_extended_at_once_those_that_are_urgent_first_and_no_urgent_one_waits() -> None:
    in_flight, sink = InFlightMessages(lambda: None, 0, UnconfirmedBuffer(2 * BYTES)), LimitedSink(9)
    for n in range(3 * EXTENDED_AT_ONCE):
        in_flight.add(URL, sink, [message(f"long-{n}")], 30_000, 0)
    for n in range(2 * EXTENDED_AT_ONCE):
        in_flight.add(URL, sink, [message(f"short-{n}")], 15_000, 0)
    first = in_flight.to_extend(14_999 / 3 * 2)
    assert [batch.lease_ms for batch in first] == [15_000] * EXTENDED_AT_ONCE
    for batch in first:
        batch.on_extended(10_000)
    # The others with short leases are urgent, but those with long leases only have to be extended.
    assert [batch.lease_ms for batch in in_flight.to_extend(10_000)] == [15_000] * EXTENDED_AT_ONCE
    assert len(in_flight.to_extend(20_000)) == 5 * EXTENDED_AT_ONCE
    assert in_flight.next_extension() == 5_000
