"""The commands of the program, each of which is imported when it is used: the modules of all take 150 ms to import."""

from collections import UserDict
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import typer

from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.imports import while_importing

# The modules of `tickwheel.cli.commands` that do not have the name of their command.
_MODULES = {
    **dict.fromkeys(("get", "messages", "explain", "counts", "depth", "forecast"), "inspect"),
    "import": "import_celery",
}


class LazyCommands(UserDict[str, Any]):
    """Maps the names of commands and groups to the parser's objects, which it creates when they are first read.

    ``panels`` maps each panel of the help to the names of its commands.
    """

    def __init__(self, panels: Mapping[str, Sequence[str]]) -> None:
        self._panels = {name: panel for panel, names in panels.items() for name in names}
        super().__init__(dict.fromkeys(self._panels))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            self.data[name] = _load(name, self._panels[name])
        return self.data[name]


def _load(name: str, panel: str) -> Any:
    """Import a command or a group of commands, and return the parser's object for it."""
    with while_importing():
        module = import_module(f"tickwheel.cli.commands.{_MODULES.get(name, name)}")
    program = CommandGroup(rich_markup_mode="rich", pretty_exceptions_enable=False)
    if hasattr(module, "commands"):
        program.add_typer(module.commands, name=name, rich_help_panel=panel)
    else:
        program.command(rich_help_panel=panel)(getattr(module, name))
    return typer.main.get_group(program).commands[name]
