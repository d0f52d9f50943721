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
from tickwheel.service.call_limits import PLACE, name_caller

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
# How many commands the checks that one caller begins send in a second, at most, in all namespaces. A check that would
# have to wait longer than this number of seconds is refused.
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
        # By caller: the wait until the caller may begin a check.
        self._waits: dict[str, asyncio.Task[None]] = {}

    async def find_warning(self) -> str:
        """Return a warning if no event process drives the namespace, or an empty text.

        Raises LimitExceeded if the caller begins too many checks.
        """
        if monotonic() < self._valid_until:
            return self._warning
        if self._task is None:
            await self._begin(_caller())
        return self._warning if self._task is None else await asyncio.shield(self._task)

    async def _begin(self, caller: str) -> None:
        """Begin a check when the caller may begin one, unless another caller has begun one meanwhile."""
        wait = self._waits.get(caller)
        if wait is None:
            wait_s = self._pace.plan_check(caller, self._context.shards * _COMMANDS_PER_SHARD)
            if not wait_s:
                self._start()
                return
            wait = self._waits[caller] = asyncio.create_task(self._start_after(caller, wait_s), context=Context())
        # The other calls of the caller share the wait, and those of other callers do not.
        await asyncio.shield(wait)

    async def _start_after(self, caller: str, wait_s: float) -> None:
        try:
            await asyncio.sleep(wait_s)
            if self._task is None and monotonic() >= self._valid_until:
                self._start()
        finally:
            del self._waits[caller]

    def _start(self) -> None:
        # The check belongs to no call: it must not use the turns of the first caller, whose call may end earlier.
        self._task = asyncio.create_task(self._check(), context=Context())

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


def _caller() -> str:
    """Return the name of the caller. Without a token, this is its address, also while the service is not busy."""
    place, context = PLACE.get()
    return place if context is None else name_caller(context)
