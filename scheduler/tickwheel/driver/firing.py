"""Sends due timers to the scripts that check the messages: promote, expire and retire.

A timer is *open* until it has its final answer: a script has checked the message, or the timer belongs to a lease that
is known to be over. A timer stays open if the message is not due yet by the server's clock, if the script did not
handle the timer in this call or rejected the call, or if there was no reply. An open timer stays in the inbox or in its
slot.

A timer is *rejected* if a damaged record or index entry of its message makes the script fail. Rejected timers wait
apart, so that the other timers of their queue fire.
"""

import logging
from collections import Counter
from math import inf
from struct import Struct
from typing import Final

from tickwheel.driver.clock import Clock
from tickwheel.driver.commands import DutySteps, Steps
from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.inbox_buffer import InboxBuffer
from tickwheel.driver.loaded_timers import LoadedTimers, time_of
from tickwheel.driver.queue_lookup import QueueLookup, QueueRef
from tickwheel.driver.stats import WheelStats
from tickwheel.driver.unknown_queues import UNKNOWN_MS, UnknownQueues
from tickwheel.errors import Unavailable
from tickwheel.limits import CALL_ENTRIES, STALE_CONFIG_RETRIES
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.storage.script_errors import FENCED, RetryCondition, ScriptError
from tickwheel.storage.scripts import bind
from tickwheel.storage.timer import Kind

# A call with this many timers takes the server about a millisecond. Larger calls would save almost nothing for each
# message, and every other client of the server would wait longer.
FIRE_BATCH: Final = 200
# Delay of a batch after an error of its script. After an outdated configuration, this applies only if the batch has
# failed `STALE_CONFIG_RETRIES` times with a new configuration.
POSTPONE_MS: Final = 1_000
# The pause after a configuration could not be read. The call itself takes some seconds then.
RENEW_PAUSE_MS: Final = 30_000
# Maximum number of batches of unknown queues in one duty. Few of them need a call (`FINDS_IN_VAIN`), so they do not
# count as calls.
UNKNOWN_BATCHES: Final = 20
# Delay of rejected timers, and the maximum number of them in memory. Further ones stay in Redis until the next
# take-over of the shard: in memory, they would count towards the limits at which the driver stops reading slots.
REJECTED_MS: Final = 10_000
REJECTED_MAX: Final = 10_000

_BOUND = Struct(">HIIB")
_TIME_BYTES: Final = 6
_FINAL, _EARLY, _UNHANDLED, _UNREADABLE = 0, 1, 2, 3

_log = logging.getLogger("tickwheel.event_process")
# Shared by all shards.
_log_throttle = LogThrottle()


