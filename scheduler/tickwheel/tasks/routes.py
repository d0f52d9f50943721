"""Which calls of a task go to Celery and which to Tickwheel while an application moves from one to the other.

A route is a setting of the namespace, ``route:<task>``, that producers read again every second or so: they follow it
without a restart. A task without one is Celery's.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from tickwheel import arguments
from tickwheel.client import Tickwheel
from tickwheel.errors import InvalidArgument, TickwheelError

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


class Routes:
    """The routes as one producer knows them. Safe to share between threads."""

    def __init__(self, setting: Callable[[str], str | None]) -> None:
        """``setting`` reads one."""
        self._setting = setting
        self._known: dict[str, tuple[Route, float]] = {}

    def of(self, task: str) -> Route:
        """The route of a task, as it was at most a second ago; as it was last known while that cannot be told."""
        known, until = self._known.get(task, (None, 0.0))
        now = time.monotonic()
        if known is not None:
            if now < until:
                return known
            # One caller reads; the others go by the old one meanwhile.
            self._known[task] = known, now + _KEPT_S
        try:
            text = self._setting(_PREFIX + task)
            route = UNMOVED if text is None else _parsed(_PREFIX + task, text)
        except TickwheelError as error:
            route = known or UNMOVED
            _log.warning("the route of task %s cannot be read, it stays with %s: %s", task, route.to, error)
            self._known[task] = route, time.monotonic() + _AWAY_S
            return route
        self._known[task] = route, now + _KEPT_S
        return route


def _parsed(name: str, text: str) -> Route:
    try:
        return msgspec.json.decode(text, type=Route)
    except (msgspec.DecodeError, InvalidArgument) as error:
        raise InvalidArgument(f"setting {name!r} is no route: {error}; set it by `tickwheel route set`") from error
