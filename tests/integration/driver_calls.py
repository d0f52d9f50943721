"""Intercepts the script calls of the driver."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tickwheel.driver.commands import Command
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.storage.scripts import Call

# Executes a call, which may be another one than the driver's.
Execute = Callable[[Call], Any]


@contextmanager
def calls_of(script: str, run: Callable[[Call, Execute], Any]) -> Iterator[None]:
    """``run`` executes each call of the script."""
    execute = ShardConnection.execute

    def intercept(link: ShardConnection, command: Command) -> Any:
        if isinstance(command, Call) and command.script.name == script:
            return run(command, lambda call: execute(link, call))
        return execute(link, command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardConnection, "execute", intercept)
        yield
