"""A producer: enqueues its batches at their times, cancels and reschedules some messages, and repeats unanswered calls.

Usage: producer.py SETTINGS NAME. The program exits when all of its calls are answered.
"""

import heapq
import sys
import time
from datetime import timedelta

from tests.fault.harness.call_log import OK, CallLog, now
from tests.fault.harness.load import VALUE_KEY, Afterwards, PlannedMessage, plan_message
from tests.fault.harness.settings import CALL_S, Settings
from tickwheel import IdConflict, InvalidTransition, MessageNotFound, NewMessage, Tickwheel

_PAUSE_S = 0.02


class Producer:
    """Runs the actions of one producer in one thread."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings, self._load, self._name = settings, settings.load, name
        self._call_log = CallLog(settings.call_logs, name)
        self._tickwheel = Tickwheel(
            settings.url,
            namespace=settings.namespace,
            durability=settings.durability,
            timeout=timedelta(seconds=CALL_S),
        )
        self._later: list[tuple[float, str]] = []
        self._unanswered: list[PlannedMessage] = []

    def run(self) -> None:
        """Enqueue all batches and do all later actions, then repeat the last batch, which must change nothing."""
        last: list[PlannedMessage] = []
        for number in range(self._load.batches(self._name)):
            due, ids = self._load.batch(self._name, number)
            while (left := self._settings.started + due - now()) > 0:
                self._act_or_pause(min(left, _PAUSE_S))
            last = [plan_message(self._load, id) for id in ids]
            self._enqueue(last)
        while self._later or self._unanswered:
            self._act_or_pause(_PAUSE_S)
        self._enqueue(last, op="repeat")

    def _act_or_pause(self, pause: float) -> None:
        """Do one later action, or pause."""
        again, self._unanswered = self._unanswered, []
        if again:
            time.sleep(pause)
            self._enqueue(again)
        elif self._later and self._later[0][0] <= now():
            self._change(plan_message(self._load, heapq.heappop(self._later)[1]))
        else:
            time.sleep(pause)

    def _enqueue(self, messages: list[PlannedMessage], op: str = "enqueue") -> None:
        for queue in sorted({message.queue for message in messages}):
            of_queue = [message for message in messages if message.queue == queue]
            new = [
                NewMessage(
                    message.payload,
                    message.id,
                    delay=timedelta(milliseconds=message.delay_ms),
                    metadata={} if message.value is None else {VALUE_KEY: message.value},
                    max_attempts=message.max_attempts,
                )
                for message in of_queue
            ]
            with self._call_log.call(op, queue, [message.id for message in of_queue]) as answer:
                results = self._tickwheel.queue(queue).enqueue_many(new)
                answer.value = [result.created for result in results]
            if answer.outcome != OK:
                self._unanswered += of_queue if op == "enqueue" else []
                continue
            for message in of_queue:
                if message.afterwards is not Afterwards.NOTHING:
                    heapq.heappush(self._later, (now() + message.delay_ms / 2_000, message.id))

    def _change(self, message: PlannedMessage) -> None:
        queue = self._tickwheel.queue(message.queue)
        with self._call_log.call(message.afterwards.value, message.queue, [message.id]) as answer:
            if message.afterwards is Afterwards.CANCEL:
                change = queue.cancel(message.id, message.value)
            else:
                change = queue.reschedule(message.id, message.value, delay=timedelta(milliseconds=message.new_delay_ms))
            answer.value = [change.state, change.version, change.changed]
        refused = (InvalidTransition, MessageNotFound, IdConflict)
        if answer.error is not None and not isinstance(answer.error, refused):
            heapq.heappush(self._later, (now() + _PAUSE_S, message.id))


if __name__ == "__main__":
    Producer(Settings.from_json(sys.argv[1]), sys.argv[2]).run()
