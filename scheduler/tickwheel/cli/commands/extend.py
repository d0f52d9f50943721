"""`tickwheel extend`: extend the lease of a message."""

from datetime import timedelta
from typing import Annotated

import typer

from tickwheel.cli.arguments import ExclusiveValue, Id, Name, Token
from tickwheel.cli.command import command
from tickwheel.cli.leased_messages import resume_lease
from tickwheel.cli.output import format_moment, print_json
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.target import Target
from tickwheel.runtime.text_escape import escape_unprintable


@command("extend", "tickwheel extend orders order-17 5m --token 5f3a...")
def extend(
    target: Target,
    queue: Name,
    id: Id,
    by: Annotated[
        timedelta,
        typer.Argument(
            parser=option_parser(parse_duration), metavar="DURATION", help="Duration of the lease, from now."
        ),
    ],
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
) -> None:
    """Extend a lease, and print when it ends.

    The lease ends DURATION from now, unless it already ends later.
    """
    with target.open() as tickwheel:
        until = resume_lease(tickwheel.queue(queue), id, token, exclusive_value).extend(by)
    if target.json:
        print_json({"id": id, "state": "running", "lease_until": until})
    else:
        print(f"{escape_unprintable(id)} is leased until {format_moment(until)}")
