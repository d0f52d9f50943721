"""The options for Kafka that `tickwheel events`, `tickwheel worker` and `tickwheel serve` share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tickwheel.errors import InvalidArgument
from tickwheel.kafka.library import TOPIC

Topic = Annotated[str | None, typer.Option(help=f"Topic of the transitions (default {TOPIC}).")]
SinkTopics = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Deliver messages only to sinks whose topic matches this shell pattern (default *); may be repeated.",
    ),
]
KafkaSetting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Setting of Kafka's client, like security.protocol=SSL; may be repeated."),
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with settings of Kafka's client, one NAME=VALUE on each line: for passwords, which every user of the"
        " host could read in --kafka-setting.",
    ),
]


def require_kafka(kafka: str | None, options: Mapping[str, object]) -> None:
    """Raise InvalidArgument for a used option, by its name, that has no effect without --kafka."""
    if kafka is None:
        for name, value in options.items():
            if value:
                raise InvalidArgument(f"{name} is for Kafka: it needs --kafka")
