"""Client sessions: a call that is sent again is answered again, not done again.

Each call of a slot carries the next sequence; the shard keeps the last sequence and its answer for SESSION_MS. A slot
serves one call at a time. (Ongaro, Consensus: bridging theory and practice, 2014, section 6.3.)
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from struct import Struct
from typing import NamedTuple, Self

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.storage.keys import session_key

_SESSION = Struct(">QIB")
# Options of a call (`lua/_session.lua`).
_KEEPS_EMPTY, _OPENS, _REPEATED = 1, 2, 4
# A session is opened anew, under another name, well before the shard could forget it.
_RENEW_S = limits.SESSION_MS / 2000


class ClientSession:
    """One slot: a name that no other client has, and the sequence of its calls."""

    __slots__ = ("_is_first", "_keeps_empty", "_names", "_opened", "_unanswered", "name", "sequence")

    def __init__(self, name: str | None = None, sequence: int = 0) -> None:
        self.name = name or os.urandom(12).hex()
        self.sequence = sequence
        # By shard, the name that followed the first one there.
        self._names: dict[int, str] = {}
        self._opened: dict[int, float] = {}
        # By shard, or by queue at the service: the first sequence that was sent there and had no answer.
        self._unanswered: dict[int | str, int] = {}
        self._keeps_empty: bool | None = None
        self._is_first = False

    def begin_call(self, namespace: str, shard: int, reopens: bool = False) -> tuple[str, bytes, bytes]:
        """The session key of a new call, and the argument to send first and again.

        ``reopens``: the call may be done where the shard has forgotten the session, even when it is sent again.
        """
        if time.monotonic() > self._opened.get(shard, inf) + _RENEW_S:
            self.forget(shard)
        self.sequence += 1
        key = session_key(namespace, shard, self._names.get(shard, self.name))
        # Until a call is answered, those after it leave a trace, so that a late copy of it is refused.
        waiting = self._unanswered.setdefault(shard, self.sequence) < self.sequence
        if self._keeps_empty is None:
            first, again = int(waiting), _KEEPS_EMPTY
        else:
            again = _REPEATED | self._keeps_empty
            first = 0 if self._is_first else again
        opens = _OPENS if reopens or shard not in self._opened else 0
        return key, self._pack_session(opens | first), self._pack_session(opens | again)

    def begin_rpc(self, queue: str) -> bool:
        """A new call of the service. Whether all before it were answered there."""
        self.sequence += 1
        return self._unanswered.setdefault(queue, self.sequence) == self.sequence

    def has_unanswered_call(self, shard: int) -> bool:
        """Whether a call that was sent there had no answer: the next one has to leave a trace."""
        return shard in self._unanswered

    def rpc_answered(self, queue: str) -> None:
        """The service has answered the call."""
        self._unanswered.pop(queue, None)

    def call_answered(self, shard: int, stored: bool) -> None:
        """The call was answered; ``kept`` says that the shard wrote the answer, and so renewed the session."""
        self._unanswered.pop(shard, None)
        # A caller's own request keeps its name whatever the shard remembers of it, so it opens its session every time.
        if stored and self._keeps_empty is None:
            self._opened[shard] = time.monotonic()

    def pin_sequence(self, sequence: int, final: bool, *, is_first: bool = False) -> None:
        """The next call stands for the sequence after this one, perhaps again; ``final`` keeps an empty answer too. One
        that ``is_first``, which its caller has not sent before, keeps it only where it is sent again to the shard.

        An empty answer that is not final is never kept: the next try of the same sequence would get it again.
        """
        self.sequence = sequence
        self._keeps_empty, self._is_first = final, is_first

    def _pack_session(self, options: int) -> bytes:
        return _SESSION.pack(self.sequence, limits.SESSION_MS, options)

    def forget(self, shard: int) -> None:
        """The shard does not know the session: open it anew with the next call, under a name never used."""
        self._names[shard] = os.urandom(12).hex()
        self._opened.pop(shard, None)


class SessionPool:
    """The slots of one client; a call takes one that is free and gives it back."""

    def __init__(self) -> None:
        self._free: deque[ClientSession] = deque()

    @contextmanager
    def borrow(self) -> Iterator[ClientSession]:
        """A free slot, or a new one, for one call."""
        try:
            session = self._free.pop()
        except IndexError:
            session = ClientSession()
        try:
            yield session
        finally:
            self._free.append(session)


class RequestId(NamedTuple):
    """`slot:sequence`, by which a caller names a call that it may send again. Each queue has slots of its own."""

    text: str
    slot: str
    sequence: int

    @classmethod
    def parse(cls, text: object) -> Self:
        """Raises InvalidArgument if the text is no request id."""
        if isinstance(text, str):
            slot, _, number = text.rpartition(":")
            plain = slot.isascii() and slot.replace("-", "").replace("_", "").isalnum()
            if (
                plain
                and len(slot) <= limits.NAME_CHARS
                and number.isascii()
                and number.isdigit()
                and 0 < len(number) < 16
            ):
                return cls(text, slot, int(number))
        raise InvalidArgument(
            f"request_id must be 'slot:sequence', up to {limits.NAME_CHARS} letters, digits, '-' and '_', then a whole"
            f" number that grows with each call of the slot; not {text!r:.80}"
        )

    def session(self, queue: str) -> ClientSession:
        """The slot on a queue, just before the sequence."""
        return ClientSession(f"{queue}/{self.slot}", self.sequence - 1)


class RequestSessions:
    """The slots of one call that its caller names by a request id: one for each of its parts, the same each time."""

    def __init__(self, request_id: str, queue: str) -> None:
        """Raises InvalidArgument for what is no request id."""
        self._session = RequestId.parse(request_id).session(queue)
        self._count = 0

    @contextmanager
    def borrow(self) -> Iterator[ClientSession]:
        """The slot of the next part. It is not used again."""
        part = f"/{self._count}" if self._count else ""
        self._count += 1
        session = ClientSession(self._session.name + part)
        session.pin_sequence(self._session.sequence, final=True)
        yield session


Sessions = SessionPool | RequestSessions
