"""The wait for the messages of several queues over the service: each step is an `AwaitMessages` call."""

import logging
import time
from collections.abc import Sequence

from tickwheel import limits
from tickwheel.client.grpc.call_retry import UnknownMethod
from tickwheel.plan import Pause, Plan, RpcCall
from tickwheel.runtime.backoff import exponential
from tickwheel.v1 import message_service_pb2 as calls

# The number of answers in a row whose queues had no messages for the caller, from which on the wait pauses.
_FUTILE_ANSWERS = 3
_PAUSE_S, _MAX_PAUSE_S = 0.01, 1.0
# How long `AwaitMessages` is not called again after the service did not offer the call: it may be updated meanwhile.
_MISSING_S = 60.0

_log = logging.getLogger("tickwheel")


class AwaitSupport:
    """Whether the service offers `AwaitMessages`. An older service does not."""

    def __init__(self) -> None:
        self._missing_until = 0.0

    @property
    def is_missing(self) -> bool:
        """Whether the service did not offer the call less than a minute ago."""
        return time.monotonic() < self._missing_until

    def note_missing(self) -> None:
        """Remember for a minute that the service does not offer the call. Log it once."""
        is_new, self._missing_until = not self._missing_until, time.monotonic() + _MISSING_S
        if is_new:
            _log.warning(
                "the service is of an older version, without AwaitMessages: while all queues of a worker are empty, the"
                " worker waits for the messages of one queue at a time; update the service"
            )


class GrpcMessageWait:
    """See `MessageWait`."""

    def __init__(self, namespace: str, queues: Sequence[str], support: AwaitSupport) -> None:
        self._request = calls.AwaitMessagesRequest(namespace=namespace, queues=queues)
        self._support = support
        self._answers = 0

    def next(self, until: float) -> Plan[list[str] | None]:
        """Return queues that may have messages, or an empty list if the wait is over. None: the service does
        not offer the wait, or not for as many queues."""
        if self._support.is_missing or len(self._request.queues) > limits.AWAITED_QUEUES:
            return None
        if self._answers >= _FUTILE_ANSWERS:
            # Whatever the reason, do not let client and service run at full speed.
            pause = min(
                exponential(_PAUSE_S, _MAX_PAUSE_S, self._answers - _FUTILE_ANSWERS + 1), until - time.monotonic()
            )
            yield Pause(max(pause, 0))
        left = until - time.monotonic()
        if left <= 0:
            return []
        self._answers += 1
        self._request.wait_ms = round(1000 * left)
        try:
            answer = yield RpcCall("AwaitMessages", self._request, until)
        except UnknownMethod:
            self._support.note_missing()
            return None
        return list(answer.queues)

    def begin_search(self, queue: str) -> None:
        """Do nothing: the service has used the wake-up."""

    def end(self) -> Plan[None]:
        """Do nothing: the service has ended its part of the wait."""
        yield from ()
