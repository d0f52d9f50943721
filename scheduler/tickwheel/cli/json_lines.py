"""Messages as JSON lines: the fields of NewMessage, with durations and times as on the command line."""

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tickwheel.cli.parameter_types import deadline, delay, moment, parse_duration
from tickwheel.errors import InvalidArgument
from tickwheel.model.message import NewMessage
from tickwheel.model.message_id import new_message_id
from tickwheel.model.validation import preview, reject_unknown
from tickwheel.runtime.foreign_data import decode_json

FIELDS = (
    "payload",
    "payload_base64",
    "json",
    "id",
    "delay",
    "due",
    "deadline",
    "priority",
    "metadata",
    "lease",
    "max_attempts",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: its number, counted from 1, and its message."""

    number: int
    message: NewMessage


class LineError(InvalidArgument):
    """A line is not a valid message. ``number`` is the number of the line."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"line {number}: {text}")
        self.number = number


def lines(source: Iterable[bytes]) -> Iterator[Line]:
    """Yield the message of each line, and skip empty lines. Raises LineError.

    A message without an id receives a new id. So if the client retries a batch, no message is added twice. But if the
    same lines are parsed again, the messages receive other ids.
    """
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            message = parse(line)
        except InvalidArgument as error:
            raise LineError(number, str(error)) from error
        if message.id is None:
            message.id = new_message_id()
        yield Line(number, message)


def parse(line: bytes) -> NewMessage:
    """Return the message of a line. The client checks its values later. Raises InvalidArgument for a wrong field."""
    try:
        fields = decode_json(line.decode("utf-8-sig"), object_pairs_hook=_reject_duplicate_keys)
    except InvalidArgument:
        raise
    except ValueError as error:
        raise InvalidArgument(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidArgument(f"a line must hold a JSON object, not {preview(fields)}")
    reject_unknown("a message", fields, FIELDS)
    values: dict[str, Any] = {name: fields.get(name) for name in ("id", "metadata", "max_attempts", "priority", "json")}
    values |= {
        name: read(fields[name])
        for name, read in (
            ("delay", delay),
            ("due", moment),
            ("deadline", deadline),
            ("lease", parse_duration),
        )
        if fields.get(name) is not None
    }
    return NewMessage(_payload(fields), **values)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raises InvalidArgument for a duplicate key, because either value could be the intended one."""
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise InvalidArgument(f"{preview(next(name for name in names if names.count(name) > 1))} is given twice")
    return result


def _payload(fields: dict[str, Any]) -> bytes:
    text, encoded = fields.get("payload"), fields.get("payload_base64")
    if text is not None and encoded is not None:
        raise InvalidArgument("set payload or payload_base64, not both")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise InvalidArgument(f"payload_base64 is not base64: {preview(encoded)}") from error
    if text is None:
        return b""
    if not isinstance(text, str):
        raise InvalidArgument(f"payload must be a string (set json to send a JSON value), not {preview(text)}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"payload must be valid Unicode text; send other bytes as payload_base64: {preview(text)}"
        ) from error
