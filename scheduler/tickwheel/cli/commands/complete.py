"""`tickwheel complete`: complete leased messages."""

from typing import Annotated

import typer

from tickwheel.cli.arguments import ExclusiveValue, Name, Token
from tickwheel.cli.command import command
from tickwheel.cli.leased_messages import settle
from tickwheel.cli.target import Target


@command(
    "complete",
    "tickwheel complete orders order-17 --token 5f3a... --exclusive-value 42 --result 'card 4711'",
    "tickwheel dequeue orders --limit 100 --json | tickwheel complete orders -",
)
def complete(
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
    result: Annotated[str | None, typer.Option(help="Result to store with each message, up to 1 KiB.")] = None,
) -> None:
    """Complete a message that was dequeued. Repeating the command is safe."""
    settle(
        target,
        queue,
        (id, token, exclusive_value),
        "completed",
        lambda handle, messages: handle.complete_many(messages, None if result is None else [result] * len(messages)),
    )
