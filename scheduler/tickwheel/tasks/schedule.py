"""A schedule: the call of a task, the times at which the schedule fires, and policies for overlapping and missed times.

An *occurrence* is one time of a schedule: a message in the app's schedule queue that is due at this time. The worker
that leases an occurrence enqueues two messages: the message of the task (the *firing*) and the next occurrence. Their
ids are made from the schedule and the time, so repeating the steps creates no second message.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypedDict, get_args

import msgspec

from tickwheel import limits
from tickwheel.model import validation
from tickwheel.model.message import NewMessage
from tickwheel.model.validation import Duration
from tickwheel.tasks.schedule_times import FireTimes
from tickwheel.tasks.task import Call

Missed = Literal["last", "all", "skip"]
_AwareTime = Annotated[datetime, msgspec.Meta(tz=True)]
GRACE: Final = timedelta(minutes=1)
# The maximum length of a schedule's name. An occurrence id consists of the name, a digest of the fire times and a time.
NAME_BYTES: Final = 96
_DIGEST_BYTES: Final = 4
_KEY: Final = "schedule"
# The configuration of the schedule queue. It is exclusive by schedule: the occurrences of a schedule are handled one at
# a time, the earliest first, so that a worker can read the outcome of the previous occurrence. Until a handled
# occurrence is retired, no process can enqueue it a second time, not even a process whose clock is slow.
OCCURRENCE_QUEUE_CONFIG: Final[Mapping[str, Any]] = {
    "exclusive_key": _KEY,
    "retention": timedelta(days=1),
    "errored_retention": timedelta(days=1),
    "max_attempts": limits.MAX_ATTEMPTS_MAX,
    "backoff": timedelta(seconds=1),
    "backoff_max": timedelta(minutes=1),
}


class Policies(TypedDict, total=False):
    """The options of a schedule besides its call and its times; see `TaskApp.cron`."""

    name: str
    overlap: bool
    missed: Missed
    grace: Duration


class Occurrence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of an occurrence: the name and the fire times of its schedule, and its own time.

    The fire times are a text, for example "cron 30 9 * * * UTC". ``last`` is the time of the previous firing. If the
    schedule allows no overlap, that firing must be finished before the schedule fires again.
    """

    schedule: str
    times: str
    at: _AwareTime
    last: _AwareTime | None = None

    @property
    def id(self) -> str:
        """The id of the occurrence's message. It changes if the fire times of the schedule change."""
        digest = hashlib.blake2b(self.times.encode(), digest_size=_DIGEST_BYTES).hexdigest()
        return f"{self.schedule}#{digest}@{_format_time(self.at)}"


@dataclass(frozen=True)
class Schedule:
    """A schedule of an app. `TaskApp.cron` and `TaskApp.every` create schedules, and describe the fields."""

    name: str
    call: Call
    times: FireTimes
    overlap: bool = True
    missed: Missed = "last"
    grace: Duration = GRACE

    def __post_init__(self) -> None:
        """Raises InvalidArgument, also if the arguments of the call do not fit the task."""
        validation.text(
            "a schedule's name (name=, by default the task's name and the times)",
            self.name,
            NAME_BYTES,
            minimum=1,
            nul=False,
        )
        validation.boolean("overlap", self.overlap)
        validation.one_of("missed", self.missed, get_args(Missed))
        validation.duration_ms("grace", self.grace, 1_000, limits.DELAY_MS_MAX)
        self.firing(datetime.now(UTC))

    def next(self, after: datetime | None = None) -> datetime:
        """Return the next time of the schedule after an aware datetime (default: now), in UTC."""
        return self.times.next_after(datetime.now(UTC) if after is None else after)

    def decide(self, at: datetime, now: datetime) -> tuple[bool, datetime]:
        """Return whether the schedule fires at ``now`` for its time ``at``, and the time of the next occurrence.

        ``at`` has passed. This time is missed if it was at least ``grace`` ago. With the policy ``last``, only the
        last of the times missed in a row fires.
        """
        following = self.times.next_after(at)
        grace = validation.as_timedelta(self.grace)
        if self.missed == "all" or now - at < grace:
            return True, following
        if following > now:
            return self.missed == "last", following
        # Skip to the first time that is not missed. If all times up to now are missed, skip to the last of them: the
        # next `decide` applies the policy to it.
        return False, min(self.times.next_after(now - grace), self.times.last_until(now))

    def firing_id(self, at: datetime) -> str:
        """Return the id of the firing for a time."""
        return f"{self.name}@{_format_time(at)}"

    def firing(self, at: datetime) -> NewMessage:
        """Return the firing for a time: the message of the task, due at this time."""
        task = self.call.task.with_options(id=self.firing_id(at))
        return task.message(self.call.args, self.call.kwargs, due=at)

    def occurrence_id(self, at: datetime) -> str:
        """Return the id of the occurrence for a time."""
        return Occurrence(self.name, self.times.text, at).id

    def occurrence(self, at: datetime, last: datetime | None = None) -> NewMessage:
        """Return the occurrence for a time. ``last`` is the time of a previous firing that may be unfinished."""
        occurrence = Occurrence(self.name, self.times.text, at, last)
        return NewMessage(msgspec.json.encode(occurrence), occurrence.id, due=at, metadata={_KEY: self.name})

    def __repr__(self) -> str:
        return f"<Schedule {self.name!r}>"


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
