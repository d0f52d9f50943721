"""`tickwheel reschedule`: change the due time or deadline of a message."""

from datetime import datetime, timedelta
from typing import Annotated

import typer

from tickwheel.cli.arguments import ExclusiveValue, Id, Name
from tickwheel.cli.command import command
from tickwheel.cli.driver_warning import warn_if_undriven
from tickwheel.cli.message_output import print_change
from tickwheel.cli.parameter_types import deadline as parse_deadline, delay as parse_delay, moment, option_parser
from tickwheel.cli.target import Target


@command(
    "reschedule",
    "tickwheel reschedule orders order-17 --delay 30m",
    "tickwheel reschedule reports r-1 --due 2026-05-18T06:00:00Z --deadline 15m",
)
def reschedule(
    target: Target,
    queue: Name,
    id: Id,
    exclusive_value: ExclusiveValue = None,
    delay: Annotated[
        timedelta | None,
        typer.Option(parser=option_parser(parse_delay), metavar="DURATION", help="New delay, counted from now."),
    ] = None,
    due: Annotated[
        datetime | None,
        typer.Option(
            parser=option_parser(moment),
            metavar="TIME",
            help="New due time in ISO 8601; without an offset, it is local time.",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME|DURATION", help="New deadline. A duration counts from now; -10d is ten days ago."),
    ] = None,
) -> None:
    """Set a new due time, a new deadline, or both, for a message that is Invisible or Pending."""
    until = None if deadline is None else parse_deadline(deadline)
    with target.open() as tickwheel:
        change = tickwheel.queue(queue).reschedule(id, exclusive_value, delay=delay, due=due, deadline=until)
        if change.state == "invisible":
            warn_if_undriven(tickwheel)
    print_change(target, change)
