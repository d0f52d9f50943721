"""Conversion of exceptions to and from the status of a call.

Any gRPC client can read the status code. A `google.rpc.ErrorInfo` in the status names the exact exception, as
https://google.aip.dev/193 recommends.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from tickwheel import errors
from tickwheel.errors import TickwheelError
from tickwheel.rpc import message_conversion
from tickwheel.runtime.text_escape import cut_middle
from tickwheel.v1.message_pb2 import Refusal

DOMAIN: Final = "tickwheel"
# The key of the status in the trailing metadata of a call.
DETAILS: Final = "grpc-status-details-bin"
_Code = grpc.StatusCode
# The code of an exception is in the first row whose class matches.
_CODES: Final[tuple[tuple[type[TickwheelError], grpc.StatusCode], ...]] = (
    (errors.InvalidArgument, _Code.INVALID_ARGUMENT),
    (errors.NamespaceNotFound, _Code.NOT_FOUND),
    (errors.QueueNotFound, _Code.NOT_FOUND),
    (errors.MessageNotFound, _Code.NOT_FOUND),
    (errors.IdConflict, _Code.ALREADY_EXISTS),
    (errors.NamespaceGone, _Code.FAILED_PRECONDITION),
    (errors.NamespaceInUse, _Code.FAILED_PRECONDITION),
    (errors.QueueConfigConflict, _Code.FAILED_PRECONDITION),
    (errors.QueueBlocked, _Code.FAILED_PRECONDITION),
    (errors.QueueNotEmpty, _Code.FAILED_PRECONDITION),
    (errors.InvalidTransition, _Code.FAILED_PRECONDITION),
    (errors.LeaseLost, _Code.FAILED_PRECONDITION),
    (errors.Unauthenticated, _Code.UNAUTHENTICATED),
    (errors.Forbidden, _Code.PERMISSION_DENIED),
    (errors.OutOfMemory, _Code.RESOURCE_EXHAUSTED),
    (errors.OutboxFull, _Code.RESOURCE_EXHAUSTED),
    (errors.LimitExceeded, _Code.RESOURCE_EXHAUSTED),
    (errors.DataLoss, _Code.DATA_LOSS),
    (errors.NotDurable, _Code.ABORTED),
    (errors.SessionExpired, _Code.ABORTED),
    (errors.Unavailable, _Code.UNAVAILABLE),
    (TickwheelError, _Code.INTERNAL),
)
# By default, a gRPC client accepts 8 KiB of metadata with a status, and otherwise loses the status. The text of an
# error is in the metadata twice: escaped, with up to three bytes for each byte, and in DETAILS, with four bytes for
# three.
_TEXT_BYTES: Final = 1_500
_ATTRIBUTE_BYTES: Final = 256
# A client waits for at most this time, whatever the service asks for.
_RETRY_AFTER_MS_MAX: Final = 3_600_000
# The attributes of exceptions, and functions that parse them from the metadata of ErrorInfo.
_READ: Final[Mapping[str, Any]] = {
    "state": str,
    "advice": str,
    "size": int,
    "limit": int,
    "retry_after_ms": lambda text: min(max(int(text), 0), _RETRY_AFTER_MS_MAX),
    "may_have_happened": lambda text: text == "true",
}


def reason(kind: type[TickwheelError]) -> str:
    """Return the reason in ErrorInfo for a class of exceptions, for example ID_CONFLICT for IdConflict."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()


_KINDS: Final = {
    reason(kind): kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TickwheelError) and kind is not errors.Fenced
}


def error_to_status(error: TickwheelError) -> Status:
    """Return the status of a call that fails with this exception. Long texts are cut."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    info = ErrorInfo(reason=reason(type(error)), domain=DOMAIN)
    for name in _READ:
        value = getattr(error, name, None)
        if value is not None:
            attribute = str(value).lower() if isinstance(value, bool) else str(value)
            info.metadata[name] = cut_middle(attribute, _ATTRIBUTE_BYTES)
    details: list[Any] = [info]
    if isinstance(error, errors.LimitExceeded):
        retry_info = RetryInfo()
        retry_info.retry_delay.FromMilliseconds(error.retry_after_ms)
        details.append(retry_info)
    return Status(code=code.value[0], message=_text(error), details=map(_pack, details))


def _text(error: TickwheelError) -> str:
    return cut_middle(str(error), _TEXT_BYTES)


def _pack(detail: Any) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed


def error_to_proto(error: TickwheelError) -> Refusal:
    """Convert the exception for one refused message of a call. A long text is cut."""
    state = message_conversion.state_to_proto(getattr(error, "state", None))
    return Refusal(reason=reason(type(error)), text=_text(error), state=state)


def error_from_proto(proto: Refusal) -> TickwheelError:
    """Return the exception for one refused message of a call."""
    kind = _KINDS.get(proto.reason, TickwheelError)
    if kind is errors.InvalidTransition:
        return errors.InvalidTransition(proto.text, message_conversion.state_from_proto(proto.state))
    return kind(proto.text)


def error_from_status(call: Any) -> TickwheelError | None:
    """Return the exception for the status of a call, or None if the status does not come from Tickwheel.

    A status from elsewhere means that the connection is broken, or that a proxy or another service answered. So do
    details that no Tickwheel service sends.
    """
    details = next((value for key, value in call.trailing_metadata() or () if key == DETAILS), None)
    try:
        return None if details is None else _error_from_details(Status.FromString(details))
    except (DecodeError, TypeError, ValueError):
        return None


def _error_from_details(status: Status) -> TickwheelError | None:
    for detail in status.details:
        info = ErrorInfo()
        if not detail.Unpack(info) or info.domain != DOMAIN:
            continue
        kind = _KINDS.get(info.reason, TickwheelError)
        return kind(
            status.message, **{name: _READ[name](value) for name, value in info.metadata.items() if name in _READ}
        )
    return None
