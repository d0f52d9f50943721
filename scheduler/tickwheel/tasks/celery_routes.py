"""Routes: which calls of a task go to Celery and which to Tickwheel while an application migrates.

A route is a setting of the namespace, ``route:<task>``. Producers read it again about every second, so a change needs
no restart. The calls of a task without a route go to Celery.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

import msgspec

from tickwheel import limits
from tickwheel.client import Tickwheel
from tickwheel.errors import DataLoss, InvalidArgument, TickwheelError
from tickwheel.model import validation
from tickwheel.runtime.log_throttle import LogThrottle

CELERY, TICKWHEEL = "celery", "tickwheel"
_PREFIX = "route:"
# How long a producer uses a route before it reads the setting again: after a successful, and after a failed read.
_CACHE_S: Final = 1.0
_RETRY_S: Final = 5.0

_log = logging.getLogger("tickwheel.tasks")


@dataclass(frozen=True, slots=True)
class Route:
    """The system ``to`` (``celery`` or ``tickwheel``) gets a ``share`` of the calls, 0 to 1. The other gets the rest.

    Only the id of a call decides where the call goes. So calls with the same id go to the same system, and a greater
    share moves further calls without moving any back. Raises InvalidArgument.
    """

    to: str
    share: float = 1.0

    def __post_init__(self) -> None:
        validation.one_of("to", self.to, (CELERY, TICKWHEEL))
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 <= self.share <= 1:
            raise InvalidArgument(f"share must be a number from 0 to 1, not {validation.preview(self.share)}")

    @property
    def _moved_share(self) -> float:
        """The share of the calls that goes to Tickwheel."""
        return self.share if self.to == TICKWHEEL else 1 - self.share

    def target(self, id_: str) -> str:
        """Return the system to which the call with this id goes."""
        position = int.from_bytes(blake2b(id_.encode(), digest_size=6).digest()) / 2**48
        return TICKWHEEL if position < self._moved_share else CELERY


DEFAULT_ROUTE: Final = Route(CELERY)


def write(tickwheel: Tickwheel, task: str, route: Route | None) -> None:
    """Set the route of a task. None removes the route."""
    tickwheel.set_setting(_PREFIX + task_name(task), None if route is None else msgspec.json.encode(route).decode())


def task_name(task: object) -> str:
    """Return the checked name of a Celery task. Raises InvalidArgument."""
    maximum = limits.SETTING_NAME_CHARS - len(_PREFIX)
    return validation.text("task (a task's name)", task, maximum, minimum=1, nul=False).decode()


def list_routed_tasks(tickwheel: Tickwheel) -> dict[str, Route | None]:
    """Return the routes by task name. A damaged route is None."""
    routes: dict[str, Route | None] = {}
    for name, text in _stored_routes(tickwheel):
        route = None
        with suppress(DataLoss):
            route = _parse(name, text)
        routes[name.removeprefix(_PREFIX)] = route
    return routes


def list_routes(tickwheel: Tickwheel) -> dict[str, Route]:
    """Return the routes by task name. Tasks without a route are left out. Raises DataLoss for a damaged route."""
    return {name.removeprefix(_PREFIX): _parse(name, text) for name, text in _stored_routes(tickwheel)}


def _stored_routes(tickwheel: Tickwheel) -> list[tuple[str, str]]:
    """Return the settings that are routes."""
    return [(name, text) for name, text in tickwheel.settings().items() if name.startswith(_PREFIX)]


@dataclass(frozen=True, slots=True)
class _CachedRoute:
    """A route, the monotonic time until which it is used without a read, and whether the last read failed.

    ``route`` is None if no read has succeeded yet.
    """

    route: Route | None
    until: float
    failed: bool = False


class Routes:
    """The routes that one producer has cached. Thread-safe."""

    def __init__(self, setting: Callable[[str, bool], str | None], place: Callable[[], object] = lambda: None) -> None:
        """``setting`` reads a setting of the namespace by its name. Its second argument is whether an earlier value is
        known, so that the call of the task continues without a new one. If ``place`` returns another object than
        before, the namespace is another one, and no cached route is used.
        """
        self._setting = setting
        self._place = place
        self._cached_place = place()
        self._cache: dict[str, _CachedRoute] = {}
        self._log_throttle = LogThrottle()

    def get(self, task: str) -> Route:
        """Return the route of a task, at most a second old; the last known route while the setting cannot be read.

        If the namespace is gone, its settings cannot be read either.
        """
        if (place := self._place()) is not self._cached_place:
            self._cached_place, self._cache = place, {}
        cached, now = self._cache.get(task), time.monotonic()
        if cached is None:
            return self._read(task, None)
        last = cached.route or DEFAULT_ROUTE
        if now < cached.until:
            return last
        # One caller reads the setting. Concurrent callers use the cached route in the meantime.
        self._cache[task] = replace(cached, until=now + (_RETRY_S if cached.failed else _CACHE_S))
        if not cached.failed:
            return self._read(task, cached.route)
        # The last read failed. Read in a thread, so that no caller waits for an unreachable server.
        threading.Thread(target=self._read, args=(task, cached.route), daemon=True).start()
        return last

    def _read(self, task: str, last: Route | None) -> Route:
        began = time.monotonic()
        try:
            text = self._setting(_PREFIX + task, last is not None)
            route = DEFAULT_ROUTE if text is None else _parse(_PREFIX + task, text)
        except TickwheelError as error:
            used = "no route was read before, so its calls go to Celery" if last is None else f"using the last, {last}"
            level = self._log_throttle.level(f"{task}: {error}")
            _log.log(level, "cannot read the route of task %s; %s: %s", task, used, error)
            self._cache[task] = _CachedRoute(last, time.monotonic() + _RETRY_S, failed=True)
            return last or DEFAULT_ROUTE
        self._cache[task] = _CachedRoute(route, began + _CACHE_S)
        return route


def _parse(name: str, text: str) -> Route:
    try:
        return msgspec.json.decode(text, type=Route)
    except (msgspec.DecodeError, InvalidArgument, RecursionError) as error:
        raise DataLoss(
            f"setting {name!r} is not a route: {error}; replace it with `tickwheel route set`, or remove it with"
            " `tickwheel route unset`"
        ) from error
