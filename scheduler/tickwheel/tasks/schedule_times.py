"""When a schedule fires: by a cron expression in a time zone, or at a fixed interval. Computed, in UTC, from a time
alone, so that every process finds the same times and none drifts.

A cron expression has the rules of Debian's cron at a change of the clock, as `cronsim` keeps them (see `Cron`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZONE_BYTES = 64
# A message waits no longer for its time.
_FURTHEST = timedelta(milliseconds=limits.DELAY_MS_MAX)


class FireTimes(Protocol):
    """The times at which a schedule fires, of whole seconds in UTC."""

    @property
    def text(self) -> str:
        """What they are, in a word; other times have another."""

    def next_after(self, moment: datetime) -> datetime:
        """The first that is later."""

    def last_until(self, moment: datetime) -> datetime:
        """The last that is no later."""


@dataclass(frozen=True)
class Cron:
    """A cron expression of five fields, or of six with seconds first; its hours are those of the time zone.

    Minute and hour that are both given (``30 2``, not ``*/30`` or ``*``) mean that hour of the clock, once a day: where
    it is left out in spring, it fires as soon as the clock goes on; where it comes twice in autumn, the first time.
    All others follow the time that passes: nothing in an hour that is left out, and both of those that come twice.
    """

    expression: str
    timezone: str
    _zone: tzinfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        if not isinstance(self.expression, str):
            raise InvalidArgument(f"a cron expression is a str, not {validation.preview(self.expression)}")
        object.__setattr__(self, "expression", " ".join(self.expression.upper().split()))
        object.__setattr__(self, "_zone", _zone(self.timezone))
        now = datetime.now(UTC)
        try:
            first = self.next_after(now)
        except CronSimError as error:
            raise InvalidArgument(
                f"cron expression {validation.preview(self.expression)}: {_reason(error)}; it is minute, hour, day of"
                " month, month and day of week, with seconds before them if need be, as '30 9 * * MON-FRI'"
            ) from error
        if first - now > _FURTHEST:
            raise _never_fires_error(self.expression)

    @property
    def text(self) -> str:
        return f"cron {self.expression} {self.timezone}"

    def next_after(self, moment: datetime) -> datetime:
        for fire_time in self._walk(moment):
            # Not always so: in the second of two hours it begins with the first one's.
            if fire_time > moment:
                return fire_time
        raise _never_fires_error(self.expression)

    def last_until(self, moment: datetime) -> datetime:
        # A fraction of a second, and it begins with the second itself.
        for fire_time in self._walk(moment.replace(microsecond=1), reverse=True):
            if fire_time <= moment:
                break
        else:
            raise _never_fires_error(self.expression)
        # Backwards it may leave one out where the clock changed.
        while (following := self.next_after(fire_time)) <= moment:
            fire_time = following
        return fire_time

    def _walk(self, moment: datetime, reverse: bool = False) -> Iterator[datetime]:
        for fire_time in CronSim(self.expression, moment.astimezone(self._zone), reverse):
            yield fire_time.astimezone(UTC)


@dataclass(frozen=True)
class Every:
    """Each whole multiple of an interval since 1970 began in UTC: every five minutes at :00, :05 and so on."""

    interval: timedelta

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        validation.duration_ms("interval", self.interval, 1_000, 365 * 86_400_000)
        if self.interval % _SECOND:
            raise InvalidArgument(f"interval must be of whole seconds, not {self.interval}")

    @property
    def text(self) -> str:
        return f"every {self.interval}"

    def next_after(self, moment: datetime) -> datetime:
        return self.last_until(moment) + self.interval

    def last_until(self, moment: datetime) -> datetime:
        return moment.astimezone(UTC) - (moment - _EPOCH) % self.interval


def _zone(name: str) -> tzinfo:
    validation.text("timezone", name, _ZONE_BYTES, minimum=1)
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    # A name that leads elsewhere, or to a folder of zones, is a ValueError or an OSError.
    except (LookupError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"there is no time zone {validation.preview(name)}: give a name of the IANA database as"
            " 'Europe/Berlin'; where"
            " the system has none, install the package tzdata"
        ) from error


def _reason(error: CronSimError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]


def _never_fires_error(expression: str) -> InvalidArgument:
    return InvalidArgument(f"cron expression {expression!r} does not fire within {_FURTHEST.days // 365} years")
