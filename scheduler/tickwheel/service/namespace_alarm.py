"""Logs a warning about each open namespace that calls use and nobody drives, except for the service's own.

The service drives, and checks, only its own namespace (`worker.last_resort_driver`). Clients of the others have a
warning, too (`driver_check`), but the operators of the service may read only its log. Each process of a service checks
the namespaces that its own calls have opened, one after the other. The time between two checks of a namespace grows
with the number of namespaces and their shards, and not the number of commands.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Final

from tickwheel.client.driver_watch import COMMANDS_PER_SHARD, DriverWatch
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.errors import TickwheelError
from tickwheel.runtime.log_fields import log_fields
from tickwheel.service.namespaces import Namespace

# The pause before the first check of each round over all namespaces, in seconds.
CHECK_S: Final = 5.0
# How many commands the checks send in a second, at most. A check is one round trip with two commands for each shard.
COMMANDS_PER_S: Final = 20
# The pause between two warnings about one namespace, and between those about different ones, in seconds.
WARN_S: Final = 300.0
LINE_S: Final = 1.0

_log = logging.getLogger("tickwheel.service")


class NamespaceAlarm:
    """Checks namespaces while `run` runs."""

    def __init__(self, namespaces: Callable[[], Iterable[Namespace]], own: str) -> None:
        """``namespaces`` returns the open namespaces. ``own`` is the name of the service's own, which is left out."""
        self._namespaces = namespaces
        self._own = own
        self._watches: dict[Namespace, _Watch] = {}

    async def run(self) -> None:
        """Check until the task is cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            others = [namespace for namespace in self._namespaces() if namespace.context.namespace != self._own]
            self._watches = {namespace: self._watches.get(namespace) or _Watch(namespace) for namespace in others}
            for watch in self._watches.values():
                began = monotonic()
                # The calls of clients fail, too, and report the error.
                with suppress(TickwheelError):
                    if await watch.warn_if_undriven():
                        await asyncio.sleep(LINE_S)
                commands = COMMANDS_PER_SHARD * watch.namespace.context.shards
                await asyncio.sleep(max(0.0, began + commands / COMMANDS_PER_S - monotonic()))


class _Watch:
    """The checks of one namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        # A worker or a service leaves the first claim of a namespace to event processes for a time.
        self._watch = DriverWatch(namespace.context, unclaimed_ms=UNCLAIMED_MS)
        self._next_at = 0.0

    async def warn_if_undriven(self) -> bool:
        """Return whether there was a warning: nobody drives, and a call has used the namespace since the last one."""
        namespace = self.namespace
        warning = await namespace.run(self._watch.check())
        if not warning or not namespace.is_used or monotonic() < self._next_at:
            return False
        namespace.is_used, self._next_at = False, monotonic() + WARN_S
        _log.warning("%s", warning, extra=log_fields("not driven"))
        return True
