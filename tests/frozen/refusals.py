"""How the service reports errors: codes, reasons, and the other fields of their details."""

from typing import Any

from google.rpc.error_details_pb2 import ErrorInfo

from tickwheel import errors
from tickwheel.errors import TickwheelError


def reasons() -> dict[str, Any]:
    """Return the code and the ErrorInfo of each error. Follows `error_to_status` and `DETAILS`."""
    from tickwheel.rpc.status import DETAILS, error_from_status, error_to_status

    reasons: dict[str, Any] = {}
    for name, kind in vars(errors).items():
        if not isinstance(kind, type) or not issubclass(kind, TickwheelError):
            continue
        status = error_to_status(kind("x"))
        info = ErrorInfo()
        status.details[0].Unpack(info)
        back = error_from_status(_Ended(((DETAILS, status.SerializeToString()),)))
        reasons[name] = {
            "code": status.code,
            "reason": info.reason,
            "domain": info.domain,
            "metadata": sorted(info.metadata),
            "details": [detail.type_url.rpartition("/")[2] for detail in status.details],
            "at the client": type(back).__name__,
        }
    return reasons | {"(trailing metadata)": DETAILS}


class _Ended:
    """A call that has ended with this trailing metadata."""

    def __init__(self, metadata: tuple[tuple[str, bytes], ...]) -> None:
        self._metadata = metadata

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return self._metadata
