"""The wake channels that a process of the service has for each of its callers, in all namespaces. No I/O.

Each channel takes some hundred bytes of memory, and a caller can wait for thousands of queues, with a channel for each
shard. So the number of channels of a caller is limited. Above the limit, a queue gets no subscription: the sweep
(`redis/wait_list.py`) wakes one of its waiters about once a second. The call waits without an error.

The caller whose call begins the subscription of a queue has its channels until the subscription ends, also if other
callers wait for the queue, too. A caller without a name is a program with its own client, which has no limit.
"""

import logging

from tickwheel import limits
from tickwheel.runtime.log_throttle import LogThrottle

_log = logging.getLogger("tickwheel")


class CallerChannels:
    """The number of channels of each caller. Not thread-safe: the callers of one event loop have names."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._log_throttle = LogThrottle()

    def take(self, caller: str, count: int) -> bool:
        """Count channels of a new subscription. Return False if the caller would have more than its limit."""
        if not caller:
            return True
        held = self._counts.get(caller, 0)
        if held + count > limits.CALLER_CHANNELS:
            _log.log(
                self._log_throttle.level(caller),
                "%s has reached its limit of %d wake channels, one for each queue and shard: of the further queues for"
                " which its calls wait, one call checks each about once a second. Let it wait for fewer queues at a"
                " time, or use namespaces with fewer shards",
                *(caller, limits.CALLER_CHANNELS),
            )
            return False
        self._counts[caller] = held + count
        return True

    def put_back(self, caller: str, count: int) -> None:
        """Count the channels of a subscription no longer, because it has ended."""
        if not caller:
            return
        self._counts[caller] -= count
        if not self._counts[caller]:
            del self._counts[caller]
