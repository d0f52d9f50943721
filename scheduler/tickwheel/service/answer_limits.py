"""The limits of answers: how many a process builds at a time, and how many its clients have not read."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final

from tickwheel import limits
from tickwheel.errors import LimitExceeded
from tickwheel.plan import ContinueWalk
from tickwheel.service.authorization import CALL
from tickwheel.service.call_limits import PLACE, name_current_caller, on_end_of_call
from tickwheel.service.fair_limit import CallerTurns, FairLimit, SizedTurn, SizedTurns

# The event loop is busy if its thread uses more than this share of a pause. The checks of two turns use less.
_BUSY: Final = 0.8
# The turn of the current call.
TURN: ContextVar["Turn | None"] = ContextVar("turn", default=None)


class AnswerLimits:
    """The limits of one process: for answers that it builds at a time, and for those that clients have not read."""

    def __init__(
        self,
        at_once: int | None = None,
        pause_s: float = 0.0,
        hanging_max: int | None = None,
    ) -> None:
        """``at_once``: bytes of the answers that are built at a time, except for those whose caller has a turn; by
        default `limits.ANSWERS_AT_ONCE`. A caller may build at most as many as it leaves free for others. With 0, each
        answer needs a turn.

        The turn of a caller ends ``pause_s`` seconds after its call has ended it, and later if the event loop is busy:
        see `limits.PAUSES_AFTER_CHECK`. Meanwhile, the event loop accepts calls of others. With a pause, a call that
        was woken begins a turn only before it reads.

        ``hanging_max``: see `SizedTurns`; by default `limits.CALLER_HANGING_BYTES`.
        """
        self.pause_s = pause_s
        # An answer is counted when it is complete, so a caller can have more bytes than its share.
        self.bytes = FairLimit(
            limits.ANSWERS_BYTES,
            "bytes of answers that its clients have not read",
            min_share=limits.ANSWER_BYTES,
            ignores_excess=True,
        )
        # The bytes of the answers that are built at present without a turn of their caller.
        self.building = FairLimit(limits.ANSWERS_AT_ONCE if at_once is None else at_once, "bytes of answers at once")
        if hanging_max is None:
            hanging_max = limits.CALLER_HANGING_BYTES
        self._turns = SizedTurns(limits.CALLER_ANSWERS, hanging_max, limits.ANSWER_LINES)
        self.walks = CallerTurns(limits.CALLER_WALKS)
        # Whether the service stops: walks then do not wait for the rate of their caller.
        self.is_draining = False
        self._lines = CallerTurns(1)

    def check(self) -> None:
        """Raise LimitExceeded if the caller of the current call has left too many answers unread."""
        if self._is_low:
            return
        self.bytes.check(name_current_caller())

    async def wait(self) -> None:
        """Wait while the caller of the current call has left too many answers unread. The calls of a caller end their
        waits in the order in which these began, even if other calls of the caller leave answers unread all the time.
        """
        if self._is_low:
            return
        caller = name_current_caller()
        async with self._lines.of(caller):
            await self.bytes.wait(caller)

    @property
    def _is_low(self) -> bool:
        """Whether there are so few bytes that no caller has too many. To name the caller would cost time."""
        return self.bytes.total <= self.bytes.limit // 8

    def turn(self, size: int) -> SizedTurn:
        """Return a turn of the caller of the current call to build an answer of up to ``size`` bytes."""
        return self._turns.turn(name_current_caller(), weight=size)

    def count(self, answer: bytes) -> None:
        """Count the answer of the current call until the task of the call ends."""
        if len(answer) > limits.UNCOUNTED_ANSWER_BYTES:
            caller = name_current_caller()
            self.bytes.count(caller, len(answer))
            on_end_of_call(partial(self.bytes.put_back, caller, len(answer)))

    @contextmanager
    def count_written(self, size: int) -> Iterator[None]:
        """Count an answer of a stream, of ``size`` bytes, in the ``with`` block, which writes the answer."""
        caller = name_current_caller()
        self.bytes.count(caller, size)
        try:
            yield
        finally:
            self.bytes.put_back(caller, size)


class Turn:
    """The right to build an answer of up to ``size`` bytes: to read its content from Redis, and to convert the content.
    Use it in an ``async with`` statement, which raises LimitExceeded if the caller has left too many answers unread.
    """

    __slots__ = ("_answers", "_counted", "_is_continued", "_is_put_off", "_size", "_turn", "walk")

    def __init__(self, answers: AnswerLimits, size: int) -> None:
        self._answers = answers
        self._size = size
        # The caller for whom the answer counts, or None.
        self._counted: str | None = None
        self._turn: SizedTurn | None = None
        # Held while the call continues a walk.
        self.walk: asyncio.Semaphore | None = None
        self._is_continued = False
        self._is_put_off = False

    async def __aenter__(self) -> None:
        await self.begin()
        TURN.set(self)

    async def __aexit__(self, *_: object) -> None:
        self.end()
        TURN.set(None)

    async def begin(self) -> None:
        """Wait until the process may build the answer. Raises LimitExceeded if the caller has left too many unread."""
        answers = self._answers
        caller = PLACE.get()[0]
        if answers.building.allows(caller, self._size):
            answers.building.count(caller, self._size)
            self._counted = caller
        else:
            turn = answers.turn(self._size)
            await turn.begin()
            self._turn = turn
        try:
            answers.check()
        except LimitExceeded:
            self.end()
            raise

    async def begin_after_wait(self) -> None:
        """Begin the turn that the call has ended before it waited for messages, or put this off until its next read:
        most calls that are woken do not read.
        """
        self._is_put_off = bool(self._answers.pause_s)
        if not self._is_put_off:
            await self.begin()

    def pause(self) -> None:
        """Let others build answers, and put the next begin off until the next read.

        A turn with a pause after it goes on: with two such turns, a call would take twice as long.
        """
        if not self._answers.pause_s:
            self.end()
            self._is_put_off = True

    async def begin_before_read(self) -> None:
        """Begin the turn if `begin_after_wait` or `pause` has put this off."""
        if self._is_put_off:
            self._is_put_off = False
            await self.begin()

    def end(self) -> None:
        """End the turn, if the call has it, and the walk of the call."""
        if self._counted is not None:
            self._answers.building.put_back(self._counted, self._size)
            self._counted = None
        if self._turn is not None:
            if self._answers.pause_s:
                _call_after_pauses(self._answers.pause_s, self._turn.end)
            else:
                self._turn.end()
            self._turn = None
        self._end_walk()

    async def continue_walk(self, step: ContinueWalk) -> None:
        """Charge the caller for the next round of the plan, which continues a walk. Before the second round of a
        walk, wait for other walks of the caller, and wait for a short time until the rate allows a message.

        Raises LimitExceeded as `begin` does, and the errors of `until_token_expires`.
        """
        caller, _ = CALL.get()
        async with caller.until_token_expires():
            if self.walk is not None:
                caller.quota.charge(step.shards)
            else:
                # Calls that wait must not delay those that read messages.
                self.end()
                walk = self._answers.walks.of(name_current_caller())
                await walk.acquire()
                self.walk = walk
                is_urgent = step.has_messages or self._answers.is_draining
                await caller.quota.wait_and_take(step.shards, 0.0 if is_urgent else limits.WALK_WAIT_S)
                await self.begin()
        self._is_continued = True

    def begin_step(self) -> None:
        """Note that the next step of the plan begins. The walk ends unless the step continues it."""
        if not self._is_continued:
            self._end_walk()
        self._is_continued = False

    def _end_walk(self) -> None:
        if self.walk is not None:
            self.walk.release()
            self.walk = None


def _call_after_pauses(pause_s: float, do: Callable[[], None]) -> None:
    """Call a function after a pause. While the event loop is busy, further pauses follow, up to
    `limits.PAUSES_AFTER_CHECK` in all, or fewer if they end late.
    """
    _pause(pause_s, time.monotonic() + (limits.PAUSES_AFTER_CHECK - 0.5) * pause_s, do)


def _pause(pause_s: float, latest: float, do: Callable[[], None]) -> None:
    """Call a function after a pause. If the event loop is busy, make another pause before it, which begins before the
    time ``latest``.
    """
    # The clock of the service's event loop has whole milliseconds.
    begin, used = time.monotonic(), time.thread_time()

    def end() -> None:
        now = time.monotonic()
        if now < latest and time.thread_time() - used > _BUSY * (now - begin):
            _pause(pause_s, latest, do)
        else:
            do()

    asyncio.get_running_loop().call_later(pause_s, end)
