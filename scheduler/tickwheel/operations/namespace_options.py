"""The options of a program that opens a namespace: checked once, then passed as one object to `open_namespace`."""

from dataclasses import dataclass
from typing import Self

from tickwheel import limits
from tickwheel.model import validation
from tickwheel.model.validation import Duration

HISTORIES = ("capped", "relay", "off")
# The options for an outbox that has reached its limit: reject enqueue, reschedule and redrive, or drop new events.
OUTBOX_FULL = ("block", "drop")


@dataclass(frozen=True, slots=True)
class NamespaceOptions:
    """The checked options of `Tickwheel`; `parse` creates the object.

    If an option is None, a new namespace gets the default, and an existing namespace may have any value.
    """

    shards: int | None = None
    history: str | None = None
    auto_create: bool | None = None
    clock_guard_ms: int | None = None
    outbox_limit: int | None = None
    outbox_full: str | None = None
    existing: bool = False
    """Create nothing: NamespaceNotFound if there is no such namespace."""
    created_shards: int = limits.SHARDS_MAX
    """The maximum number of shards of a new namespace. An existing one may have more."""

    @classmethod
    def parse(
        cls,
        shards: int | None = None,
        history: str | None = None,
        auto_create: bool | None = None,
        clock_guard: Duration | None = None,
        outbox_limit: int | None = None,
        outbox_full: str | None = None,
        existing: bool = False,
    ) -> Self:
        """Check the arguments of a caller. Raises InvalidArgument."""
        guard_min, guard_max = limits.CLOCK_GUARD_MS_MIN, limits.CLOCK_GUARD_MS_MAX
        outbox_min, outbox_max = limits.OUTBOX_BYTES_MIN, limits.OUTBOX_BYTES_MAX
        return cls(
            None if shards is None else validation.integer("shards", shards, 1, limits.SHARDS_MAX),
            None if history is None else validation.one_of("history", history, HISTORIES),
            None if auto_create is None else validation.boolean("auto_create", auto_create),
            None if clock_guard is None else validation.duration_ms("clock_guard", clock_guard, guard_min, guard_max),
            None if outbox_limit is None else validation.integer("outbox_limit", outbox_limit, outbox_min, outbox_max),
            None if outbox_full is None else validation.one_of("outbox_full", outbox_full, OUTBOX_FULL),
            validation.boolean("existing", existing),
        )
