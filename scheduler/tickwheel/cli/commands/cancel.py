"""What anybody may do with a message by its id: `tickwheel cancel`, `reschedule`, `redrive`."""

from datetime import datetime, timedelta
from typing import Annotated

import typer

from tickwheel import Change, InvalidArgument, InvalidTransition, MessageNotFound, TickwheelError
from tickwheel.cli import parameter_types
from tickwheel.cli.command import command
from tickwheel.cli.commands.dequeue import ExclusiveValue, Id
from tickwheel.cli.commands.queue import Name
from tickwheel.cli.exit_codes import CommandError, exit_code
from tickwheel.cli.output import escape_unprintable, format_moment, print_json
from tickwheel.cli.parameter_types import moment, option_parser, parse_duration
from tickwheel.cli.target import Target

commands = typer.Typer()


@command(
    commands,
    "cancel",
    "tickwheel cancel orders order-17",
    "tickwheel cancel encode film-3 film-4 --exclusive-value project-9 --release",
    panel="Messages",
)
def cancel(
    target: Target,
    queue: Name,
    ids: Annotated[list[str], typer.Argument(help="The messages' ids.", metavar="ID...", show_default=False)],
    exclusive_value: ExclusiveValue = None,
    release: Annotated[
        bool, typer.Option("--release", help="Free the exclusive value of a running one at once.")
    ] = False,
) -> None:
    """Cancel messages that are not finished; again is fine.

    All are tried, and the first refusal is told.
    """
    errors: list[TickwheelError] = []
    with target.open() as tickwheel:
        for id in ids:
            try:
                change = tickwheel.queue(queue).cancel(id, exclusive_value, release=release)
            except (MessageNotFound, InvalidTransition) as error:
                errors.append(error)
            else:
                _print_change(target, change)
    if errors:
        more = f"; and {len(errors) - 1} more were refused" if len(errors) > 1 else ""
        raise CommandError(f"{errors[0]}{more}", exit_code(errors[0])) from errors[0]


@command(
    commands,
    "reschedule",
    "tickwheel reschedule orders order-17 --delay 30m",
    "tickwheel reschedule reports r-1 --due 2026-05-18T06:00:00Z --deadline 15m",
    panel="Messages",
)
def reschedule(
    target: Target,
    queue: Name,
    id: Id,
    exclusive_value: ExclusiveValue = None,
    delay: Annotated[
        timedelta | None,
        typer.Option(parser=option_parser(parse_duration), metavar="DURATION", help="Due so long from now."),
    ] = None,
    due: Annotated[
        datetime | None,
        typer.Option(parser=option_parser(moment), metavar="TIME", help="Due at this ISO time; local without offset."),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME|DURATION", help="Its new urgency; -10d is ten days ago.")
    ] = None,
) -> None:
    """Give a message that is not delivered yet a new due time, a new deadline, or both."""
    until = None if deadline is None else parameter_types.deadline(deadline)
    with target.open() as tickwheel:
        change = tickwheel.queue(queue).reschedule(id, exclusive_value, delay=delay, due=due, deadline=until)
    _print_change(target, change)


@command(
    commands,
    "redrive",
    "tickwheel redrive orders order-17",
    "tickwheel redrive orders --all",
    panel="Messages",
)
def redrive(
    target: Target,
    queue: Name,
    id: Annotated[str | None, typer.Argument(help="The message's id.", metavar="[ID]")] = None,
    exclusive_value: ExclusiveValue = None,
    all: Annotated[bool, typer.Option("--all", help="Every errored message of the queue.")] = False,
) -> None:
    """Try an errored message again, with its attempts from zero."""
    if all == (id is not None):
        raise InvalidArgument("give the id of a message, or --all")
    with target.open() as tickwheel:
        handle = tickwheel.queue(queue)
        if id is not None:
            _print_change(target, handle.redrive(id, exclusive_value))
            return
        redriven = 0
        for message in handle.messages("errored"):
            try:
                change = handle.redrive(message.id, message.exclusive_value)
            except (MessageNotFound, InvalidTransition):
                # Somebody else was faster.
                continue
            redriven += 1
            if target.json:
                _print_change(target, change)
    if not target.json:
        print(f"{redriven:,} redriven")


def _print_change(target: Target, change: Change) -> None:
    if target.json:
        fields = {"id": change.id, "state": change.state, "version": change.version, "at": change.at}
        print_json(fields | {"changed": change.changed})
        return
    at = f", due {format_moment(change.at)}" if change.state == "invisible" else ""
    print(f"{escape_unprintable(change.id)} {change.state}{at}" + ("" if change.changed else ", as before"))
