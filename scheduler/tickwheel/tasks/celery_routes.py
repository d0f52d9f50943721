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
from tickwheel.model import validation

CELERY, TICKWHEEL = "celery", "tickwheel"
_PREFIX = "route:"
# How long a producer goes by what it read; and by what it knew before where the setting cannot be read.
_CACHE_S: Final = 1.0
_RETRY_S: Final = 5.0

_log = logging.getLogger("tickwheel.tasks")


@dataclass(frozen=True, slots=True)
class Route:
    """``share`` of the calls, from 0 to 1, goes ``to`` one of the two, all others to the other one.

    The id of a call alone decides: the same id always goes the same way, and a greater share only moves more of them.
    """

    to: str
    share: float = 1.0

    def __post_init__(self) -> None:
        validation.one_of("to", self.to, (CELERY, TICKWHEEL))
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 <= self.share <= 1:
            raise InvalidArgument(f"share must be a number from 0 to 1, not {validation.preview(self.share)}")

    def target(self, id_: str) -> str:
        """Where the call of this id goes."""
        moved = self.share if self.to == TICKWHEEL else 1 - self.share
        position = int.from_bytes(blake2b(id_.encode(), digest_size=6).digest()) / 2**48
        return TICKWHEEL if position < moved else CELERY


DEFAULT_ROUTE: Final = Route(CELERY)


def write(tickwheel: Tickwheel, task: str, route: Route | None) -> None:
    """Set the route of a task, or with None remove it."""
    tickwheel.set_setting(_PREFIX + task, None if route is None else msgspec.json.encode(route).decode())


def list_routes(tickwheel: Tickwheel) -> dict[str, Route]:
    """The routes of all tasks that have one, by name."""
    settings = tickwheel.settings()
    return {
        name.removeprefix(_PREFIX): _parse(name, text) for name, text in settings.items() if name.startswith(_PREFIX)
    }


@dataclass(frozen=True, slots=True)
class _CachedRoute:
    """A route, until when it is not read again, and whether the last reading failed."""

    route: Route
    until: float
    failed: bool = False


class Routes:
    """The routes as one producer knows them. Safe to share between threads."""

    def __init__(self, setting: Callable[[str], str | None]) -> None:
        """``setting`` reads one."""
        self._setting = setting
        self._cache: dict[str, _CachedRoute] = {}

    def get(self, task: str) -> Route:
        """The route of a task, as it was at most a second ago; as it was last known while that cannot be told."""
        cached, now = self._cache.get(task), time.monotonic()
        if cached is None:
            return self._read(task, DEFAULT_ROUTE)
        if now < cached.until:
            return cached.route
        # One caller reads; the others go by the old one meanwhile.
        self._cache[task] = replace(cached, until=now + (_RETRY_S if cached.failed else _CACHE_S))
        if not cached.failed:
            return self._read(task, cached.route)
        # Nobody is kept waiting for a server that did not answer the last time.
        threading.Thread(target=self._read, args=(task, cached.route), daemon=True).start()
        return cached.route

    def _read(self, task: str, fallback: Route) -> Route:
        began = time.monotonic()
        try:
            text = self._setting(_PREFIX + task)
            route = DEFAULT_ROUTE if text is None else _parse(_PREFIX + task, text)
        except TickwheelError as error:
            _log.warning("the route of task %s cannot be read, it stays as it was known, %s: %s", task, fallback, error)
            self._cache[task] = _CachedRoute(fallback, time.monotonic() + _RETRY_S, failed=True)
            return fallback
        self._cache[task] = _CachedRoute(route, began + _CACHE_S)
        return route


def _parse(name: str, text: str) -> Route:
    try:
        return msgspec.json.decode(text, type=Route)
    except (msgspec.DecodeError, InvalidArgument) as error:
        raise InvalidArgument(f"setting {name!r} is no route: {error}; set it by `tickwheel route set`") from error
