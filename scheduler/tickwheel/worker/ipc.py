"""What a worker process tells its supervisor: short notes through a pipe, each a msgpack document behind its length."""

import os
import threading
from collections.abc import Iterator
from struct import Struct
from typing import Any

import msgspec

_LENGTH = Struct("=I")


class Ready(msgspec.Struct, tag=True, array_like=True):
    """The app is there. ``where`` is what a client of it is opened with; ``queues`` what it takes from."""

    client_options: dict[str, Any]
    queues: list[str]
    tasks: list[str]


class MessageLease(msgspec.Struct, array_like=True):
    """A message whose lease is to be renewed; the lease is ``lease_s`` long. See `LeasedMessage.by_lease`."""

    queue: str
    queue_number: int
    id: str
    exclusive_value: str | None
    token: bytes
    attempt: int
    lease_s: float


class BatchTaken(msgspec.Struct, tag=True, array_like=True):
    """A batch was taken: what the slots of a page are."""

    batch_index: int
    number: int
    messages: list[MessageLease]


class TaskRun(msgspec.Struct, array_like=True):
    """One task that was run: ``wait_s`` after it was due, for so many seconds, to its end in ``outcome``."""

    task: str
    outcome: str
    wait_s: float
    seconds: float


class BatchFinished(msgspec.Struct, tag=True, array_like=True):
    """A batch was run."""

    queue: str
    tasks: list[TaskRun]


class OccurrenceHandled(msgspec.Struct, tag=True, array_like=True):
    """An occurrence of a schedule was seen to: it has fired, or why it has not."""

    schedule: str
    outcome: str


Report = Ready | BatchTaken | BatchFinished | OccurrenceHandled
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


class ReportWriter:
    """The process's end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, *reports: Report) -> None:
        """All together. Raises BrokenPipeError where the supervisor is gone."""
        raws = [_ENCODER.encode(report) for report in reports]
        left = memoryview(b"".join([part for raw in raws for part in (_LENGTH.pack(len(raw)), raw)]))
        with self._lock:
            while left:
                left = left[os.write(self._fd, left) :]


class ReportReader:
    """The supervisor's end, which does not wait."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._raw = bytearray()
        self.at_eof = False

    def read(self) -> Iterator[Report]:
        """What has come; ``ended`` once the process has closed its end."""
        chunk = os.read(self._fd, 1 << 16)
        self.at_eof = not chunk
        self._raw += chunk
        while len(self._raw) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._raw)[0]
            if len(self._raw) < end:
                return
            report = _DECODER.decode(bytes(self._raw[_LENGTH.size : end]))
            del self._raw[:end]
            yield report
