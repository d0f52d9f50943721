"""The arguments of a dequeue call: checked once, then passed from the client or the service to `Dequeue`. One of them
limits the bytes of the answer.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from tickwheel import limits
from tickwheel.errors import InvalidArgument, QueueConfigConflict
from tickwheel.model import message_content, validation
from tickwheel.model.message import LeasedMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.validation import Duration
from tickwheel.operations.sessions import RequestId


class DequeueOptions(NamedTuple):
    """The checked arguments of `Queue.dequeue`; `parse` creates the object.

    A named tuple, because every call creates one: the constructor of a frozen dataclass takes eight times as long.
    """

    limit: int
    filters: Mapping[str, str]
    lease_ms: int
    """0 for the lease duration of the message or, if the message has none, of the queue."""
    wait_ms: int
    worker: bytes
    request: RequestId | None
    exact: bool
    first_attempt: bool
    """The caller has not sent the request before, so an empty answer need not be recorded. See
    `DequeueRequest.first_attempt`."""
    sink: str | None
    """The sink that receives the messages; None if a worker receives them."""
    registers: bool
    """The call is registered on the registration shard of its slot (`answered_calls`). Only the service does so."""
    max_bytes: int | None = None
    """The call leases no more messages when it has this number of bytes. Only the service limits them."""

    def content(self) -> bytes:
        """Return the options that are equal in every retry of a request, packed.

        The wait may be shorter in a retry, and a worker may repeat the request of its predecessor, which had another
        name.
        """
        filters = sorted(self.filters.items())
        return repr((self.limit, self.lease_ms, self.exact, filters)).encode()

    @classmethod
    def parse(
        cls,
        limit: int = 1,
        where: Mapping[str, str] | None = None,
        lease: Duration | None = None,
        wait: Duration | None = None,
        worker: str | None = None,
        request_id: str | None = None,
        consistency: str = "heads",
        *,
        first_attempt: bool = False,
        request_owner: str = "",
        sink: str | None = None,
        registers: bool = False,
        max_bytes: int | None = None,
    ) -> Self:
        """Check the arguments of a caller. Raises InvalidArgument.

        ``request_owner``: see `RequestId`. ``registers`` and ``max_bytes``: see the fields of this class.
        """
        return cls(
            validation.integer("limit", limit, 1, limits.DEQUEUE_MESSAGES),
            {} if where is None else message_content.filters(where),
            0 if lease is None else validation.duration_ms("lease", lease, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
            0 if wait is None else validation.duration_ms("wait", wait, 0, limits.WAIT_MS_MAX),
            validation.text("worker", "" if worker is None else worker, limits.WORKER_BYTES),
            None if request_id is None else RequestId.parse(request_id, request_owner),
            validation.one_of("consistency", consistency, ("heads", "exact")) == "exact",
            first_attempt,
            sink,
            registers,
            max_bytes,
        )

    def check_sink(self, queue: str, config: QueueConfig) -> None:
        """Raise QueueConfigConflict if the queue delivers its messages to another receiver than this call."""
        if config.sink == self.sink:
            return
        if self.sink is not None:
            raise QueueConfigConflict(f"the sink of queue {queue!r} is now {config.sink!r}, no longer {self.sink!r}")
        raise QueueConfigConflict(
            f"queue {queue!r} delivers its messages to {config.sink}, so workers cannot dequeue them; to deliver to"
            " workers again, update the queue with sink=''"
        )

    def check_indexed(self, queue: str, config: QueueConfig) -> None:
        """Raise InvalidArgument if a filter has a key that the queue does not index."""
        if config.indexed is None:
            return
        for key in self.filters:
            if key not in config.indexed:
                raise InvalidArgument(
                    f"queue {queue!r} does not index {key!r}: it was created with indexed={list(config.indexed)}"
                )


class AnswerRoom:
    """Counts the bytes of the messages that a call leases, up to ``max_bytes``. None means no maximum.

    The messages of a repeated call are not counted, because none of them may be left out.
    """

    def __init__(self, max_bytes: int | None) -> None:
        self.max_bytes = max_bytes
        self.has_messages = False
        """Whether the call has leased messages."""
        self.listed = 0
        """How many messages the last script call has listed. Some of them may have been cancelled since."""
        self._leased = 0
        self._is_repeated = False

    @property
    def is_full(self) -> bool:
        """Whether the call may lease no more messages."""
        return self.max_bytes is not None and self._leased >= self.max_bytes

    @property
    def ends_shard(self) -> bool:
        """Whether the last script call was the last one on its shard. False after a repeated one, which another may
        follow.
        """
        return self.is_full and not self._is_repeated

    def maxima(self) -> tuple[int, int]:
        """Return the maximum bytes of records and of large payloads for the next script call."""
        left = limits.OUT_OF_BAND_BYTES if self.max_bytes is None else max(self.max_bytes - self._leased, 0)
        return min(left, limits.CALL_BYTES), min(left, limits.OUT_OF_BAND_BYTES)

    def exact_limit(self, limit: int, payload_limit: int) -> int:
        """Return how many messages with payloads of the size ``payload_limit`` fit, at most ``limit``. The call needs
        no other maximum then.
        """
        if self.max_bytes is not None:
            limit, self.max_bytes = min(limit, max(self.max_bytes // payload_limit, 1)), None
        return limit

    def count(
        self, entries: Sequence[tuple[bytes, bytes]], messages: Sequence[LeasedMessage], *, is_repeated: bool
    ) -> None:
        """Count the messages of a script call, given as fields and records, and as messages."""
        self.has_messages |= bool(messages)
        self.listed = len(entries)
        self._is_repeated = is_repeated
        if self.max_bytes is not None and not is_repeated:
            self._leased += sum(len(stored) for _, stored in entries)
            self._leased += sum(len(message.payload) for message in messages)
