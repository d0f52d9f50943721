"""Completes, fails, extends and releases the messages of one shard's sinks.

If the record of a message is damaged, the scripts fail for the message, and for the others of its call. Then each
message gets a call of its own, and the damaged one is given up: its lease ends.
"""

import logging
from itertools import groupby
from operator import attrgetter
from typing import Final

from tickwheel.errors import LeaseLost, QueueNotFound, TickwheelError
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.settle import complete, extend_many, fail, release
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.replies import is_script_failure
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.sinks.sink import SinkMessage

# How long the forwarder tries to release messages at its end.
_RELEASE_S: Final = 0.2

_log = logging.getLogger("tickwheel.sinks")
# Shared by all shards: one line for each queue.
_log_throttle = LogThrottle()


class SinkSettler:
    """Settles messages of one shard. All methods raise the errors of a server that cannot execute the calls now."""

    def __init__(self, io: RedisExecutor, context: NamespaceContext, shard: int) -> None:
        self._io = io
        self._context = context
        self._shard = shard

    def complete(self, messages: list[SinkMessage]) -> None:
        """Complete messages that brokers have acknowledged. Log those that could not be completed."""
        messages.sort(key=attrgetter("queue"))
        for _, of_queue in groupby(messages, attrgetter("queue")):
            self._complete_queue(list(of_queue))

    def _complete_queue(self, messages: list[SinkMessage]) -> None:
        try:
            self._io.run(complete(self._context, messages))
        except TickwheelError as error:
            if is_script_failure(error) and len(messages) > 1:
                for message in messages:
                    self._complete_queue([message])
                return
            if not _is_lost(error):
                raise
            _log.warning(
                "shard %d: messages of queue %s were sent to the sink, but not completed: %s",
                *(self._shard, messages[0].queue, error),
            )

    def fail(self, message: SinkMessage, reason: str) -> None:
        """Let the attempt of a message that its broker has rejected fail."""
        # If the topic does not exist, for example, the broker rejects every message of the queue.
        _log.log(
            _log_throttle.level(f"{self._context.namespace}:{message.queue}"),
            "shard %d: the sink rejected message %r of queue %s, so the attempt fails: %s",
            *(self._shard, message.id, message.queue, reason),
        )
        try:
            self._io.run(fail(self._context, message, f"the sink rejected the message: {reason}", None))
        except TickwheelError as error:
            if not _is_lost(error):
                raise
            _log.info("shard %d: a rejected message is no longer leased: %s", self._shard, error)

    def extend(self, messages: list[SinkMessage], lease_ms: int) -> list[SinkMessage]:
        """Extend the leases of messages of one queue. Return the messages whose leases are lost."""
        try:
            return self._io.run(extend_many(self._context, messages, lease_ms))
        except TickwheelError as error:
            if is_script_failure(error) and len(messages) > 1:
                return [lost for message in messages for lost in self.extend([message], lease_ms)]
            if not _is_lost(error):
                raise
            return messages

    def release(self, messages: list[SinkMessage]) -> None:
        """Release messages, so that their attempts do not count. Log an error instead of raising it."""
        messages.sort(key=attrgetter("queue"))
        for queue, of_queue in groupby(messages, attrgetter("queue")):
            try:
                self._io.run(release(self._context, list(of_queue)), timeout_s=_RELEASE_S)
            except TickwheelError as error:
                _log.info("shard %d: messages of queue %s are not released: %s", self._shard, queue, error)
                if not _is_lost(error):
                    return


def _is_lost(error: TickwheelError) -> bool:
    """Return whether the call cannot succeed later, because the message is gone, leased by another, or damaged."""
    return isinstance(error, LeaseLost | QueueNotFound) or is_script_failure(error)
