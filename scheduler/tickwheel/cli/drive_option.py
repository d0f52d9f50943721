"""The options that decide whether `tickwheel worker` and `tickwheel serve` drive the namespace, and how."""

import logging
from enum import StrEnum
from typing import Annotated, Protocol

import typer

from tickwheel.cli.kafka_options import KafkaConfig, KafkaSetting, SinkTopics, Topic, require_kafka
from tickwheel.client.last_resort import LastResortOptions
from tickwheel.errors import InvalidArgument
from tickwheel.kafka.options import KafkaOptions
from tickwheel.kafka.settings import warn_about_secrets


class Drive(StrEnum):
    """Whether a program drives the namespace if nobody else does."""

    AUTO = "auto"
    NEVER = "never"


DriveOption = Annotated[
    Drive,
    typer.Option(
        help="With auto (default), a child process drives the timing wheel while no event process (tickwheel events)"
        " does. With never, this program does not drive, so another one must."
    ),
]
DriveKafka = Annotated[
    str | None,
    typer.Option(
        "--kafka",
        metavar="HOST:PORT",
        help="Kafka brokers, separated by commas. With --drive auto, the child process then also drives a namespace"
        " that relays its history or has queues with a sink. Use the options for Kafka of the event processes.",
    ),
]


class DriveOptions(Protocol):
    """The options of a command that drives."""

    @property
    def drive(self) -> Drive: ...
    @property
    def kafka(self) -> DriveKafka: ...
    @property
    def topic(self) -> Topic: ...
    @property
    def kafka_setting(self) -> KafkaSetting: ...
    @property
    def kafka_config(self) -> KafkaConfig: ...
    @property
    def sink_topics(self) -> SinkTopics: ...


def last_resort_options(options: DriveOptions, log: logging.Logger, *, json: bool) -> LastResortOptions | None:
    """Return how the program drives as a last resort; None if it never drives. ``log`` is the log of the program.

    Raises InvalidArgument for options that contradict each other, or that Kafka's client would refuse.
    """
    kafka = options.kafka
    require_kafka(
        kafka,
        {
            "--topic": options.topic,
            "--kafka-setting": options.kafka_setting,
            "--kafka-config": options.kafka_config,
            "--sink-topics": options.sink_topics,
        },
    )
    if options.drive is Drive.NEVER:
        if kafka is not None:
            raise InvalidArgument("--kafka is for a program that drives: it excludes --drive never")
        return None
    if kafka is None:
        return LastResortOptions(json=json)
    kafka_options = KafkaOptions.make(
        kafka, options.topic, options.kafka_setting, options.sink_topics, options.kafka_config
    )
    kafka_options.check()
    warn_about_secrets(kafka_options.settings, log)
    return LastResortOptions(kafka_options, json)
