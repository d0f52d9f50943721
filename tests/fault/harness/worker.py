"""A worker: completes, fails, extends or overstays messages as the load plans. A poisoned message kills the worker.

Usage: worker.py SETTINGS NAME. On SIGTERM, the worker settles its leased messages and exits.
"""

import os
import random
import signal
import sys
import threading
import time
from datetime import timedelta

from tests.fault.harness.call_log import UNKNOWN, CallLog
from tests.fault.harness.load import EXCLUSIVE, LEASE_MS, PLAIN, Handling, handling, plan_message
from tests.fault.harness.settings import CALL_S, Settings
from tickwheel import LeaseLost, Message, Tickwheel

_LIMIT, _WAIT = 10, timedelta(milliseconds=60)
_REPEATS = 5
POISONED = "poisoned"


class Worker:
    """Runs the actions of one worker in one thread."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._load, self._name = settings.load, name
        self._call_log = CallLog(settings.call_logs, name)
        self._chance = random.Random(f"{settings.load.seed}/{name}")
        self._stopping = threading.Event()
        self._tickwheel = Tickwheel(
            settings.url,
            namespace=settings.namespace,
            durability=settings.durability,
            timeout=timedelta(seconds=CALL_S),
        )
        signal.signal(signal.SIGTERM, lambda *_: self._stopping.set())

    def run(self) -> None:
        """Handle messages until SIGTERM."""
        while not self._stopping.is_set():
            queue = self._chance.choice([PLAIN, EXCLUSIVE])
            messages: list[Message] = []
            with self._call_log.call("dequeue", queue, []) as answer:
                messages = self._tickwheel.queue(queue).dequeue(_LIMIT, worker=self._name, wait=_WAIT)
                answer.value = [
                    [message.id, message.version, message.attempt, message.exclusive_value] for message in messages
                ]
            if answer.outcome == UNKNOWN:
                time.sleep(0.02)
            if messages:
                self._handle(queue, messages)
        self._tickwheel.close()

    def _handle(self, queue: str, messages: list[Message]) -> None:
        by_handling: dict[Handling, list[Message]] = {}
        for message in messages:
            if message.payload != plan_message(self._load, message.id).payload:
                self._call_log.note("damaged", queue, [message.id], message.version)
            by_handling.setdefault(handling(self._load, message.id, message.attempt), []).append(message)
        if Handling.DIE in by_handling:
            os.write(2, POISONED.encode())
            os._exit(1)
        time.sleep(self._chance.uniform(0, 0.005))
        for message in by_handling.get(Handling.FAIL, []):
            with self._call_log.call("fail", queue, [message.id], [message.version]) as answer:
                answer.value = message.fail("no luck", timedelta(milliseconds=self._chance.choice([0, 50, 300])))
        extended = by_handling.get(Handling.EXTEND, [])
        for message in extended:
            with self._call_log.call("extend", queue, [message.id], [message.version]):
                message.extend(timedelta(milliseconds=2 * LEASE_MS))
        self._complete(queue, by_handling.get(Handling.COMPLETE, []) + extended)
        if overstayed := by_handling.get(Handling.OVERSTAY):
            self._stopping.wait(LEASE_MS / 1000 * self._chance.uniform(0.9, 1.3))
            self._complete(queue, overstayed)

    def _complete(self, queue: str, messages: list[Message]) -> None:
        """Complete the messages. If the answer is lost, repeat the call, whose answer must be the same."""
        for _ in range(_REPEATS if messages else 0):
            versions = [message.version for message in messages]
            with self._call_log.call("complete", queue, [message.id for message in messages], versions) as answer:
                answer.value = {"lost": []}
                try:
                    self._tickwheel.queue(queue).complete_many(messages)
                except LeaseLost as error:
                    # All other messages are completed.
                    answer.value = {"lost": [message.id for message in error.lost]}
            if answer.outcome != UNKNOWN:
                return


if __name__ == "__main__":
    Worker(Settings.from_json(sys.argv[1]), sys.argv[2]).run()
