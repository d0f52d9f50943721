from tickwheel.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnqueueRequest(_message.Message):
    __slots__ = ("namespace", "queue", "message")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    message: _message_pb2.NewMessage
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., message: _Optional[_Union[_message_pb2.NewMessage, _Mapping]] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: _message_pb2.EnqueueResult
    def __init__(self, result: _Optional[_Union[_message_pb2.EnqueueResult, _Mapping]] = ...) -> None: ...

class EnqueueBatchRequest(_message.Message):
    __slots__ = ("namespace", "queue", "messages", "queue_uid")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_UID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.NewMessage]
    queue_uid: bytes
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_message_pb2.NewMessage, _Mapping]]] = ..., queue_uid: _Optional[bytes] = ...) -> None: ...

class EnqueueBatchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_message_pb2.EnqueueResult]
    def __init__(self, results: _Optional[_Iterable[_Union[_message_pb2.EnqueueResult, _Mapping]]] = ...) -> None: ...

class EnqueueStreamRequest(_message.Message):
    __slots__ = ("namespace", "queue", "messages")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.NewMessage]
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_message_pb2.NewMessage, _Mapping]]] = ...) -> None: ...

class EnqueueStreamResponse(_message.Message):
    __slots__ = ("created", "present", "refused", "refused_count")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    created: int
    present: int
    refused: _containers.RepeatedCompositeFieldContainer[_message_pb2.EnqueueResult]
    refused_count: int
    def __init__(self, created: _Optional[int] = ..., present: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[_message_pb2.EnqueueResult, _Mapping]]] = ..., refused_count: _Optional[int] = ...) -> None: ...

class DequeueRequest(_message.Message):
    __slots__ = ("namespace", "queue", "limit", "where", "lease_ms", "wait_ms", "worker", "request_id", "consistency", "first_attempt")
    class Consistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONSISTENCY_UNSPECIFIED: _ClassVar[DequeueRequest.Consistency]
        CONSISTENCY_HEADS: _ClassVar[DequeueRequest.Consistency]
        CONSISTENCY_EXACT: _ClassVar[DequeueRequest.Consistency]
    CONSISTENCY_UNSPECIFIED: DequeueRequest.Consistency
    CONSISTENCY_HEADS: DequeueRequest.Consistency
    CONSISTENCY_EXACT: DequeueRequest.Consistency
    class WhereEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    FIRST_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    limit: int
    where: _containers.ScalarMap[str, str]
    lease_ms: int
    wait_ms: int
    worker: str
    request_id: str
    consistency: DequeueRequest.Consistency
    first_attempt: bool
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., limit: _Optional[int] = ..., where: _Optional[_Mapping[str, str]] = ..., lease_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., worker: _Optional[str] = ..., request_id: _Optional[str] = ..., consistency: _Optional[_Union[DequeueRequest.Consistency, str]] = ..., first_attempt: bool = ...) -> None: ...

class DequeueResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[_message_pb2.Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[_message_pb2.Delivery, _Mapping]]] = ...) -> None: ...

class DequeueBatchRequest(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[DequeueRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[DequeueRequest, _Mapping]]] = ...) -> None: ...

class DequeueBatchResponse(_message.Message):
    __slots__ = ("answers",)
    class Answer(_message.Message):
        __slots__ = ("place", "response")
        PLACE_FIELD_NUMBER: _ClassVar[int]
        RESPONSE_FIELD_NUMBER: _ClassVar[int]
        place: int
        response: DequeueResponse
        def __init__(self, place: _Optional[int] = ..., response: _Optional[_Union[DequeueResponse, _Mapping]] = ...) -> None: ...
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[DequeueBatchResponse.Answer]
    def __init__(self, answers: _Optional[_Iterable[_Union[DequeueBatchResponse.Answer, _Mapping]]] = ...) -> None: ...

class AwaitMessagesRequest(_message.Message):
    __slots__ = ("namespace", "queues", "wait_ms")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    wait_ms: int
    def __init__(self, namespace: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class AwaitMessagesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queues: _Optional[_Iterable[str]] = ...) -> None: ...

class DequeueStreamRequest(_message.Message):
    __slots__ = ("namespace", "queue", "where", "lease_ms", "worker", "credit")
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
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    where: _containers.ScalarMap[str, str]
    lease_ms: int
    worker: str
    credit: int
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., where: _Optional[_Mapping[str, str]] = ..., lease_ms: _Optional[int] = ..., worker: _Optional[str] = ..., credit: _Optional[int] = ...) -> None: ...

class DequeueStreamResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[_message_pb2.Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[_message_pb2.Delivery, _Mapping]]] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("namespace", "queue", "leases", "results")
    class ResultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    leases: _containers.RepeatedCompositeFieldContainer[_message_pb2.Lease]
    results: _containers.ScalarMap[int, str]
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., leases: _Optional[_Iterable[_Union[_message_pb2.Lease, _Mapping]]] = ..., results: _Optional[_Mapping[int, str]] = ...) -> None: ...

