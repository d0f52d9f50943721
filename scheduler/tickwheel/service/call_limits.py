"""The limits of the calls of one process, by their callers."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from ipaddress import IPv6Address, ip_address
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from tickwheel import limits
from tickwheel.errors import LimitExceeded
from tickwheel.plan import ContinueWalk
from tickwheel.rpc.message_copies import MessageCopies
from tickwheel.service.authorization import CALL
from tickwheel.service.fair_limit import CallerTurns, FairLimit, SizedTurn, SizedTurns
from tickwheel.service.token_quota import RETRY_AFTER_MS, ConcurrencyLimit

# Addresses with the same first 64 bits belong to one network, which can use all of them.
_IPV6_NETWORK_BITS: Final = 64
# The reads that `Arrivals` ends at a time, and its pause if there are more. To end a call takes the event loop about
# 0.2 ms, so the calls of others wait for about 2 ms.
_ENDED_AT_ONCE: Final = 10
_PAUSE_S: Final = 0.005
_NO_WAIT: Final = nullcontext()
# The name under which the current call holds its place, and the context of the call, which ends with the call.
PLACE: ContextVar[tuple[str, Any]] = ContextVar("place", default=("", None))
# The turn of the current call.
TURN: ContextVar["Turn | None"] = ContextVar("turn", default=None)


class CallLimits:
    """The limits of the calls of one or several RPCs. All RPCs share ``requests``."""

    def __init__(self, calls: FairLimit, requests: "RequestLimits", nameless: int = 0) -> None:
        """``nameless``: while fewer calls than this are in flight, the address of a caller without a token is not read,
        because this costs 5 % of a small call.
        """
        self.calls = calls
        self.requests = requests
        self._nameless = nameless

    def take_place(self, context: Any) -> None:
        """Take a place for the current call until the task of the call ends, which is after the client has read the
        answer.

        Raises LimitExceeded if the caller has too many calls.
        """
        is_nameless = self.calls.total < self._nameless and not CALL.get()[0].digest
        caller = "anybody" if is_nameless else name_caller(context)
        self.calls.take(caller)
        PLACE.set((caller, context))
        _on_end_of_call(partial(self.calls.put_back, caller))


class RequestLimits:
    """The limits of the requests of one process: when they arrive, and what those above 64 KiB, large ones, cost."""

    def __init__(self) -> None:
        self.copies = MessageCopies(name_caller)
        self.arrivals = Arrivals(self.copies)
        self.bytes = FairLimit(
            limits.REQUESTS_BYTES, "bytes of large requests in flight", min_share=limits.REQUEST_BYTES
        )
        # One large request is parsed at a time, and other calls are served before the next one.
        self.parsing = asyncio.Lock()
        self.parsing_turns = CallerTurns(1)
        self._turns = CallerTurns(limits.LARGE_REQUESTS)
        self.item_turns = SizedTurns(limits.CALLER_ITEMS)

    def turns(self, caller: str) -> asyncio.Semaphore:
        """Return the semaphore of the large requests of a caller that are processed at a time."""
        return self._turns.of(caller)


class Arrivals:
    """Reads requests, and ends the reads of requests that do not arrive in time. One timer for all reads costs a call
    almost nothing, and ends only a few calls at a time, so that the event loop serves other calls in between.

    A request can take its full size in memory as soon as the read begins and the client has announced the size. So only
    a few requests are read at a time. Until its turn, a request takes no more than the window of its HTTP/2 stream.
    """

    def __init__(self, copies: MessageCopies) -> None:
        self._copies = copies
        # The tasks that read, each with the time at which it began; the longest read is first.
        self._reads: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._is_watched = False
        self._reading = 0
        self._turns = CallerTurns(limits.CALLER_READS)

    async def read(self, context: Any) -> Any:
        """Return the request of the call. Raises TimeoutError if the request does not arrive in time."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._reads[task] = loop.time()
        if not self._is_watched:
            self._is_watched = True
            self._watch(loop)
        turn: AbstractAsyncContextManager[object] = _NO_WAIT
        if self._reading >= limits.READS:
            turn = self._turns.of(name_caller(context))
        try:
            async with turn:
                self._reading += 1
                try:
                    return await self._copies.read(context)
                finally:
                    self._reading -= 1
        except asyncio.CancelledError as error:
            # The client may have cancelled the call, too.
            if task in self._late and not task.uncancel():
                raise TimeoutError from error
            raise
        finally:
            self._late.discard(task)
            self._reads.pop(task, None)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        begun_before = loop.time() - limits.REQUEST_ARRIVAL_S
        late = [task for task, begun_at in islice(self._reads.items(), _ENDED_AT_ONCE) if begun_at < begun_before]
        for task in late:
            del self._reads[task]
            self._late.add(task)
            task.cancel()
        self._is_watched = bool(self._reads)
        if self._is_watched:
            pause = _PAUSE_S if len(late) == _ENDED_AT_ONCE else limits.REQUEST_ARRIVAL_S / 10
            loop.call_later(pause, self._watch, loop)


