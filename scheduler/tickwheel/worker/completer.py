"""Tells the server how tasks ended, in a thread of its own: what ends while a call is under way goes with the next."""

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from tickwheel.client import Message, Tickwheel
from tickwheel.errors import LeaseLost, TickwheelError
from tickwheel.runtime.log_fields import fields
from tickwheel.tasks.runner import Outcome
from tickwheel.worker.shared_state import Page

_log = logging.getLogger("tickwheel.worker")
_MOST = 250
# So long is a batch waited for whose first task has ended: tasks that take next to no time go together then.
_GATHER_S = 0.0005


@dataclass(slots=True)
class Batch:
    """A page's messages that the server has not been told of."""

    page: Page
    unsettled: int


@dataclass(slots=True)
class Ended:
    """A message, and how its task ended; None where it was not begun and is given back."""

    batch: Batch
    slot: int
    message: Message
    outcome: Outcome | None


class Finisher:
    """`put` what has ended, `wait` for a batch. A lease that was lost is logged: somebody else has the message now."""

    def __init__(self, tickwheel: Tickwheel) -> None:
        self._tickwheel = tickwheel
        self._ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()
        self._settled = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="tickwheel-finisher", daemon=True)
        self._thread.start()

    def put(self, ended: Ended) -> None:
        self._ended.put(ended)

    def wait(self, batch: Batch) -> None:
        """Until the server knows of all of the batch."""
        if batch.unsettled:
            with self._settled:
                self._settled.wait_for(lambda: not batch.unsettled)

    def settle(self, batch: Batch, slot: int) -> None:
        """A message of which the server need not be told."""
        batch.page.settle(slot)
        self._settle([batch])

    def close(self) -> None:
        """Once all has been told."""
        self._ended.put(None)
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            found = [self._ended.get()]
            if found[0] is not None and found[0].batch.unsettled > self._ended.qsize() + 1:
                time.sleep(_GATHER_S)
            while len(found) < _MOST and not self._ended.empty():
                found.append(self._ended.get())
            going = None not in found
            by_queue = defaultdict[str, list[Ended]](list)
            for each in found:
                if each is not None:
                    by_queue[each.message.queue].append(each)
            for name, ended in by_queue.items():
                self._tell(name, ended)

    def _tell(self, name: str, ended: list[Ended]) -> None:
        target = self._tickwheel.queue(name)
        done = [(each.message, each.outcome.result) for each in ended if each.outcome and each.outcome.error is None]
        if done:
            messages, results = zip(*done, strict=True)
            self._told("complete", lambda: target.complete_many(messages, results))
        unbegun = [each.message for each in ended if each.outcome is None]
        if unbegun:
            self._told("release", lambda: target.release_many(unbegun))
        for each in ended:
            if each.outcome is not None and each.outcome.error is not None:
                self._fail(each.message, each.outcome)
        for each in ended:
            each.batch.page.settle(each.slot)
        self._settle([each.batch for each in ended])

    def _settle(self, batches: list[Batch]) -> None:
        """One message of each."""
        with self._settled:
            for batch in batches:
                batch.unsettled -= 1
            self._settled.notify_all()

    def _fail(self, message: Message, outcome: Outcome) -> None:
        self._told("fail", lambda: message.fail(outcome.error, outcome.retry_in, final=outcome.final))

    def _told(self, what: str, call: Callable[[], object]) -> None:
        try:
            call()
        except LeaseLost as error:
            for message in error.lost:
                extra = fields("lease lost", message, attempt=message.attempt)
                _log.warning(
                    "%s/%s: too late to %s it: its lease was lost", message.queue, message.id, what, extra=extra
                )
        except TickwheelError as error:
            # The client has gone on trying for as long as it may. The leases end, and the messages come again.
            _log.error("could not %s: %s", what, error, extra=fields("not told", call=what))
        except Exception:
            _log.exception("could not %s", what, extra=fields("not told", call=what))
