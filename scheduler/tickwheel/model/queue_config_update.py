"""Rules for an update of a queue's configuration: the settings that may change, and the conflicts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tickwheel import limits
from tickwheel.errors import QueueConfigConflict
from tickwheel.model.queue_config import QueueConfig, parse, setting_field

IMMUTABLE_SETTINGS = ("exclusive_key", "indexed", "forecast")


def apply_update(queue: str, existing: QueueConfig, settings: Mapping[str, Any], *, update: bool) -> QueueConfig | None:
    """Return the configuration of an existing queue after a `create_queue` call; None if the call changes nothing.

    Raises QueueConfigConflict if the call would change one of IMMUTABLE_SETTINGS or, without ``update``, any setting.
    """
    wanted = parse(settings, existing if update else None)
    differing = _differences(existing, wanted)
    if not differing:
        return None
    check_immutable(queue, existing, parse(settings, existing))
    if not update:
        advice = "pass update=True to change it"
        raise QueueConfigConflict(
            f"queue {queue!r} exists with another configuration: {differing}; {advice}", advice=advice
        )
    return replace(
        wanted,
        enqueue_blocked=existing.enqueue_blocked,
        dequeue_blocked=existing.dequeue_blocked,
        number=existing.number,
        version=existing.version,
        uid=existing.uid,
    )


def differing_settings(
    queue: str, existing: QueueConfig, declared: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """Return the named settings of a declaration that the existing queue does not have: the actual and the declared
    value by the name of the field.

    Raises QueueConfigConflict if one of IMMUTABLE_SETTINGS differs.
    """
    # A declared back-off may fit only the other back-off that is declared, not the one that the queue has.
    wanted = parse(declared, replace(existing, backoff_ms=0, backoff_max_ms=limits.RETENTION_MS_MAX))
    check_immutable(queue, existing, wanted)
    fields = (setting_field(name) for name, value in declared.items() if value is not None)
    values = {name: (getattr(existing, name), getattr(wanted, name)) for name in fields}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def check_immutable(queue: str, existing: QueueConfig, wanted: QueueConfig) -> None:
    """Raise QueueConfigConflict if one of IMMUTABLE_SETTINGS differs."""
    for name in IMMUTABLE_SETTINGS:
        if getattr(existing, name) != getattr(wanted, name):
            raise QueueConfigConflict(
                f"queue {queue!r} has {name}={getattr(existing, name)!r}, which never changes;"
                f" to use {getattr(wanted, name)!r}, delete the queue and create it again, or create a queue with"
                " another name"
            )


def _differences(existing: QueueConfig, wanted: QueueConfig) -> str:
    """Return a description of the settings that differ, for an error text; empty if none differ."""
    skip = {"enqueue_blocked", "dequeue_blocked"}
    existing_settings, wanted_settings = existing.settings(), wanted.settings()
    return ", ".join(
        f"{name} is {existing_settings[name]!r}, not {wanted_settings[name]!r}"
        for name in existing_settings
        if name not in skip and existing_settings[name] != wanted_settings[name]
    )
