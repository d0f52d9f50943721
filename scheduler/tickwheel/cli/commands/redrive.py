"""`tickwheel redrive`: retry errored messages."""

from typing import Annotated

import typer

from tickwheel import InvalidArgument, InvalidTransition, MessageNotFound
from tickwheel.cli.arguments import ExclusiveValue, Name
from tickwheel.cli.command import command
from tickwheel.cli.message_output import print_change
from tickwheel.cli.target import Target


@command("redrive", "tickwheel redrive orders order-17", "tickwheel redrive orders --all")
def redrive(
    target: Target,
    queue: Name,
    id: Annotated[str | None, typer.Argument(help="The message's id.", metavar="[ID]")] = None,
    exclusive_value: ExclusiveValue = None,
    all: Annotated[bool, typer.Option("--all", help="Redrive every errored message of the queue.")] = False,
) -> None:
    """Move an errored message back to Pending, and count its attempts from zero again."""
    if all == (id is not None):
        raise InvalidArgument("use either the id of a message, or --all")
    with target.open() as tickwheel:
        handle = tickwheel.queue(queue)
        if id is not None:
            print_change(target, handle.redrive(id, exclusive_value))
            return
        redriven = 0
        for message in handle.messages("errored"):
            try:
                change = handle.redrive(message.id, message.exclusive_value)
            except (MessageNotFound, InvalidTransition):
                # Another caller has redriven the message, or its retention has ended.
                continue
            redriven += 1
            if target.json:
                print_change(target, change)
    if not target.json:
        print(f"{redriven:,} redriven")