class TimerFirer:
    """Fires the due timers of one shard."""

    def __init__(
        self,
        shard: FencedShard,
        queues: QueueLookup,
        clock: Clock,
        loaded_timers: LoadedTimers,
        inbox_buffer: InboxBuffer,
        stats: WheelStats,
    ) -> None:
        self._shard = shard
        self._queues = queues
        self._unknown_queues = UnknownQueues(queues, clock)
        self._clock = clock
        self._loaded_timers = loaded_timers
        self._inbox_buffer = inbox_buffer
        self._stats = stats
        self._scripts = {kind: shard.script(kind.name.lower()) for kind in Kind}
        # By queue, the number of configuration refreshes since the last successful call.
        self._renewals: Counter[int] = Counter()
        # By queue, the number of timers in the next call, if the script did not handle all timers of an earlier call.
        self._batch_sizes: dict[int, int] = {}
        self._rejected: set[bytes] = set()
        # When the next configuration may be read, on the monotonic clock.
        self._renew_at = -inf

    def fire(self, kind: Kind, calls: int) -> DutySteps:
        """Send up to ``calls`` batches of due timers. Return whether any timers were due."""
        self._report_unknown_queues(self._unknown_queues.check())
        near = self._loaded_timers.near[kind]
        sent = unknown = 0
        while sent < calls and unknown < UNKNOWN_BATCHES:
            taken = near.take(self._clock.now(), self._batch_size)
            if taken is None:
                return sent + unknown > 0
            queue_number, timers = taken
            timers = self._drop_finished(timers) if kind is Kind.EXPIRE else timers
            queue = self._unknown_queues.find(queue_number) if timers else None
            if timers and queue is None:
                self._handle_unknown_queue(kind, queue_number, timers)
                unknown += 1
                continue
            if queue is not None:
                yield from self._fire_batch(kind, queue_number, queue, timers)
            sent += 1
        return True

    @property
    def next_check_ms(self) -> float:
        """The moment on the monotonic clock at which `fire` checks for queues that were missing."""
        return self._unknown_queues.next_check_ms

    def _batch_size(self, queue_number: int) -> int:
        return self._batch_sizes.get(queue_number, FIRE_BATCH)

    def _adapt_batch_size(self, queue_number: int, sent: int, unhandled: int) -> None:
        """Adapt the batch size, so that the next call carries about as many timers as the script handles."""
        if unhandled:
            self._batch_sizes[queue_number] = max(1, sent - unhandled)
        elif sent == self._batch_sizes.get(queue_number):
            self._batch_sizes[queue_number] = min(2 * sent, FIRE_BATCH)

    def _drop_finished(self, timers: list[bytes]) -> list[bytes]:
        """Return the lease timers whose leases may still be held, and record the final answers of the others."""
        finished: list[bytes] = []
        left: list[bytes] = []
        for timer in timers:
            (finished if self._loaded_timers.finished_leases.has(timer) else left).append(timer)
        self._on_answered(finished)
        return left

    def _fire_batch(self, kind: Kind, queue_number: int, queue: QueueRef, timers: list[bytes]) -> Steps:
        bound = self._clock.now()
        is_holding = self._clock.is_holding
        limits = _BOUND.pack(*divmod(bound, 2**32), CALL_ENTRIES, is_holding)
        args = [self._shard.fence, limits, queue.context, b"".join(timers)]
        try:
            reply = yield bind(self._scripts[kind], self._shard.queue_keys(queue.name), args)
        except ScriptError as error:
            self._handle_script_error(error, kind, queue_number, timers)
            return
        self._renewals.pop(queue_number, None)
        server_ms = int.from_bytes(reply[:_TIME_BYTES], "big")
        self._clock.observe(server_ms)
        self._settle(kind, queue_number, timers, reply[_TIME_BYTES:])
        first = reply.find(_FINAL, _TIME_BYTES) - _TIME_BYTES
        if kind is Kind.PROMOTE and first >= 0:
            # The time of the transitions: the server's, and while the guard holds, the time that the guard trusts.
            now = min(server_ms, bound) if is_holding else server_ms
            late = max(0, now - time_of(timers[first]))
            self._stats.lateness_ms = late
            self._stats.lateness_max_ms = max(late, self._stats.lateness_max_ms)

    def _settle(self, kind: Kind, queue_number: int, timers: list[bytes], answers: bytes) -> None:
        near = self._loaded_timers.near[kind]
        final = timers
        if any(answers):
            by_answer: tuple[list[bytes], ...] = [], [], [], []
            for timer, answer in zip(timers, answers, strict=True):
                by_answer[answer].append(timer)
            final = by_answer[_FINAL]
            near.put_back(queue_number, by_answer[_UNHANDLED])
            self._adapt_batch_size(queue_number, len(timers), len(by_answer[_UNHANDLED]))
            for timer in by_answer[_EARLY]:
                near.add(time_of(timer), timer)
            self._stats.early_answers += len(by_answer[_EARLY])
            self._set_aside(kind, queue_number, by_answer[_UNREADABLE], "the records of their messages are damaged")
        else:
            self._adapt_batch_size(queue_number, len(timers), 0)
        self._on_answered(final)

    def _on_answered(self, timers: list[bytes]) -> None:
        self._inbox_buffer.unconfirmed.difference_update(timers)
        if self._rejected:
            self._rejected.difference_update(timers)
        self._loaded_timers.on_answered(timers)
        self._stats.fired_timers += len(timers)

    def _handle_script_error(self, error: ScriptError, kind: Kind, queue_number: int, timers: list[bytes]) -> None:
        near = self._loaded_timers.near[kind]
        if error.code == FENCED:
            raise error.to_tickwheel_error(f"shard {self._shard.number}") from error
        if error.retry is RetryCondition.WITH_CURRENT_CONFIG and self._renewals[queue_number] < STALE_CONFIG_RETRIES:
            if self._renew(queue_number):
                near.put_back(queue_number, timers)
            else:
                self._postpone(kind, timers, POSTPONE_MS)
            return
        self._renewals.pop(queue_number, None)
        if error.is_failure and len(timers) > 1:
            # Smaller and smaller calls find the timer for which the script fails.
            self._batch_sizes[queue_number] = len(timers) // 2
            near.put_back(queue_number, timers)
            return
        if error.is_failure:
            self._set_aside(kind, queue_number, timers, str(error))
            self._adapt_batch_size(queue_number, len(timers), 0)
            return
        _log.log(
            logging.ERROR if _log_throttle.should_log(f"rejected: {error}") else logging.DEBUG,
            "shard %d: %s of %d timers of queue %d was rejected; retrying in %d ms: %s",
            *(self._shard.number, kind.name.lower(), len(timers), queue_number, POSTPONE_MS, error),
        )
        self._postpone(kind, timers, POSTPONE_MS)

    def _renew(self, queue_number: int) -> bool:
        """Read the configuration of a queue again. Return False if the metadata shard cannot be reached now.

        The timers of other queues must not wait for the metadata shard of a cluster, so calls in vain are rare.
        """
        if self._clock.monotonic() < self._renew_at:
            return False
        try:
            self._queues.renew(queue_number, self._shard.number)
        except Unavailable as error:
            self._renew_at = self._clock.monotonic() + RENEW_PAUSE_MS
            _log.log(
                _log_throttle.level(f"renew: {error}"),
                "shard %d: the changed configuration of queue %d cannot be read; its timers wait: %s",
                *(self._shard.number, queue_number, error),
            )
            return False
        self._renewals[queue_number] += 1
        return True

    def _set_aside(self, kind: Kind, queue_number: int, timers: list[bytes], reason: str) -> None:
        if not timers:
            return
        _log.log(
            logging.ERROR if _log_throttle.should_log("rejected timers") else logging.DEBUG,
            "shard %d: %s of %d timers of queue %d failed (%s); retrying in %d s. Run `tickwheel doctor`, which names"
            " the damaged records and index entries",
            *(self._shard.number, kind.name.lower(), len(timers), queue_number, reason, REJECTED_MS // 1_000),
        )
        kept = []
        for timer in timers:
            if timer in self._rejected or len(self._rejected) < REJECTED_MAX:
                self._rejected.add(timer)
                kept.append(timer)
        self._postpone(kind, kept, REJECTED_MS)
        self._loaded_timers.leave_out(len(timers) - len(kept))

    def _postpone(self, kind: Kind, timers: list[bytes], ms: int) -> None:
        again_at = self._clock.now() + ms
        for timer in timers:
            self._loaded_timers.near[kind].add(again_at, timer)

    def _handle_unknown_queue(self, kind: Kind, queue_number: int, timers: list[bytes]) -> None:
        if not self._unknown_queues.is_missing(queue_number):
            self._postpone(kind, timers, self._unknown_queues.wait_ms)
            return
        self._unknown_queues.leave_out(queue_number, len(timers))
        self._loaded_timers.leave_out(len(timers))
        self._report_unknown_queues(len(timers))

    def _report_unknown_queues(self, timers: int) -> None:
        if not timers:
            return
        self._stats.unknown_queue_timers += timers
        _log.log(
            logging.ERROR if _log_throttle.should_log("unknown queue") else logging.DEBUG,
            "shard %d: %d due timers belong to queues which the metadata shard does not have; the timers stay in Redis,"
            " and this process checks every %d s whether their queues exist again",
            *(self._shard.number, timers, UNKNOWN_MS // 1_000),
        )
