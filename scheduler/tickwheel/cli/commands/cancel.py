"""`tickwheel cancel`: cancel messages that are no longer needed."""

from typing import Annotated

import typer

from tickwheel import InvalidTransition, MessageNotFound, TickwheelError
from tickwheel.cli.arguments import ExclusiveValue, Name
from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import CommandError, exit_code
from tickwheel.cli.message_output import print_change
from tickwheel.cli.target import Target


@command(
    "cancel",
    "tickwheel cancel orders order-17",
    "tickwheel cancel encode film-3 film-4 --exclusive-value project-9 --release",
)
def cancel(
    target: Target,
    queue: Name,
    ids: Annotated[list[str], typer.Argument(help="Ids of the messages.", metavar="ID...", show_default=False)],
    exclusive_value: ExclusiveValue = None,
    release: Annotated[
        bool, typer.Option("--release", help="Free the exclusive value of a running message immediately.")
    ] = False,
) -> None:
    """Cancel messages that are not finished. Repeating the command is safe.

    The command tries to cancel every message. If some are rejected, it reports the first reason.
    """
    errors: list[TickwheelError] = []
    with target.open() as tickwheel:
        for id in ids:
            try:
                change = tickwheel.queue(queue).cancel(id, exclusive_value, release=release)
            except (MessageNotFound, InvalidTransition) as error:
                errors.append(error)
            else:
                print_change(target, change)
    if errors:
        more = f"; and {len(errors) - 1} more were rejected" if len(errors) > 1 else ""
        raise CommandError(f"{errors[0]}{more}", exit_code(errors[0])) from errors[0]
