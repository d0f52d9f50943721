"""The command line: commands with their options, exit codes, and the modules that ``python -m`` can start."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from tests.frozen import shapes
from tickwheel import EmbeddedServerError, TickwheelError, errors

_RUN_S: Final = 30


@cache
def tree() -> Any:
    """Return the program. It takes Typer 0.3 s to build it. Change this if `tickwheel.cli.app.app` is renamed."""
    from tickwheel.cli.app import app

    return typer.main.get_command(app)


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command and group with the words that call it. The program itself has no words."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*path, name))


def commands() -> dict[str, Any]:
    """Return each command with its parameters."""
    return {" ".join(("tickwheel", *path)): _command(command) for path, command in walk(tree())}


def _command(command: Any) -> dict[str, Any]:
    description: dict[str, Any] = {"options": {}, "arguments": []}
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            description["arguments"].append(_parameter(parameter))
        else:
            description["options"][", ".join(sorted(parameter.opts))] = _parameter(parameter)
    if hasattr(command, "commands"):
        description["runs without a command"] = command.invoke_without_command
    if command.hidden:
        description["hidden"] = True
    return description


def _parameter(parameter: Any) -> dict[str, Any]:
    kind = shapes.annotation(parameter.type_descriptor.annotation, {}, {})
    # An internal type is not recorded: users only see that the command parses a text.
    description: dict[str, Any] = {"type": kind or "a text that is read"}
    if parameter.secondary_opts:
        description["off"] = sorted(parameter.secondary_opts)
    for name in ("min", "max"):
        if getattr(parameter, name) is not None:
            description[name] = getattr(parameter, name)
    for name in ("required", "multiple", "hidden", "is_eager", "is_flag", "count", "envvar"):
        if getattr(parameter, name, None):
            description[name] = getattr(parameter, name)
    if parameter.nargs != 1:
        description["nargs"] = parameter.nargs
    if parameter.metavar:
        description["metavar"] = parameter.metavar
    default = parameter.default
    if isinstance(default, bool | int | float | str) and not (default is False and description.get("is_flag")):
        description["default"] = default
    return description


def exit_codes() -> dict[str, Any]:
    """Return the exit codes, and the exit code of each public error. Follows `tickwheel.cli.exit_codes`."""
    from tickwheel.cli.exit_codes import exit_code
    from tickwheel.client.exit_codes import ExitCode

    ends = {name: int(exit_code(kind("x"))) for name, kind in vars(errors).items() if _is_error(kind)}
    ends["EmbeddedServerError"] = int(exit_code(EmbeddedServerError("x", data_dir=Path("data"))))
    ends["an OSError"] = int(exit_code(OSError()))
    return {"codes": sorted(int(code) for code in ExitCode), "of errors": ends}


def _is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, TickwheelError)


def programs() -> dict[str, Any]:
    """Return the programs that ``python -m`` starts, and the function that a script may import."""
    main = import_module("tickwheel.cli").main
    top = _help("tickwheel")
    named = [" ".join(path) for path, _ in walk(tree()) if len(path) == 1 and re.search(rf"\b{path[0]}\b", top)]
    return {
        "tickwheel.cli:main": "callable" if callable(main) else "no function",
        "python -m tickwheel --help names": sorted(named),
        "python -m tickwheel.driving --help": _driving(_help("tickwheel.driving")),
    }


def _driving(text: str) -> list[str]:
    """Return the options of the usage line, with VALUE for each value, and in ``[]`` if they are optional."""
    usage = " ".join(text.partition("\n\n")[0].split())
    bare = re.sub(r"(--[a-z-]+) [A-Z_:]+", r"\1 VALUE", usage)
    return re.findall(r"\[[^]]*\]|\([^)]*\)|--[a-z-]+(?: VALUE)?", bare)


def _help(module: str) -> str:
    environment = os.environ | {"COLUMNS": "500", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
