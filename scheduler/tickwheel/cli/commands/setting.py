"""`tickwheel setting list|get|set|unset`."""

from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import ExitCode, Refusal
from tickwheel.cli.output import note, print_json, print_table, printable
from tickwheel.cli.target import Place

commands = typer.Typer(no_args_is_help=True, help="Read and change the settings of the namespace.")

Name = Annotated[str, typer.Argument(help="The setting's name.", metavar="NAME", show_default=False)]


@command(commands, "list", "tickwheel setting list", "tickwheel setting list --json | jq -r keys[]")
def list_(place: Place) -> None:
    """List the settings by name."""
    with place.open() as tickwheel:
        found = tickwheel.settings()
    if place.json:
        print_json(found)
    elif not found:
        note("no settings")
    else:
        print_table(("setting", "value"), found.items())


@command(commands, "get", "tickwheel setting get mail.sender")
def get(place: Place, name: Name) -> None:
    """Print a setting's value. Exit code 4 where it is not set."""
    with place.open() as tickwheel:
        value = tickwheel.setting(name)
    if value is None:
        raise Refusal(f"setting {name!r} is not set", ExitCode.NOT_FOUND)
    if place.json:
        print_json({name: value})
    else:
        print(printable(value))


@command(commands, "set", "tickwheel setting set mail.sender shop@example.com")
def set_(
    place: Place,
    name: Name,
    value: Annotated[str, typer.Argument(help="Up to 1 KiB.", metavar="VALUE", show_default=False)],
) -> None:
    """Set it; programs see it when they read it next."""
    with place.open() as tickwheel:
        tickwheel.set_setting(name, value)
    if place.json:
        print_json({name: value})


@command(commands, "unset", "tickwheel setting unset mail.sender")
def unset(place: Place, name: Name) -> None:
    """Remove it. One that is not set is fine."""
    with place.open() as tickwheel:
        tickwheel.set_setting(name, None)
    if place.json:
        print_json({name: None})
