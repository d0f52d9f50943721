"""Payloads that are JSON: encoded when a message is enqueued, and decoded on demand."""

import json
from typing import Any

from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import preview
from tickwheel.runtime.foreign_data import decode_json


def encode_payload(value: object, payload: object = b"") -> bytes:
    """Return a value as compact JSON in UTF-8.

    Raises InvalidArgument if JSON cannot represent the value, or if the message has another ``payload``.
    """
    if not isinstance(payload, bytes | str) or payload:
        raise InvalidArgument("give a payload or json, not both: json sets the payload")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except RecursionError as error:
        raise InvalidArgument(f"json is nested too deeply: {preview(value)}") from error
    # A class of the caller, such as a subclass of dict, can raise any error.
    except Exception as error:
        raise InvalidArgument(
            "json must be a value that JSON can represent (dict, list, str, bool, int, or float except NaN and"
            f" infinity), not {preview(value)}: {preview(error)}"
        ) from error


def decode_payload(queue: str, id_: str, payload: bytes) -> Any:
    """Return the value of the payload of a message. Raises InvalidArgument if the payload is not JSON."""
    try:
        return decode_json(payload)
    except ValueError as error:
        raise InvalidArgument(
            f"the payload of message {id_!r} of queue {queue!r} is not JSON: {preview(payload)}; read `payload` instead"
        ) from error
