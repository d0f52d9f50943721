from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_INVISIBLE: _ClassVar[State]
    STATE_PENDING: _ClassVar[State]
    STATE_RUNNING: _ClassVar[State]
    STATE_COMPLETED: _ClassVar[State]
    STATE_CANCELLED: _ClassVar[State]
    STATE_ERRORED: _ClassVar[State]
STATE_UNSPECIFIED: State
STATE_INVISIBLE: State
STATE_PENDING: State
STATE_RUNNING: State
STATE_COMPLETED: State
STATE_CANCELLED: State
STATE_ERRORED: State

class NewMessage(_message.Message):
    __slots__ = ("id", "payload", "metadata", "delay_ms", "due_ms", "deadline_ms", "deadline_in_ms", "priority", "lease_ms", "max_attempts", "nonce")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_IN_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    payload: bytes
    metadata: _containers.ScalarMap[str, str]
    delay_ms: int
    due_ms: int
    deadline_ms: int
    deadline_in_ms: int
    priority: int
    lease_ms: int
    max_attempts: int
    nonce: int
    def __init__(self, id: _Optional[str] = ..., payload: _Optional[bytes] = ..., metadata: _Optional[_Mapping[str, str]] = ..., delay_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., deadline_in_ms: _Optional[int] = ..., priority: _Optional[int] = ..., lease_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., nonce: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "text", "state")
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    text: str
    state: State
    def __init__(self, reason: _Optional[str] = ..., text: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ...) -> None: ...

class EnqueueResult(_message.Message):
    __slots__ = ("id", "state", "created", "refusal")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: State
    created: bool
    refusal: Refusal
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., created: bool = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "queue", "state", "payload", "metadata", "due_ms", "deadline_ms", "attempt", "version", "exclusive_value", "worker", "error", "until_ms", "result", "payload_withheld")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    state: State
    payload: bytes
    metadata: _containers.ScalarMap[str, str]
    due_ms: int
    deadline_ms: int
    attempt: int
    version: int
    exclusive_value: str
    worker: str
    error: str
    until_ms: int
    result: str
    payload_withheld: bool
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., payload: _Optional[bytes] = ..., metadata: _Optional[_Mapping[str, str]] = ..., due_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., version: _Optional[int] = ..., exclusive_value: _Optional[str] = ..., worker: _Optional[str] = ..., error: _Optional[str] = ..., until_ms: _Optional[int] = ..., result: _Optional[str] = ..., payload_withheld: bool = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "exclusive_value", "token", "queue_number", "attempt")
    ID_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    QUEUE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    id: str
    exclusive_value: str
    token: bytes
    queue_number: int
    attempt: int
    def __init__(self, id: _Optional[str] = ..., exclusive_value: _Optional[str] = ..., token: _Optional[bytes] = ..., queue_number: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("lease", "payload", "metadata", "due_ms", "deadline_ms", "version", "lease_until_ms", "lease_ms", "max_attempts")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    payload: bytes
    metadata: _containers.ScalarMap[str, str]
    due_ms: int
    deadline_ms: int
    version: int
    lease_until_ms: int
    lease_ms: int
    max_attempts: int
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., payload: _Optional[bytes] = ..., metadata: _Optional[_Mapping[str, str]] = ..., due_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., version: _Optional[int] = ..., lease_until_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("id", "state", "version", "at_ms", "changed", "refusal")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: State
    version: int
    at_ms: int
    changed: bool
    refusal: Refusal
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., version: _Optional[int] = ..., at_ms: _Optional[int] = ..., changed: bool = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...
