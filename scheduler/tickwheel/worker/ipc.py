"""The reports of a worker process to its supervisor, through a pipe: msgpack documents, each preceded by its length."""

import math
import os
import threading
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

import msgspec

_LENGTH = Struct("=I")


class Ready(msgspec.Struct, tag=True, array_like=True):
    """The process has loaded the app and run its start hooks, and now takes messages from ``queues``, which have these
    ``weights``. ``client_options`` open a client. ``immutable`` has the declared settings of each queue that never
    change.
    """

    client_options: dict[str, Any]
    queues: list[str]
    tasks: list[str]
    weights: list[int] = []
    immutable: dict[str, dict[str, Any]] = {}


class StartFailed(msgspec.Struct, tag=True, array_like=True):
    """The process has printed why it cannot start. ``exit_code`` is that of a command that ends for this reason."""

    exit_code: int


class Ended(msgspec.Struct, tag=True, array_like=True):
    """The process ends as intended: it was stopped, or has reached its memory limit. All messages are settled."""


class Failed(msgspec.Struct, tag=True, array_like=True):
    """The process ends because of an error, such as an error in the app's selector."""


class NamespaceLost(msgspec.Struct, tag=True, array_like=True):
    """The namespace is gone, for this ``reason``. The process finishes its running tasks, and ends."""

    reason: str


class MessageLease(msgspec.Struct, array_like=True):
    """A message whose lease must be renewed. See `LeasedMessage.by_lease`.

    The lease has ``lease_s`` seconds, and lasts until ``held_until`` at least, by `time.monotonic`.
    """

    queue: str
    queue_number: int
    id: str
    exclusive_value: str | None
    token: bytes
    attempt: int
    lease_s: float
    held_until: float = math.inf


class BatchTaken(msgspec.Struct, tag=True, array_like=True):
    """A batch was taken. ``batch_index`` is the place of its progress in the shared memory (see `shared_state`)."""

    batch_index: int
    number: int
    messages: list[MessageLease]


class TaskRun(msgspec.Struct, array_like=True):
    """One run of a task: it took ``seconds``, and ended in ``outcome``.

    ``wait_s``: a first attempt began as many seconds after its due time. It is None for further attempts.
    """

    task: str
    outcome: str
    wait_s: float | None
    seconds: float


class BatchFinished(msgspec.Struct, tag=True, array_like=True):
    """Tasks of a batch that were run since the last report. A long batch sends several reports."""

    queue: str
    tasks: list[TaskRun]


class OccurrenceHandled(msgspec.Struct, tag=True, array_like=True):
    """An occurrence of a schedule was handled. ``outcome`` is an `OccurrenceOutcome`."""

    schedule: str
    outcome: str


class QueueBlock(msgspec.Struct, tag=True, array_like=True):
    """A queue is blocked for dequeue, for this ``reason``. If the reason is empty, the queue is no longer blocked."""

    queue: str
    reason: str


Report = (
    Ready | StartFailed | Ended | Failed | NamespaceLost | BatchTaken | BatchFinished | OccurrenceHandled | QueueBlock
)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


class ReportWriter:
    """The end of the pipe in the worker process. If the supervisor has ended, `send` calls ``on_supervisor_end``.

    In a process that the worker process has forked, `send` does nothing: the pipe belongs to the worker process.
    """

    def __init__(self, fd: int, on_supervisor_end: Callable[[], object]) -> None:
        self._fd = fd
        self._on_supervisor_end = on_supervisor_end
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def send(self, *reports: Report) -> None:
        """Write the reports one after the other, with no other report in between."""
        if os.getpid() != self._pid:
            return
        raws = [_ENCODER.encode(report) for report in reports]
        left = memoryview(b"".join([part for raw in raws for part in (_LENGTH.pack(len(raw)), raw)]))
        try:
            with self._lock:
                while left:
                    left = left[os.write(self._fd, left) :]
        except BrokenPipeError:
            self._on_supervisor_end()


class ReportReader:
    """The end of the pipe in the supervisor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._raw = bytearray()
        self.at_eof = False

    def read(self) -> Iterator[Report]:
        """Read once from the pipe, and yield the reports that are complete. Set ``at_eof`` if the pipe was closed."""
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
