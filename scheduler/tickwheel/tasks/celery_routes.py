"""Which calls of a task go to Celery and which to Tickwheel while an application moves from one to the other.

A route is a setting of the namespace, ``route:<task>``, that producers read again every second or so: they follow it
without a restart. A task without one is Celery's.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

import msgspec

from tickwheel.client import Tickwheel
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.model import validation as arguments

CELERY, TICKWHEEL = "celery", "tickwheel"
_PREFIX = "route:"
# How long a producer goes by what it read; and by what it knew before where the setting cannot be read.
_KEPT_S: Final = 1.0
_AWAY_S: Final = 5.0

_log = logging.getLogger("tickwheel.tasks")


@dataclass(frozen=True, slots=True)
class Route:
    """``share`` of the calls, from 0 to 1, goes ``to`` one of the two, all others to the other one.

    The id of a call alone decides: the same id always goes the same way, and a greater share only moves more of them.
    """

    to: str
    share: float = 1.0

    def __post_init__(self) -> None:
        arguments.one_of("to", self.to, (CELERY, TICKWHEEL))
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 <= self.share <= 1:
            raise InvalidArgument(f"share must be a number from 0 to 1, not {arguments.shown(self.share)}")

    def target(self, id_: str) -> str:
        """Where the call of this id goes."""
        moved = self.share if self.to == TICKWHEEL else 1 - self.share
        place = int.from_bytes(blake2b(id_.encode(), digest_size=6).digest()) / 2**48
        return TICKWHEEL if place < moved else CELERY


UNMOVED: Final = Route(CELERY)


def write(tickwheel: Tickwheel, task: str, route: Route | None) -> None:
    """Set the route of a task, or with None remove it."""
    tickwheel.set_setting(_PREFIX + task, None if route is None else msgspec.json.encode(route).decode())


def listed(tickwheel: Tickwheel) -> dict[str, Route]:
    """The routes of all tasks that have one, by name."""
    found = tickwheel.settings()
    return {name.removeprefix(_PREFIX): _parsed(name, text) for name, text in found.items() if name.startswith(_PREFIX)}


@dataclass(frozen=True, slots=True)
class _Known:
    """A route, until when it is not read again, and whether the last reading failed."""

    route: Route
    until: float
    away: bool = False


class Routes:
    """The routes as one producer knows them. Safe to share between threads."""

    def __init__(self, setting: Callable[[str], str | None]) -> None:
        """``setting`` reads one."""
        self._setting = setting
        self._known: dict[str, _Known] = {}

    def of(self, task: str) -> Route:
        """The route of a task, as it was at most a second ago; as it was last known while that cannot be told."""
        known, now = self._known.get(task), time.monotonic()
        if known is None:
            return self._read(task, UNMOVED)
        if now < known.until:
            return known.route
        # One caller reads; the others go by the old one meanwhile.
        self._known[task] = replace(known, until=now + (_AWAY_S if known.away else _KEPT_S))
        if not known.away:
            return self._read(task, known.route)
        # Nobody is kept waiting for a server that did not answer the last time.
        threading.Thread(target=self._read, args=(task, known.route), daemon=True).start()
        return known.route

    def _read(self, task: str, known: Route) -> Route:
        began = time.monotonic()
        try:
            text = self._setting(_PREFIX + task)
            route = UNMOVED if text is None else _parsed(_PREFIX + task, text)
        except TickwheelError as error:
            _log.warning("the route of task %s cannot be read, it stays as it was known, %s: %s", task, known, error)
            self._known[task] = _Known(known, time.monotonic() + _AWAY_S, away=True)
            return known
        self._known[task] = _Known(route, began + _KEPT_S)
        return route


def _parsed(name: str, text: str) -> Route:
    try:
        return msgspec.json.decode(text, type=Route)
    except (msgspec.DecodeError, InvalidArgument) as error:
        raise InvalidArgument(f"setting {name!r} is no route: {error}; set it by `tickwheel route set`") from error
