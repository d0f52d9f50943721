"""Conversion of queue settings to and from protobuf, and of statistics from it. Times in protobuf are in ms."""

from collections.abc import Mapping
from typing import Any, Final

from tickwheel.model import validation
from tickwheel.model.queue_config import SETTINGS, QueueConfig, parse
from tickwheel.model.results import ForecastMinute, Lateness
from tickwheel.model.validation import WireDuration
from tickwheel.rpc.message_conversion import optional_field
from tickwheel.v1 import queue_service_pb2 as admin

# Settings whose protobuf names include the unit.
_FIELDS: Final = {
    name: f"{name}_ms" for name in ("lease", "backoff", "backoff_max", "retention", "errored_retention")
} | {"payload_limit": "payload_limit_bytes"}


def lateness_from_proto(proto: admin.GetCountsResponse) -> Lateness:
    """Convert the lateness of a queue."""
    return Lateness(
        dict(sorted(proto.promoted_late_ms.items())), dict(sorted(proto.missed_by_ms.items())), proto.deadlines
    )


def forecast_from_proto(proto: admin.GetForecastResponse) -> list[ForecastMinute]:
    """Convert a forecast."""
    return [ForecastMinute(validation.from_ms(minute.start_ms), minute.due) for minute in proto.minutes]


def settings_to_proto(config: QueueConfig) -> admin.QueueSettings:
    """Convert the settings of a queue."""
    return admin.QueueSettings(
        exclusive_key=config.exclusive_key,
        indexed=None if config.indexed is None else admin.QueueSettings.Keys(keys=config.indexed),
        lease_ms=config.lease_ms,
        max_attempts=config.max_attempts,
        backoff_ms=config.backoff_ms,
        backoff_max_ms=config.backoff_max_ms,
        retention_ms=config.retention_ms,
        errored_retention_ms=config.errored_retention_ms,
        payload_limit_bytes=config.payload_limit,
        forecast=config.forecast,
        sink=config.sink or "",
    )


def queue_to_proto(name: str, config: QueueConfig) -> admin.Queue:
    """Convert the configuration of a queue."""
    return admin.Queue(
        name=name,
        settings=settings_to_proto(config),
        enqueue_blocked=config.enqueue_blocked,
        dequeue_blocked=config.dequeue_blocked,
        number=config.number,
        version=config.version,
        deleting=config.deleting,
        uid=config.uid,
    )


def queue_from_proto(proto: admin.Queue) -> QueueConfig:
    """Convert the configuration of a queue."""
    settings = proto.settings
    return QueueConfig(
        exclusive_key=optional_field(settings, "exclusive_key"),
        indexed=tuple(settings.indexed.keys) if settings.HasField("indexed") else None,
        lease_ms=settings.lease_ms,
        max_attempts=settings.max_attempts,
        backoff_ms=settings.backoff_ms,
        backoff_max_ms=settings.backoff_max_ms,
        retention_ms=settings.retention_ms,
        errored_retention_ms=settings.errored_retention_ms,
        payload_limit=settings.payload_limit_bytes,
        forecast=settings.forecast,
        sink=settings.sink or None,
        enqueue_blocked=proto.enqueue_blocked,
        dequeue_blocked=proto.dequeue_blocked,
        deleting=proto.deleting,
        number=proto.number,
        version=proto.version,
    )


def partial_settings_to_proto(values: Mapping[str, Any]) -> admin.QueueSettings:
    """Convert arguments of `create_queue`; arguments that are None stay unset. Raises InvalidArgument."""
    checked = settings_to_proto(parse(values))
    fields = [_FIELDS.get(name, name) for name, value in values.items() if value is not None]
    return admin.QueueSettings(**{field: getattr(checked, field) for field in fields})


def settings_from_proto(proto: admin.QueueSettings) -> dict[str, Any]:
    """Return the settings that are set in ``proto``, as arguments of `create_queue`."""
    settings: dict[str, Any] = {}
    for name in SETTINGS:
        field = _FIELDS.get(name, name)
        if proto.HasField(field):
            value = getattr(proto, field)
            settings[name] = WireDuration(value) if field.endswith("_ms") else value
    if "indexed" in settings:
        settings["indexed"] = list(settings["indexed"].keys)
    return settings
