"""Checks for clients whether event processes drive one namespace. The calls of many clients share a check.

A check that fails finds nothing: other calls report the error.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextvars import Context
from time import monotonic
from typing import Final

from tickwheel.client.driver_watch import QUIET_MS, check_members, is_unclaimed, look_once, unless_deleted
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.errors import LimitExceeded, TickwheelError
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Pause, Plan
from tickwheel.service.call_limits import PLACE

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
# How many commands the checks that one caller begins send in a second, at most, in all namespaces. A check
# that would have to wait longer than this number of seconds is refused.
_CALLER_COMMANDS_PER_S: Final = 2_500
_WAIT_S: Final = 5.0
# The number of callers from which on those are forgotten whose checks do not wait.
_CALLERS: Final = 1_000
# How long after its start the service has no warning about its own namespace, in seconds. Its log does not have one
# earlier, either, if the service drives.
OWN_QUIET_S: Final = (UNCLAIMED_MS + QUIET_MS) / 1_000


class CheckPace:
    """Spaces the checks of each caller, so that checks of many namespaces delay no calls of others."""

    def __init__(self) -> None:
        # By caller, when its next check may begin.
        self._next_at: dict[str, float] = {}

    def plan_check(self, caller: str, commands: int) -> float:
        """Return how many seconds a check of the caller must wait, which sends this number of commands.

        Raises LimitExceeded if it must wait longer than `_WAIT_S`.
        """
        now = monotonic()
        if len(self._next_at) >= _CALLERS:
            self._next_at = {name: at for name, at in self._next_at.items() if at > now}
        begin_at = max(now, self._next_at.get(caller, now))
        if begin_at - now > _WAIT_S:
            raise LimitExceeded(
                f"{caller} checks too many shards: its checks may read about"
                f" {_CALLER_COMMANDS_PER_S // _COMMANDS_PER_SHARD:,} in a second; retry later",
                math.ceil((begin_at - now - _WAIT_S) * 1_000),
            )
        self._next_at[caller] = begin_at + commands / _CALLER_COMMANDS_PER_S
        return begin_at - now


class DriverCheck:
    """The checks of one namespace, at most one at a time, in one event loop."""

    def __init__(
        self,
        context: NamespaceContext,
        run: Callable[[Plan[str]], Awaitable[str]],
        pace: CheckPace,
        driven_until: float = 0.0,
    ) -> None:
        """``run`` runs a plan. ``pace`` is that of all namespaces. Until ``driven_until``, by the monotonic clock, the
        namespace counts as driven.
        """
        self._context = context
        self._run = run
        self._pace = pace
        self._warning = ""
        self._valid_until = driven_until
        self._task: asyncio.Task[str] | None = None

    async def find_warning(self) -> str:
        """Return a warning if no event process drives the namespace, or an empty text.

        Raises LimitExceeded if the caller begins too many checks.
        """
        if monotonic() < self._valid_until:
            return self._warning
        if self._task is None:
            wait_s = self._pace.plan_check(PLACE.get()[0], self._context.shards * _COMMANDS_PER_SHARD)
            # The check belongs to no call: it must not use the turns of the first caller, whose call may end earlier.
            self._task = asyncio.create_task(self._check(wait_s), context=Context())
        return await asyncio.shield(self._task)

    async def _check(self, wait_s: float) -> str:
        self._warning = ""
        try:
            if wait_s:
                await asyncio.sleep(wait_s)
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
