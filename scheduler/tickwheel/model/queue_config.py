"""The configuration of a queue: its settings, their limits, and the packed form that scripts receive.

The metadata shard stores every configuration with a version and a uid. No other queue has the same uid, not even a
queue of the same name that is created after the namespace lost its state. Every shard has a copy of version and uid. A
script that is called with another version or uid returns STALECONFIG before it writes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from struct import Struct, error as StructError
from typing import Any, Self, TypedDict

from tickwheel import limits
from tickwheel.errors import DataLoss, InvalidArgument
from tickwheel.model import sink_url, validation
from tickwheel.model.validation import Duration
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.storage import trace_context

_CONTEXT = Struct(">I4sHBI")
_LEADER = Struct(">HHIHI")
_VERSION = Struct(">I4s")
_STORED_PREFIX = Struct(">I4sH")
EXCLUSIVE, FORECAST, BLOCKED, HEADS = 1, 2, 4, 8
_MARKS = ("deleting", "enqueue_was_blocked", "dequeue_was_blocked", "deleted")
_NOT_SETTINGS = (*_MARKS, "number", "version", "uid", "indexed_keys")


class QueueSettings(TypedDict, total=False):
    """The arguments of `create_queue`, which documents them. None means that the setting is left out."""

    exclusive_key: str | None
    indexed: list[str] | tuple[str, ...] | set[str] | frozenset[str] | None
    lease: Duration | None
    max_attempts: int | None
    backoff: Duration | None
    backoff_max: Duration | None
    retention: Duration | None
    errored_retention: Duration | None
    payload_limit: int | None
    forecast: bool | None
    sink: str | None


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The settings of a queue. Times are in ms. `create_queue` documents every setting."""

    exclusive_key: str | None = None
    indexed: tuple[str, ...] | None = None
    lease_ms: int = limits.LEASE_MS
    max_attempts: int = limits.MAX_ATTEMPTS
    backoff_ms: int = limits.BACKOFF_MS
    backoff_max_ms: int = limits.BACKOFF_MS_MAX
    retention_ms: int = limits.RETENTION_MS
    errored_retention_ms: int = limits.ERRORED_RETENTION_MS
    payload_limit: int = limits.PAYLOAD_BYTES
    forecast: bool = False
    sink: str | None = None
    enqueue_blocked: bool = False
    dequeue_blocked: bool = False
    deleting: bool = False
    """Whether the queue is being deleted (`operations/removal/delete_queue.py`)."""
    enqueue_was_blocked: bool = False
    """Whether enqueue was blocked before the deletion began."""
    dequeue_was_blocked: bool = False
    """Whether dequeue was blocked before the deletion began."""
    deleted: bool = False
    """Whether this is the placeholder of a deleted queue (`operations/removal/queue_numbers.py`)."""
    number: int = 0
    version: int = 0
    uid: bytes = bytes(4)
    indexed_keys: frozenset[str] | None = field(init=False, compare=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if self.indexed is not None:
            object.__setattr__(self, "indexed_keys", frozenset(self.indexed))

    @property
    def stamp(self) -> bytes:
        """The former name of ``uid``."""
        return self.uid

    @property
    def packed_version(self) -> bytes:
        """Version and uid as shards store them."""
        return _VERSION.pack(self.version, self.uid)

    def marked_for_deletion(self) -> Self:
        """Return the configuration while the queue is being deleted. Older clients see a blocked queue."""
        return replace(
            self,
            deleting=True,
            enqueue_blocked=True,
            dequeue_blocked=True,
            enqueue_was_blocked=self.enqueue_blocked,
            dequeue_was_blocked=self.dequeue_blocked,
        )

    def unmarked(self) -> Self:
        """Return the configuration as it was before `marked_for_deletion`."""
        return replace(
            self,
            deleting=False,
            enqueue_blocked=self.enqueue_was_blocked,
            dequeue_blocked=self.dequeue_was_blocked,
            enqueue_was_blocked=False,
            dequeue_was_blocked=False,
        )

    def context(self, history: int, options: int = 0) -> bytes:
        """Return the queue's part of a client's script call (`lua/_queue_context.lua`)."""
        return _CONTEXT.pack(self.version, self.uid, self.number, self._options() | options, history)

    @staticmethod
    def is_exclusive_context(context: bytes) -> bool:
        """Return whether the result of `context` is that of an exclusive queue."""
        options: int = _CONTEXT.unpack_from(context)[3]
        return bool(options & EXCLUSIVE)

    def leader_context(self, history: int) -> bytes:
        """Return the queue's part of a driver's script call (`lua/_driver_context.lua`)."""
        return self.context(history) + _LEADER.pack(
            self.max_attempts, *divmod(self.retention_ms, 2**32), *divmod(self.errored_retention_ms, 2**32)
        )

    def _check_types(self) -> None:
        """Raise TypeError if a setting does not have its type, as after damage to its stored form."""
        for item in fields(self):
            value = getattr(self, item.name)
            is_valid = (
                value is None or all(isinstance(key, str) for key in value)
                if item.name in ("indexed", "indexed_keys")
                else isinstance(value, item.type) and (item.type is bool or not isinstance(value, bool))  # type: ignore[arg-type]
            )
            if not is_valid:
                raise TypeError(f"{item.name} is {value!r:.80}")

    def _options(self) -> int:
        return (EXCLUSIVE if self.exclusive_key is not None else 0) | (FORECAST if self.forecast else 0)

    def settings(self) -> dict[str, Any]:
        """Return the settings that a user can set: all fields except `_NOT_SETTINGS`."""
        values = asdict(self)
        for name in _NOT_SETTINGS:
            del values[name]
        return values

    def to_bytes(self) -> bytes:
        """Return the settings as the metadata shard stores them, after version, uid and number."""
        marks = {name: True for name in _MARKS if getattr(self, name)}
        return json.dumps(self.settings() | marks, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, queue: str, data: bytes) -> Self:
        """Return the configuration from its stored form. Raises DataLoss if ``data`` is damaged."""
        try:
            version, uid, number = _STORED_PREFIX.unpack_from(data)
            settings = decode_json(data[_STORED_PREFIX.size :])
            if settings["indexed"] is not None:
                settings["indexed"] = tuple(settings["indexed"])
            field_names = {item.name for item in fields(cls)}
            config = cls(
                **{k: v for k, v in settings.items() if k in field_names}, number=number, version=version, uid=uid
            )
            config._check_types()
            # This also checks the ranges of the numbers that scripts receive.
            config.leader_context(0)
            return config
        except (StructError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise DataLoss(f"the configuration of queue {queue!r} is damaged: {data!r:.80}") from error


def stored_number(data: bytes) -> int | None:
    """Return the number of a queue from the stored form of its configuration. Return None if ``data`` is damaged."""
    return _STORED_PREFIX.unpack_from(data)[2] if len(data) >= _STORED_PREFIX.size else None


def placeholder_identity(data: bytes) -> tuple[int, bytes] | None:
    """Return number and uid of a placeholder from its stored form. Checks no other setting.

    Return None if ``data`` is the configuration of a queue that exists, or is damaged.
    """
    try:
        _, uid, number = _STORED_PREFIX.unpack_from(data)
        return (number, uid) if decode_json(data[_STORED_PREFIX.size :])["deleted"] is True else None
    except (StructError, ValueError, TypeError, LookupError, RecursionError):
        return None


def parse(settings: Mapping[str, Any], base: QueueConfig | None = None) -> QueueConfig:
    """Return the checked settings of a `create_queue` call. Missing settings come from ``base`` or are defaults.

    Raises InvalidArgument.
    """
    validation.reject_unknown("a queue", settings, SETTINGS)
    values: dict[str, Any] = {}
    key = settings.get("exclusive_key")
    if key is not None:
        _check_key("exclusive_key", key)
        values["exclusive_key"] = validation.to_plain_str(key)
    indexed = settings.get("indexed")
    if indexed is not None:
        if not isinstance(indexed, list | tuple | set | frozenset):
            raise InvalidArgument(f"indexed must be a list, tuple or set of str, not {validation.preview(indexed)}")
        # Before the check of each key, which takes time.
        validation.integer("the number of keys in indexed", len(indexed), 0, limits.PAIRS_MAX)
        for name in indexed:
            _check_key("a key of indexed", name)
        values["indexed"] = tuple(sorted({validation.to_plain_str(name) for name in indexed}))
    for name, (minimum, maximum) in _DURATIONS.items():
        if settings.get(name) is not None:
            values[f"{name}_ms"] = validation.duration_ms(name, settings[name], minimum, maximum)
    for name, (minimum, maximum) in _NUMBERS.items():
        if settings.get(name) is not None:
            values[name] = validation.integer(name, settings[name], minimum, maximum)
    if settings.get("forecast") is not None:
        values["forecast"] = validation.boolean("forecast", settings["forecast"])
    if settings.get("sink") is not None:
        # An empty string removes the sink; None means that the caller did not name the setting.
        sink = settings["sink"]
        values["sink"] = None if isinstance(sink, str) and not sink else sink_url.validate_sink_url(sink)
    config = replace(base or QueueConfig(), **values)
    if config.backoff_ms > config.backoff_max_ms:
        raise InvalidArgument(
            f"backoff {validation.describe_ms(config.backoff_ms)} must not be longer than"
            f" backoff_max {validation.describe_ms(config.backoff_max_ms)}"
        )
    # A finished message is kept at least as long as a session, so that a retried call still finds the message.
    return replace(
        config,
        retention_ms=max(config.retention_ms, limits.SESSION_MS),
        errored_retention_ms=max(config.errored_retention_ms, limits.SESSION_MS),
    )


def setting_field(name: str) -> str:
    """Return the field of `QueueConfig` for a setting of `create_queue`."""
    return f"{name}_ms" if name in _DURATIONS else name


def _check_key(label: str, key: object) -> None:
    validation.text(label, key, limits.PAIR_KEY_BYTES, minimum=1)
    if key in trace_context.KEYS:
        raise InvalidArgument(f"{label} cannot be {key!r}: this key is part of the trace context, which is not indexed")


_DURATIONS = {
    "lease": (limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
    "backoff": (0, limits.RETENTION_MS_MAX),
    "backoff_max": (0, limits.RETENTION_MS_MAX),
    "retention": (0, limits.RETENTION_MS_MAX),
    "errored_retention": (0, limits.RETENTION_MS_MAX),
}
_NUMBERS = {
    "max_attempts": (1, limits.MAX_ATTEMPTS_MAX),
    "payload_limit": (1, limits.PAYLOAD_BYTES_MAX),
}
SETTINGS = ("exclusive_key", "indexed", "forecast", "sink", *_DURATIONS, *_NUMBERS)
