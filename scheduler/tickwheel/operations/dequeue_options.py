"""The arguments of a dequeue call: checked once, then passed from the client or the service to `Dequeue`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple, Self

from tickwheel import limits
from tickwheel.model import validation
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
        lease: timedelta | None = None,
        wait: timedelta | None = None,
        worker: str | None = None,
        request_id: str | None = None,
        consistency: str = "heads",
        *,
        first_attempt: bool = False,
        request_owner: str = "",
        sink: str | None = None,
        registers: bool = False,
    ) -> Self:
        """Check the arguments of a caller. Raises InvalidArgument.

        ``request_owner``: see `RequestId`. ``registers``: see `DequeueOptions.registers`.
        """
        return cls(
            validation.integer("limit", limit, 1, limits.DEQUEUE_MESSAGES),
            {} if where is None else validation.filters(where),
            0 if lease is None else validation.duration_ms("lease", lease, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
            0 if wait is None else validation.duration_ms("wait", wait, 0, limits.WAIT_MS_MAX),
            validation.text("worker", "" if worker is None else worker, limits.WORKER_BYTES),
            None if request_id is None else RequestId.parse(request_id, request_owner),
            validation.one_of("consistency", consistency, ("heads", "exact")) == "exact",
            first_attempt,
            sink,
            registers,
        )