class AnswerLimits:
    """The limits of one process: for answers that it builds at a time, and for those that clients have not read."""

    def __init__(self) -> None:
        # An answer is counted when it is complete, so a caller can have more bytes than its share.
        self.bytes = FairLimit(
            limits.ANSWERS_BYTES,
            "bytes of answers that its clients have not read",
            min_share=limits.ANSWER_BYTES,
            ignores_excess=True,
        )
        # Bytes of the answers that are built at a time, except for those whose caller has a turn.
        self.building = 0
        self._turns = SizedTurns(limits.CALLER_ANSWERS, limits.CALLER_HANGING_BYTES, limits.ANSWER_LINES)
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
            _on_end_of_call(partial(self.bytes.put_back, caller, len(answer)))

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

    __slots__ = ("_answers", "_counted", "_is_continued", "_size", "_turn", "walk")

    def __init__(self, answers: AnswerLimits, size: int) -> None:
        self._answers = answers
        self._size = size
        self._counted = 0
        self._turn: SizedTurn | None = None
        # Held while the call continues a walk.
        self.walk: asyncio.Semaphore | None = None
        self._is_continued = False

    async def __aenter__(self) -> None:
        await self.begin()
        TURN.set(self)

    async def __aexit__(self, *_: object) -> None:
        self.end()
        TURN.set(None)

    async def begin(self) -> None:
        """Wait until the process may build the answer. Raises LimitExceeded if the caller has left too many unread."""
        answers = self._answers
        if answers.building and answers.building + self._size > limits.ANSWERS_AT_ONCE:
            turn = answers.turn(self._size)
            await turn.begin()
            self._turn = turn
        else:
            answers.building += self._size
            self._counted = self._size
        try:
            answers.check()
        except LimitExceeded:
            self.end()
            raise

    def end(self) -> None:
        """End the turn, if the call has it, and the walk of the call."""
        self._answers.building -= self._counted
        self._counted = 0
        if self._turn is not None:
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


class WaitLimit(ConcurrencyLimit):
    """The limit of waiting calls. While a call waits, it counts as a waiting call instead of as another call of its
    caller.

    A token without a limit of its own may have at most as many waiting calls as it leaves free for others, and one in
    any case.
    """

    def __init__(self, limit: int, calls: FairLimit) -> None:
        super().__init__(limit, "this process of the service")
        self._places = limit
        self.calls = calls

    @contextmanager
    def acquire(self) -> Iterator[None]:
        self._check_share()
        with super().acquire(), self.calls.lend(PLACE.get()[0]):
            yield

    def _check_share(self) -> None:
        """Raise LimitExceeded if one more waiting call is more than the token of the current call leaves free."""
        caller, _ = CALL.get()
        own = caller.quota.wait_limit
        # A service without tokens trusts all its callers alike, so one of them may have all places.
        if not caller.digest or own.limit is not None or not own.in_use:
            return
        if own.in_use + 1 > self._places - self.in_use - 1:
            raise LimitExceeded(
                f"token {caller.name!r} has {own.in_use:,} waiting calls, and a token without the limit `waiting` may"
                f" have at most as many as it leaves free for others, of {self._places:,} in this process of the"
                " service: retry later, or set `waiting` of the token in the tokens file",
                RETRY_AFTER_MS,
            )


def name_caller(context: Any) -> str:
    """Return the name of the call's caller: its token or, without a token, its address."""
    caller, _ = CALL.get()
    return f"token {caller.name!r}" if caller.digest else _name_address(context.peer())


def name_current_caller() -> str:
    """Return the name of the current call's caller."""
    return name_caller(PLACE.get()[1])


def _on_end_of_call(put_back: Callable[[], None]) -> None:
    # The library sends the answer in the task that runs the handler. So the task ends after the client has read the
    # answer, or after the connection has closed.
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda _: put_back())


@lru_cache(4_096)
def _name_address(peer: str) -> str:
    return f"the address {peer_address(peer)}"


def peer_address(peer: str) -> str:
    """Return the address of a peer without its port; for IPv6 the network."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    host = unquote(address).rpartition(":")[0].strip("[]").partition("%")[0]
    parsed = ip_address(host)
    if not isinstance(parsed, IPv6Address):
        return host
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    suffix = 128 - _IPV6_NETWORK_BITS
    return f"{IPv6Address(int(parsed) >> suffix << suffix)}/{_IPV6_NETWORK_BITS}"
