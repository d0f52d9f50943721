"""The options `--drive` and `--kafka` of `tickwheel worker` and `tickwheel serve`."""

from enum import StrEnum
from typing import Annotated

import typer

from tickwheel.client.last_resort import LastResortOptions
from tickwheel.errors import InvalidArgument


class Drive(StrEnum):
    """Whether a program drives the namespace if nobody else does."""

    AUTO = "auto"
    NEVER = "never"


DriveOption = Annotated[
    Drive,
    typer.Option(
        help="With auto (default), a child process drives the timing wheel while no event process (tickwheel events)"
        " does. With never, an event process is always needed."
    ),
]
DriveKafka = Annotated[
    str | None,
    typer.Option(
        "--kafka",
        metavar="HOST:PORT",
        help="Kafka brokers, separated by commas. With --drive auto, the child process then also drives a namespace"
        " that relays its history or has queues with a sink.",
    ),
]


def last_resort_options(drive: Drive, kafka: str | None, *, json: bool) -> LastResortOptions | None:
    """Return how the program drives as a last resort; None if it never drives. Raises InvalidArgument."""
    if drive is Drive.NEVER:
        if kafka is not None:
            raise InvalidArgument("--kafka is for a program that drives: it excludes --drive never")
        return None
    return LastResortOptions(kafka, json)
