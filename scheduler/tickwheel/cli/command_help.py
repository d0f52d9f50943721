"""The classes of commands and groups.

Their help names the options that every command has, and the help of the program explains them.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType

from tickwheel.cli.parameter_values import convert_quickly

# The panel of the options that every command has.
COMMON_PANEL: Final = "For every command"

C = TypeVar("C", TyperCommand, TyperGroup)


class CommandGroup(typer.Typer):
    """A group of commands."""

    def __init__(self, *, cls: type[TyperGroup] | None = None, **settings: Any) -> None:
        super().__init__(cls=cls or _Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Return a decorator that adds a command to the group."""
        return super().command(name, cls=_Command, **settings)


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        return convert_quickly(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        TyperCommand.format_help(_without_common_options(self, ctx), ctx, formatter)


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return convert_quickly(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        TyperGroup.format_help(_without_common_options(self, ctx), ctx, formatter)


def _without_common_options(command: C, ctx: Any) -> C:
    """Return a copy of the command with a line in place of the options that every command has."""
    common = [option for option in command.params if getattr(option, "rich_help_panel", None) == COMMON_PANEL]
    if not common:
        return command
    page = copy(command)
    page.params = [parameter for parameter in command.params if parameter not in common]
    names = ", ".join(option.opts[0] for option in common)
    page.epilog = f"{COMMON_PANEL}: {names} (see `{ctx.find_root().command_path} --help`)."
    return page
