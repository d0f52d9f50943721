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
from tickwheel.rpc.message_copies import MessageCopies
from tickwheel.service.authorization import CALL
from tickwheel.service.fair_limit import CallerTurns, FairLimit, SizedTurns
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
        on_end_of_call(partial(self.calls.put_back, caller))


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


def on_end_of_call(put_back: Callable[[], None]) -> None:
    """Call the function when the task of the current call ends."""
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
