"""A recurring task: a call of a task, the times at which it fires, and what becomes of a firing that comes too late.

Each time is a message of the app's own queue for schedules, an *occurrence*, due then. Whoever takes it enqueues the
task's message, the *firing*, and the next occurrence. The ids of both say schedule and time: done twice is done once.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypedDict, get_args

import msgspec

from tickwheel import limits
from tickwheel.model import validation
from tickwheel.model.message import NewMessage
from tickwheel.tasks.schedule_times import FireTimes
from tickwheel.tasks.task import Call

Missed = Literal["last", "all", "skip"]
GRACE: Final = timedelta(minutes=1)
# With a time, and what tells its times from others, it is the id of a message.
NAME_BYTES: Final = 96
_DIGEST_BYTES: Final = 4
_KEY: Final = "schedule"
# Of the queue of occurrences. Those of a schedule are seen to one at a time, the earliest first: each knows what became
# of the one before. As long as they are kept, no process enqueues one again, however late its clock is.
OCCURRENCE_QUEUE_CONFIG: Final[Mapping[str, Any]] = {
    "exclusive_key": _KEY,
    "retention": timedelta(days=1),
    "errored_retention": timedelta(days=1),
    "max_attempts": limits.MAX_ATTEMPTS_MAX,
    "backoff": timedelta(seconds=1),
    "backoff_max": timedelta(minutes=1),
}


class Policies(TypedDict, total=False):
    """What a schedule may say beside its times; see `TaskApp.cron`."""

    name: str
    overlap: bool
    missed: Missed
    grace: timedelta


class Occurrence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of an occurrence: of which schedule, by which times, and when. ``last`` is the time of the firing
    before, which must be finished where there is to be no overlap.
    """

    schedule: str
    times: str
    at: datetime
    last: datetime | None = None


@dataclass(frozen=True)
class Schedule:
    """Made by `TaskApp.cron` and `TaskApp.every`, which say what the fields mean."""

    name: str
    call: Call
    times: FireTimes
    overlap: bool = True
    missed: Missed = "last"
    grace: timedelta = GRACE

    def __post_init__(self) -> None:
        """Raises InvalidArgument, for arguments that do not fit the task, too."""
        validation.text(
            "a schedule's name (give it a shorter one by name=)", self.name, NAME_BYTES, minimum=1, nul=False
        )
        validation.boolean("overlap", self.overlap)
        validation.one_of("missed", self.missed, get_args(Missed))
        validation.duration_ms("grace", self.grace, 1_000, limits.DELAY_MS_MAX)
        self.firing(datetime.now(UTC))

    def next(self, after: datetime | None = None) -> datetime:
        """When it fires next, in UTC: after an aware datetime, by default now."""
        return self.times.next_after(datetime.now(UTC) if after is None else after)

    def decide(self, at: datetime, now: datetime) -> tuple[bool, datetime]:
        """Whether it is to fire for that time, which has come, now; and for which later time it is to be asked next.

        A time is missed when it was longer ago than ``grace``. Of those in a row ``last`` lets the last fire.
        """
        following = self.times.next_after(at)
        if self.missed == "all" or now - at < self.grace:
            return True, following
        if following > now:
            return self.missed == "last", following
        # The first that is not missed, or the last: it comes just before the next.
        return False, min(self.times.next_after(now - self.grace), self.times.last_until(now))

    def firing_id(self, at: datetime) -> str:
        """The id of the task's message for a time."""
        return f"{self.name}@{_format_time(at)}"

    def firing(self, at: datetime) -> NewMessage:
        """The task's message for a time, which is its ``due``."""
        task = self.call.task.with_options(id=self.firing_id(at))
        return task.message(self.call.args, self.call.kwargs, due=at)

    def occurrence_id(self, at: datetime) -> str:
        """The id of the occurrence of a time; other where the schedule had other times."""
        return f"{self.name}#{self._digest}@{_format_time(at)}"

    def occurrence(self, at: datetime, last: datetime | None = None) -> NewMessage:
        """The occurrence of a time, after a firing that may not be finished."""
        payload = msgspec.json.encode(Occurrence(self.name, self.times.text, at, last))
        return NewMessage(payload, self.occurrence_id(at), due=at, metadata={_KEY: self.name})

    @property
    def _digest(self) -> str:
        return hashlib.blake2b(self.times.text.encode(), digest_size=_DIGEST_BYTES).hexdigest()

    def __repr__(self) -> str:
        return f"<Schedule {self.name!r}>"


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
