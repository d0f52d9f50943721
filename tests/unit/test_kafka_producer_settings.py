"""The settings of both Kafka producers of an event process that a user cannot change."""

from typing import Any

import confluent_kafka
import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.kafka.producer import KafkaProducers

pytestmark = pytest.mark.unit

Settings = dict[str, str]


@pytest.fixture
def producer_settings(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of each producer that is created."""
    created: list[Settings] = []
    producer = confluent_kafka.Producer

    def noted(settings: Settings, **more: Any) -> confluent_kafka.Producer:
        created.append(settings)
        return producer(settings, **more)

    monkeypatch.setattr(confluent_kafka, "Producer", noted)
    return created


def test_the_producers_of_relay_and_sinks_are_idempotent_and_wait_for_all_replicas(
    producer_settings: list[Settings],
) -> None:
    broker = KafkaProducers("localhost:1", overrides={"linger.ms": "7"})
    broker.sink_producers()
    broker.close()
    assert len(producer_settings) == 2
    for settings in producer_settings:
        assert settings["linger.ms"] == "7"
        assert settings["enable.idempotence"] == "true"
        assert settings["acks"] == "all"
        assert settings["message.timeout.ms"] == "0"


def test_only_the_producer_of_the_relay_never_fills_a_gap_later(producer_settings: list[Settings]) -> None:
    broker = KafkaProducers("localhost:1")
    broker.sink_producers()
    broker.close()
    assert [settings.get("enable.gapless.guarantee") for settings in producer_settings] == ["true", None]


@pytest.mark.parametrize("bootstrap", ["", " ", "user:password@host:1", "host\udcff:1", b"host:1", None])
def test_brokers_that_are_no_addresses_are_refused(bootstrap: Any) -> None:
    with pytest.raises(InvalidArgument):
        KafkaProducers(bootstrap)


@pytest.mark.parametrize("setting", [("client.id", "\udcff"), ("\udcff", "x")])
def test_a_setting_that_is_not_unicode_is_refused(setting: tuple[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="must be valid Unicode text"):
        KafkaProducers("localhost:1", overrides=dict([setting]))
