"""`tickwheel complete`: a worker has done what a message asks for."""

from typing import Annotated

import typer

from tickwheel import Message, Queue
from tickwheel.cli.arguments import ExclusiveValue, Name, Token
from tickwheel.cli.command import command
from tickwheel.cli.leased_messages import settle
from tickwheel.cli.target import Target

commands = typer.Typer()


@command(
    commands,
    "complete",
    "tickwheel complete orders order-17 --token 5f3a... --exclusive-value 42 --result 'card 4711'",
    "tickwheel dequeue orders --limit 100 --json | tickwheel complete orders -",
    panel="Messages",
)
def complete(
    target: Target,
    queue: Name,
    id: Annotated[str, typer.Argument(help="The message's id; - reads what dequeue --json printed.", metavar="ID|-")],
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
    result: Annotated[
        str | None, typer.Option(help="What came of it, up to 1 KiB; kept with the message. With -, of each.")
    ] = None,
) -> None:
    """Complete a message that was dequeued. Again is fine."""

    def complete_all(queue: Queue, messages: list[Message]) -> None:
        queue.complete_many(messages, None if result is None else [result] * len(messages))

    settle(target, queue, (id, token, exclusive_value), "completed", complete_all)
