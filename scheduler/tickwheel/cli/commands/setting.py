"""`tickwheel setting list|get|set|unset`: settings of the namespace."""

from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.output import print_json, print_status
from tickwheel.cli.tables import print_table
from tickwheel.cli.target import Target
from tickwheel.client.exit_codes import ExitCode
from tickwheel.runtime.text_escape import escape_unprintable

commands = CommandGroup(no_args_is_help=True, help="Read and change the settings of the namespace.")

Name = Annotated[str, typer.Argument(help="The setting's name.", metavar="NAME", show_default=False)]


@commands.command()
@command("list", "tickwheel setting list", "tickwheel setting list --json | jq -r 'keys[]'")
def list_(target: Target) -> None:
    """List the settings by name."""
    with target.open() as tickwheel:
        values = tickwheel.settings()
    if target.json:
        print_json(values)
    elif not values:
        print_status("no settings")
    else:
        print_table(("setting", "value"), values.items())


@commands.command()
@command("get", "tickwheel setting get mail.sender")
def get(target: Target, name: Name) -> None:
    """Print a setting's value. If the setting is not set, the exit code is 4."""
    with target.open() as tickwheel:
        value = tickwheel.setting(name)
    if value is None:
        raise CommandError(f"setting {name!r} is not set", ExitCode.NOT_FOUND)
    if target.json:
        print_json({name: value})
    else:
        print(escape_unprintable(value))


@commands.command()
@command("set", "tickwheel setting set mail.sender shop@example.com")
def set_(
    target: Target,
    name: Name,
    value: Annotated[str, typer.Argument(help="The value, up to 1 KiB.", metavar="VALUE", show_default=False)],
) -> None:
    """Set a setting. Programs receive the new value when they next read the setting."""
    with target.open() as tickwheel:
        tickwheel.set_setting(name, value)
    if target.json:
        print_json({name: value})


@commands.command()
@command("unset", "tickwheel setting unset mail.sender")
def unset(target: Target, name: Name) -> None:
    """Remove a setting. If the setting is not set, nothing changes."""
    with target.open() as tickwheel:
        tickwheel.set_setting(name, None)
    if target.json:
        print_json({name: None})
