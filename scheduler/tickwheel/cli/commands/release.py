"""`tickwheel release`: return a leased message without counting the attempt."""

from typing import Annotated

import typer

from tickwheel import Queue
from tickwheel.cli.arguments import ExclusiveValue, Name, Token
from tickwheel.cli.command import command
from tickwheel.cli.leased_messages import settle
from tickwheel.cli.target import Target


@command(
    "release",
    "tickwheel release orders order-17 --token 5f3a... --exclusive-value 42",
    "tickwheel release orders - < batch.jsonl",
)
def release(
    target: Target,
    queue: Name,
    id: Annotated[
        str,
        typer.Argument(
            help="The message's id, or - to read the output of `dequeue --json` from standard input.", metavar="ID|-"
        ),
    ],
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
) -> None:
    """Release a message, as if it had not been delivered.

    The message is pending immediately, and the attempt is not counted.
    """
    settle(target, queue, (id, token, exclusive_value), "released", Queue.release_many)
