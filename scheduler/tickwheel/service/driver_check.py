"""Checks for clients whether event processes drive one namespace. The calls of many clients share a check.

A check that fails finds nothing: other calls report the error.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from time import monotonic
from typing import Final

from tickwheel.client.driver_watch import QUIET_MS, check_members, is_unclaimed, look_once, unless_deleted
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.errors import TickwheelError
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Pause, Plan

# How long the answer of a check is valid, in seconds. A warning is valid for less time, because an operator who has
# read it starts an event process.
DRIVEN_S: Final = 10.0
WARNING_S: Final = 2.0
# How long a shard must have no driver, in seconds.
CONFIRM_S: Final = 3.0
# How many commands the checks of a namespace send in a second, at most; this many times as many while nobody drives it.
_COMMANDS_PER_S: Final = 20
_UNDRIVEN_HASTE: Final = 5
# How many commands a check sends to each shard, mostly.
_COMMANDS_PER_SHARD: Final = 5
# How long after its start the service has no warning about its own namespace, in seconds. Its log does not have one
# earlier, either, if the service drives.
OWN_QUIET_S: Final = (UNCLAIMED_MS + QUIET_MS) / 1_000


class DriverCheck:
    """The checks of one namespace, at most one at a time, in one event loop."""

    def __init__(
        self, context: NamespaceContext, run: Callable[[Plan[str]], Awaitable[str]], driven_until: float = 0.0
    ) -> None:
        """``run`` runs a plan. Until ``driven_until``, by the monotonic clock, the namespace counts as driven."""
        self._context = context
        self._run = run
        self._warning = ""
        self._valid_until = driven_until
        self._task: asyncio.Task[str] | None = None

    async def find_warning(self) -> str:
        """Return a warning if no event process drives the namespace, or an empty text."""
        if monotonic() < self._valid_until:
            return self._warning
        if self._task is None:
            # The check belongs to no call: it must not use the turns of the first caller, whose call may end earlier.
            self._task = asyncio.create_task(self._check(), context=Context())
        return await asyncio.shield(self._task)

    async def _check(self) -> str:
        self._warning = ""
        try:
            self._warning = await self._run(self._plan())
        except TickwheelError:
            pass
        finally:
            valid_s, haste = (WARNING_S, _UNDRIVEN_HASTE) if self._warning else (DRIVEN_S, 1)
            pause_s = self._context.shards * _COMMANDS_PER_SHARD / (haste * _COMMANDS_PER_S)
            self._valid_until = monotonic() + max(valid_s, pause_s)
            self._task = None
        return self._warning

    def _plan(self) -> Plan[str]:
        context = self._context
        warning = yield from look_once(context)
        if not warning:
            warning = yield from check_members(context)
        elif not (yield from is_unclaimed(context)):
            # A shard has no driver for a moment when an event process hands it over or is restarted.
            yield Pause(CONFIRM_S)
            warning = yield from look_once(context)
        return (yield from unless_deleted(context, warning))