class CompleteResponse(_message.Message):
    __slots__ = ("lost",)
    LOST_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lost: _Optional[_Iterable[int]] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("namespace", "queue", "items", "request_id")
    class Item(_message.Message):
        __slots__ = ("lease", "error", "retry_in_ms", "final")
        LEASE_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        RETRY_IN_MS_FIELD_NUMBER: _ClassVar[int]
        FINAL_FIELD_NUMBER: _ClassVar[int]
        lease: _message_pb2.Lease
        error: str
        retry_in_ms: int
        final: bool
        def __init__(self, lease: _Optional[_Union[_message_pb2.Lease, _Mapping]] = ..., error: _Optional[str] = ..., retry_in_ms: _Optional[int] = ..., final: bool = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    items: _containers.RepeatedCompositeFieldContainer[FailRequest.Item]
    request_id: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., items: _Optional[_Iterable[_Union[FailRequest.Item, _Mapping]]] = ..., request_id: _Optional[str] = ...) -> None: ...

class FailResponse(_message.Message):
    __slots__ = ("states", "retry_in_ms", "max_attempts")
    STATES_FIELD_NUMBER: _ClassVar[int]
    RETRY_IN_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[_message_pb2.State]
    retry_in_ms: _containers.RepeatedScalarFieldContainer[int]
    max_attempts: int
    def __init__(self, states: _Optional[_Iterable[_Union[_message_pb2.State, str]]] = ..., retry_in_ms: _Optional[_Iterable[int]] = ..., max_attempts: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("namespace", "queue", "leases", "request_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    leases: _containers.RepeatedCompositeFieldContainer[_message_pb2.Lease]
    request_id: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., leases: _Optional[_Iterable[_Union[_message_pb2.Lease, _Mapping]]] = ..., request_id: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("lost",)
    LOST_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lost: _Optional[_Iterable[int]] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("namespace", "queue", "leases", "duration_ms", "request_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    leases: _containers.RepeatedCompositeFieldContainer[_message_pb2.Lease]
    duration_ms: int
    request_id: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., leases: _Optional[_Iterable[_Union[_message_pb2.Lease, _Mapping]]] = ..., duration_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class ExtendResponse(_message.Message):
    __slots__ = ("lease_until_ms",)
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    lease_until_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lease_until_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class GetLeaseRequest(_message.Message):
    __slots__ = ("namespace", "queue", "id", "exclusive_value", "token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    id: str
    exclusive_value: str
    token: bytes
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., id: _Optional[str] = ..., exclusive_value: _Optional[str] = ..., token: _Optional[bytes] = ...) -> None: ...

class GetLeaseResponse(_message.Message):
    __slots__ = ("delivery",)
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    delivery: _message_pb2.Delivery
    def __init__(self, delivery: _Optional[_Union[_message_pb2.Delivery, _Mapping]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("namespace", "queue", "ids", "exclusive_value", "release", "request_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    exclusive_value: str
    release: bool
    request_id: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., exclusive_value: _Optional[str] = ..., release: bool = ..., request_id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[_message_pb2.Change]
    def __init__(self, changes: _Optional[_Iterable[_Union[_message_pb2.Change, _Mapping]]] = ...) -> None: ...

class RescheduleRequest(_message.Message):
    __slots__ = ("namespace", "queue", "id", "exclusive_value", "delay_ms", "due_ms", "deadline_ms", "deadline_in_ms", "request_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_IN_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    id: str
    exclusive_value: str
    delay_ms: int
    due_ms: int
    deadline_ms: int
    deadline_in_ms: int
    request_id: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., id: _Optional[str] = ..., exclusive_value: _Optional[str] = ..., delay_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., deadline_in_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class RescheduleResponse(_message.Message):
    __slots__ = ("change",)
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    change: _message_pb2.Change
    def __init__(self, change: _Optional[_Union[_message_pb2.Change, _Mapping]] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("namespace", "queue", "id", "exclusive_value", "request_id")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    id: str
    exclusive_value: str
    request_id: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., id: _Optional[str] = ..., exclusive_value: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("change",)
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    change: _message_pb2.Change
    def __init__(self, change: _Optional[_Union[_message_pb2.Change, _Mapping]] = ...) -> None: ...

class GetMessageRequest(_message.Message):
    __slots__ = ("namespace", "queue", "id", "exclusive_value", "wait_ms")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    id: str
    exclusive_value: str
    wait_ms: int
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., id: _Optional[str] = ..., exclusive_value: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class GetMessageResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.Message
    def __init__(self, message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("namespace", "queue", "id", "exclusive_value")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    id: str
    exclusive_value: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., id: _Optional[str] = ..., exclusive_value: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("id", "state", "code", "reason", "until_ms", "ahead", "ahead_in_value", "holder", "worker")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    AHEAD_IN_VALUE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: _message_pb2.State
    code: str
    reason: str
    until_ms: int
    ahead: int
    ahead_in_value: int
    holder: str
    worker: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[_message_pb2.State, str]] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ..., until_ms: _Optional[int] = ..., ahead: _Optional[int] = ..., ahead_in_value: _Optional[int] = ..., holder: _Optional[str] = ..., worker: _Optional[str] = ...) -> None: ...

class ListMessagesRequest(_message.Message):
    __slots__ = ("namespace", "queue", "state", "page_token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    queue: str
    state: _message_pb2.State
    page_token: str
    def __init__(self, namespace: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[_Union[_message_pb2.State, str]] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.Message]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.Message, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
