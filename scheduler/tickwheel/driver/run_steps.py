"""Runs the steps of a driver: executes each command and sends its reply, or its script error, back to the steps."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from tickwheel.driver.commands import Command
from tickwheel.storage.script_errors import ScriptError

R = TypeVar("R")
Execute = Callable[[Command], Any]


def run_steps(steps: Generator[Command, Any, R], execute: Execute) -> R:
    """Run the steps until they end and return their result."""
    try:
        command = next(steps)
        while True:
            command = next_command(steps, execute, command)
    except StopIteration as end:
        result: R = end.value
        return result


def next_command(steps: Generator[Command, Any, R], execute: Execute, command: Command) -> Command:
    """Execute the command, send its reply to the steps and return the command that they yield next.

    If ``execute`` raises ScriptError, the error is raised in the steps instead. Other exceptions of ``execute`` are
    raised here, as is StopIteration when the steps end.
    """
    try:
        reply = execute(command)
    except ScriptError as error:
        return steps.throw(error)
    return steps.send(reply)
