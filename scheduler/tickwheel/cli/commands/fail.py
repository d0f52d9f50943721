"""`tickwheel fail`: report a failed attempt of a leased message."""

from datetime import timedelta
from typing import Annotated

import typer

from tickwheel.cli.arguments import ExclusiveValue, Id, Name, Token
from tickwheel.cli.command import command
from tickwheel.cli.driver_warning import warn_if_undriven
from tickwheel.cli.leased_messages import resume_lease
from tickwheel.cli.message_output import print_state
from tickwheel.cli.parameter_types import option_parser, parse_duration
from tickwheel.cli.target import Target


@command(
    "fail",
    "tickwheel fail orders order-17 --token 5f3a... --error 'card declined' --retry-in 40s",
    "tickwheel fail orders order-17 --token 5f3a... --error 'no such card' --final",
)
def fail(
    target: Target,
    queue: Name,
    id: Id,
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
    error: Annotated[str | None, typer.Option(help="Reason to store with the message, up to 1 KiB.")] = None,
    retry_in: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Time until the message is retried. Default: the queue's back-off.",
        ),
    ] = None,
    final: Annotated[bool, typer.Option("--final", help="Do not retry the message, even if attempts remain.")] = False,
) -> None:
    """Fail a message, and print its new state.

    The message is retried after the back-off. It becomes Errored if no attempts remain or the failure is final.
    """
    with target.open() as tickwheel:
        state = resume_lease(tickwheel.queue(queue), id, token, exclusive_value).fail(error, retry_in, final=final)
        if state == "invisible":
            warn_if_undriven(tickwheel)
    print_state(target, id, state)
