"""The pipe from the program that started this process: its end, and the request to hand shards over."""

import os
import select
from threading import Event, Thread
from typing import Final

from tickwheel.event_process.supervisor import EventProcess

# How often the process checks whether another process can take its shards over, once it was asked, in seconds. Of
# several processes that are asked at the same time, the one with the highest id leaves only if the others are still
# there after this pause.
_CHECK_S: Final = 0.3
# How long the start of this process may last after its program has ended, in seconds.
_START_S: Final = 5.0


class ParentInput:
    """Reads standard input in a thread of its own.

    When the input ends, the program has ended, or stops this process: the event process stops. A byte is a request to
    hand over: the event process stops as soon as another process takes part in its election.
    """

    def __init__(self) -> None:
        self.has_ended = Event()
        self._has_started = Event()
        self._process: EventProcess | None = None

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the host has no resources for another thread."""
        Thread(target=self._read, name="tickwheel-parent", daemon=True).start()

    def attach(self, process: EventProcess) -> None:
        """Name the event process to stop. If the input ends and no event process is named, the program ends soon."""
        self._process = process
        self._has_started.set()

    def _read(self) -> None:
        must_hand_over = had_others = False
        # `sys.stdin` is not used: this thread would hold its lock, and the interpreter would abort at exit.
        while True:
            readable, _, _ = select.select([0], [], [], _CHECK_S if must_hand_over else None)
            if readable:
                if not os.read(0, 1024):
                    break
                must_hand_over = True
            process = self._process
            if process is None:
                # It still starts.
                continue
            has_others = process.has_others()
            if has_others and (had_others or process.has_higher_members()):
                process.stop()
                must_hand_over = False
            had_others = has_others
        self.has_ended.set()
        # The start can wait for a server. If its program has been killed, nobody else would end this process.
        if not self._has_started.wait(_START_S):
            os._exit(0)
        assert self._process is not None
        self._process.stop()
