"""The times at which a schedule fires: by a cron expression in a time zone, or at a fixed interval.

The next time depends only on the schedule and a given time. So all processes compute the same times, without drift. At
a clock change, cron expressions follow the rules of Debian's cron, as implemented by `cronsim` (see `Cron`).
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
# The minimum and the maximum interval.
INTERVAL_MS = (1_000, 365 * 86_400_000)
# The maximum delay of a message.
_FURTHEST = timedelta(milliseconds=limits.DELAY_MS_MAX)


class FireTimes(Protocol):
    """The times at which a schedule fires, in whole seconds and in UTC."""

    @property
    def text(self) -> str:
        """A short description of the times, which is stored. Different times have different texts."""

    @property
    def label(self) -> str:
        """The times as tables for people have them."""

    def next_after(self, moment: datetime) -> datetime:
        """Return the first time later than ``moment``."""

    def last_until(self, moment: datetime) -> datetime:
        """Return the last time that is not later than ``moment``."""


@dataclass(frozen=True)
class Cron:
    """A cron expression in a time zone: five fields, or six fields with the seconds first.

    If both minute and hour are fixed (``30 2``, not ``*/30`` or ``*``), the schedule fires at this clock time once a
    day. If a clock change in spring skips this time, the schedule fires immediately after the change; if a change in
    autumn repeats it, the schedule fires at the first of the two. All other expressions follow the elapsed time: they
    do not fire in an hour that is skipped, and fire in both of two repeated hours.
    """

    expression: str
    timezone: str
    _zone: tzinfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        if not isinstance(self.expression, str):
            raise InvalidArgument(f"a cron expression must be a str, not {validation.preview(self.expression)}")
        object.__setattr__(self, "expression", " ".join(self.expression.upper().split()))
        object.__setattr__(self, "_zone", _zone(self.timezone))
        now = datetime.now(UTC)
        try:
            first = self.next_after(now)
        except CronSimError as error:
            raise InvalidArgument(
                f"cron expression {validation.preview(self.expression)}: {_reason(error)}; the fields are minute, hour,"
                " day of month, month and day of week, for example '30 9 * * MON-FRI'; a field for seconds may be"
                " the first"
            ) from error
        if first - now > _FURTHEST:
            raise _never_fires_error(self.expression)

    @property
    def text(self) -> str:
        return f"cron {self.expression} {self.timezone}"

    @property
    def label(self) -> str:
        return f"{self.expression}, {self.timezone}"

    def next_after(self, moment: datetime) -> datetime:
        for fire_time in self._walk(moment):
            # CronSim can return an earlier time: if `moment` is in a repeated hour, for the second time, CronSim starts
            # in the first of the two hours.
            if fire_time > moment:
                return fire_time
        raise _never_fires_error(self.expression)

    def last_until(self, moment: datetime) -> datetime:
        # Going backwards, CronSim leaves out the moment at which it starts. So start a microsecond after the second.
        for fire_time in self._walk(moment.replace(microsecond=1), reverse=True):
            if fire_time <= moment:
                break
        else:
            raise _never_fires_error(self.expression)
        # Going backwards, CronSim can omit a time at a clock change.
        while (following := self.next_after(fire_time)) <= moment:
            fire_time = following
        return fire_time

    def _walk(self, moment: datetime, reverse: bool = False) -> Iterator[datetime]:
        for fire_time in CronSim(self.expression, moment.astimezone(self._zone), reverse):
            yield fire_time.astimezone(UTC)


@dataclass(frozen=True)
class Every:
    """The whole multiples of an interval since the start of 1970 in UTC: with five minutes, :00, :05 and so on."""

    interval: timedelta

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        object.__setattr__(self, "interval", validation.duration("interval", self.interval, *INTERVAL_MS))
        if self.interval % _SECOND:
            raise InvalidArgument(
                f"interval must be a whole number of seconds, not {validation.describe_duration(self.interval)}"
            )

    @property
    def text(self) -> str:
        return f"every {self.interval}"

    @property
    def label(self) -> str:
        return f"every {validation.describe_duration(self.interval)}"

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
    # A path outside the database raises ValueError. The name of a folder of zones raises OSError.
    except (LookupError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"there is no time zone {validation.preview(name)}: use a name of the IANA database such as"
            " 'Europe/Berlin'; if the system lacks the database, install the package tzdata"
        ) from error


def _reason(error: CronSimError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]


def _never_fires_error(expression: str) -> InvalidArgument:
    return InvalidArgument(f"cron expression {expression!r} does not fire within {_FURTHEST.days // 365} years")
