from tickwheel.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenNamespaceRequest(_message.Message):
    __slots__ = ("namespace", "shards", "history", "auto_create", "clock_guard_ms", "outbox_limit_bytes", "outbox_full", "existing")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    AUTO_CREATE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_GUARD_MS_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FULL_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    shards: int
    history: str
    auto_create: bool
    clock_guard_ms: int
    outbox_limit_bytes: int
    outbox_full: str
    existing: bool
    def __init__(self, namespace: _Optional[str] = ..., shards: _Optional[int] = ..., history: _Optional[str] = ..., auto_create: bool = ..., clock_guard_ms: _Optional[int] = ..., outbox_limit_bytes: _Optional[int] = ..., outbox_full: _Optional[str] = ..., existing: bool = ...) -> None: ...

class OpenNamespaceResponse(_message.Message):
    __slots__ = ("shards",)
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    shards: int
    def __init__(self, shards: _Optional[int] = ...) -> None: ...

class QueueSettings(_message.Message):
    __slots__ = ("exclusive_key", "indexed", "lease_ms", "max_attempts", "backoff_ms", "backoff_max_ms", "retention_ms", "errored_retention_ms", "payload_limit_bytes", "forecast", "sink")
    class Keys(_message.Message):
        __slots__ = ("keys",)
        KEYS_FIELD_NUMBER: _ClassVar[int]
        keys: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, keys: _Optional[_Iterable[str]] = ...) -> None: ...
    EXCLUSIVE_KEY_FIELD_NUMBER: _ClassVar[int]
    INDEXED_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    ERRORED_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    exclusive_key: str
    indexed: QueueSettings.Keys
    lease_ms: int
    max_attempts: int
    backoff_ms: int
    backoff_max_ms: int
    retention_ms: int
    errored_retention_ms: int
    payload_limit_bytes: int
    forecast: bool
    sink: str
    def __init__(self, exclusive_key: _Optional[str] = ..., indexed: _Optional[_Union[QueueSettings.Keys, _Mapping]] = ..., lease_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., backoff_max_ms: _Optional[int] = ..., retention_ms: _Optional[int] = ..., errored_retention_ms: _Optional[int] = ..., payload_limit_bytes: _Optional[int] = ..., forecast: bool = ..., sink: _Optional[str] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "settings", "enqueue_blocked", "dequeue_blocked", "number", "version", "deleting", "uid")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    ENQUEUE_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    DEQUEUE_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: QueueSettings
    enqueue_blocked: bool
    dequeue_blocked: bool
    number: int
    version: int
    deleting: bool
    uid: bytes
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ..., enqueue_blocked: bool = ..., dequeue_blocked: bool = ..., number: _Optional[int] = ..., version: _Optional[int] = ..., deleting: bool = ..., uid: _Optional[bytes] = ...) -> None: ...

class CreateQueueRequest(_message.Message):
    __slots__ = ("namespace", "queue", "settings", "update")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    settings: QueueSettings
    update: bool
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., settings: _Optional[_Union[QueueSettings, _Mapping]] = ..., update: bool = ...) -> None: ...

class CreateQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ("namespace", "queue")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ...) -> None: ...

class GetQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class BlockQueueRequest(_message.Message):
    __slots__ = ("namespace", "queue", "enqueue_blocked", "dequeue_blocked")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ENQUEUE_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    DEQUEUE_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    enqueue_blocked: bool
    dequeue_blocked: bool
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., enqueue_blocked: bool = ..., dequeue_blocked: bool = ...) -> None: ...

class BlockQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("namespace", "queue", "states", "page_token", "request_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    states: _containers.RepeatedScalarFieldContainer[_message_pb2.State]
    page_token: str
    request_id: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_message_pb2.State, str]]] = ..., page_token: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class PurgeQueueResponse(_message.Message):
    __slots__ = ("removed", "next_page_token")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    removed: int
    next_page_token: str
    def __init__(self, removed: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("namespace", "queue", "purge", "page_token", "request_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PURGE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    purge: bool
    page_token: str
    request_id: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., purge: bool = ..., page_token: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ("removed", "next_page_token")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    removed: int
    next_page_token: str
    def __init__(self, removed: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteNamespaceRequest(_message.Message):
    __slots__ = ("namespace", "page_token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    page_token: str
    def __init__(self, namespace: _Optional[str] = ..., page_token: _Optional[str] = ...) -> None: ...

class DeleteNamespaceResponse(_message.Message):
    __slots__ = ("removed", "next_page_token")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    removed: int
    next_page_token: str
    def __init__(self, removed: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CheckDriversRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class CheckDriversResponse(_message.Message):
    __slots__ = ("warning",)
    WARNING_FIELD_NUMBER: _ClassVar[int]
    warning: str
    def __init__(self, warning: _Optional[str] = ...) -> None: ...

class GetCountsRequest(_message.Message):
    __slots__ = ("namespace", "queue")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ...) -> None: ...

class GetCountsResponse(_message.Message):
    __slots__ = ("counts", "promoted_late_ms", "missed_by_ms", "deadlines")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class PromotedLateMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class MissedByMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    PROMOTED_LATE_MS_FIELD_NUMBER: _ClassVar[int]
    MISSED_BY_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINES_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.ScalarMap[str, int]
    promoted_late_ms: _containers.ScalarMap[int, int]
    missed_by_ms: _containers.ScalarMap[int, int]
    deadlines: int
    def __init__(self, counts: _Optional[_Mapping[str, int]] = ..., promoted_late_ms: _Optional[_Mapping[int, int]] = ..., missed_by_ms: _Optional[_Mapping[int, int]] = ..., deadlines: _Optional[int] = ...) -> None: ...

class GetDepthRequest(_message.Message):
    __slots__ = ("namespace", "queue", "where")
    class WhereEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    where: _containers.ScalarMap[str, str]
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., where: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetDepthResponse(_message.Message):
    __slots__ = ("pending",)
    PENDING_FIELD_NUMBER: _ClassVar[int]
    pending: int
    def __init__(self, pending: _Optional[int] = ...) -> None: ...

class GetForecastRequest(_message.Message):
    __slots__ = ("namespace", "queue", "minutes")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    minutes: int
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., minutes: _Optional[int] = ...) -> None: ...

class GetForecastResponse(_message.Message):
    __slots__ = ("minutes",)
    class Minute(_message.Message):
        __slots__ = ("start_ms", "due")
        START_MS_FIELD_NUMBER: _ClassVar[int]
        DUE_FIELD_NUMBER: _ClassVar[int]
        start_ms: int
        due: int
        def __init__(self, start_ms: _Optional[int] = ..., due: _Optional[int] = ...) -> None: ...
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    minutes: _containers.RepeatedCompositeFieldContainer[GetForecastResponse.Minute]
    def __init__(self, minutes: _Optional[_Iterable[_Union[GetForecastResponse.Minute, _Mapping]]] = ...) -> None: ...

class ListSettingsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class ListSettingsResponse(_message.Message):
    __slots__ = ("settings",)
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.ScalarMap[str, str]
    def __init__(self, settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetSettingRequest(_message.Message):
    __slots__ = ("namespace", "name")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GetSettingResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...

class SetSettingRequest(_message.Message):
    __slots__ = ("namespace", "name", "value")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    value: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class SetSettingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
