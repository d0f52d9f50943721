"""Client sessions: a retried call gets its first answer and is not executed twice.

Each call of a session carries the next sequence number. The shard keeps the last sequence number and its answer for
SESSION_MS. A session serves one call at a time. (Ongaro, Consensus: bridging theory and practice, 2014, section 6.3.)
The wire format and request ids call the name of a session a slot.
"""

import hashlib
import os
import time
from collections import deque
from math import inf
from struct import Struct
from typing import NamedTuple, Self

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import preview
from tickwheel.storage.keys import call_digest_key, session_key
from tickwheel.storage.script_errors import OTHER_CALL_ADVICE
from tickwheel.storage.sharding import shard_of

_SESSION = Struct(">QIB")
# Options of a call (`lua/_session.lua`).
_KEEPS_EMPTY, _OPENS, _REPEATED, _REPLAYS = 1, 2, 4, 8
# A shard forgets a session SESSION_MS after its last stored answer. The client changes the session's name after half of
# this time.
_RENEW_S = limits.SESSION_MS / 2000
_DIGEST_BYTES, _SLOT_HASH_BYTES = 16, 24
# The maximum number of queues with unanswered calls that a session keeps separately.
_UNANSWERED_MAX = 1_000
# The number of free sessions that a pool keeps. A new session needs new keys in Redis, so this is as high as the calls
# that a process of the service has at a time.
_FREE_MAX = 10_000


class ClientSession:
    """One session: a name that no other client uses, and the sequence number of its last call.

    A session of a `SessionPool` returns to the pool at the end of a ``with`` statement.
    """

    __slots__ = (
        "_is_first",
        "_keeps_empty",
        "_names",
        "_opened",
        "_pool",
        "_replays",
        "_unanswered",
        "call",
        "name",
        "sequence",
    )

    def __init__(
        self,
        name: str | None = None,
        sequence: int = 0,
        pool: "deque[ClientSession] | None" = None,
        call: "NamedCall | None" = None,
    ) -> None:
        """``call`` is the call of the session if it has a request id."""
        self.name = name or os.urandom(12).hex()
        self.sequence = sequence
        self.call = call
        # By shard: the name that replaced the first name.
        self._names: dict[int, str] = {}
        self._opened: dict[int, float] = {}
        # By shard, or by queue for calls to the service: the first sequence number that was sent and not answered.
        self._unanswered: dict[int | str, int] = {}
        self._keeps_empty: bool | None = None
        self._is_first = False
        self._replays = False
        self._pool = pool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # After thousands of calls at a time, the pool keeps no session for each of them, except those that must reject
        # late copies of calls without an answer.
        if self._pool is not None and (len(self._pool) < _FREE_MAX or self._unanswered):
            self._pool.append(self)

    def begin_call(self, namespace: str, shard: int, reopens: bool = False) -> tuple[str, bytes, bytes]:
        """Begin a call. Return its session key, the session argument of the first try, and the argument of retries.

        ``reopens``: if the shard has forgotten the session, the call may be executed even if it is a retry.
        """
        if time.monotonic() > self._opened.get(shard, inf) + _RENEW_S:
            self.forget(shard)
        self.sequence += 1
        key = session_key(namespace, shard, self._names.get(shard, self.name))
        # While a call is unanswered, the shard must record later calls, so that a late copy of the call is rejected.
        waiting = self._unanswered.setdefault(shard, self.sequence) < self.sequence
        if self._keeps_empty is None:
            first, retry = int(waiting), _KEEPS_EMPTY
        else:
            retry = _REPEATED | self._keeps_empty | (_REPLAYS if self._replays else 0)
            first = 0 if self._is_first and not self._replays else retry
        opens = _OPENS if reopens or shard not in self._opened else 0
        arguments = (
            _SESSION.pack(self.sequence, limits.SESSION_MS, opens | first),
            _SESSION.pack(self.sequence, limits.SESSION_MS, opens | retry),
        )
        if self.call is not None:
            return key, arguments[0] + self.call.digest, arguments[1] + self.call.digest
        return key, *arguments

    def begin_rpc(self, queue: str) -> bool:
        """Begin a call to the service. Return whether the service answered all earlier calls for the queue."""
        self.sequence += 1
        if queue not in self._unanswered and len(self._unanswered) >= _UNANSWERED_MAX:
            # No queue has the empty name, so its calls count as unanswered from now on. This is safe for any queue.
            queue = ""
        return self._unanswered.setdefault(queue, self.sequence) == self.sequence

    def has_unanswered_call(self, shard: int) -> bool:
        """Return whether an earlier call to the shard had no answer. If so, the shard must record the next call."""
        return shard in self._unanswered

    def rpc_answered(self, queue: str) -> None:
        """Note that the service answered the call."""
        self._unanswered.pop(queue, None)

    def call_answered(self, shard: int, stored: bool) -> None:
        """Note that the shard answered the call. ``stored``: the shard stored the answer, which renews the session."""
        self._unanswered.pop(shard, None)
        # A session for a request id never changes its name, so each of its calls may open the session.
        if stored and self._keeps_empty is None:
            self._opened[shard] = time.monotonic()

    def pin_sequence(self, sequence: int, final: bool, *, is_first: bool = False, replays: bool = False) -> None:
        """Make the next call, which may be a retry, use ``sequence + 1``.

        With ``final``, the shard also stores an empty answer. If ``is_first`` (the caller has never sent this request),
        it stores an empty answer only if this client sends the call to the shard again. Without ``final``, the shard
        never stores an empty answer, because a dequeue that waits calls again with the same sequence number, and would
        then get this answer.

        With ``replays``, the shard executes nothing: it returns its stored answer, or an empty one.
        """
        self.sequence = sequence
        self._keeps_empty, self._is_first, self._replays = final, is_first, replays

    def forget(self, shard: int) -> None:
        """Note that the shard has forgotten the session. The next call opens a session with a new name."""
        self._names[shard] = os.urandom(12).hex()
        self._opened.pop(shard, None)


class SessionPool:
    """The sessions of one client. A call borrows a free session and returns it."""

    def __init__(self) -> None:
        self._free: deque[ClientSession] = deque()

    def borrow(self) -> ClientSession:
        """Lend a free session, or a new one, for one call: the body of a ``with`` statement."""
        try:
            return self._free.pop()
        except IndexError:
            return ClientSession(pool=self._free)


class NamedCall(NamedTuple):
    """A call with a request id: what the shards need to recognize a retry, and to reject another call of the number."""

    slot: str
    """The slot of the request id, for error texts."""
    session_name: str
    """The name of the session of the first part. The shards store the digest of the slot's last call under it."""
    sequence: int
    digest: bytes

    def session(self, part: int = 0) -> ClientSession:
        """Return the session of a part of the call. The next script call has the sequence number of the request id."""
        name = f"{self.session_name}/{part}" if part else self.session_name
        return ClientSession(name, self.sequence - 1, call=self)

    def digest_key(self, namespace: str, shard: int) -> str:
        """Return the key of the digest of the slot's last call on a shard."""
        return call_digest_key(namespace, shard, self.session_name)

    def registration_shard(self, shards: int) -> int:
        """Return the shard that compares all calls of the slot (`answered_calls`): a hash of the session's name."""
        return shard_of("", self.session_name.encode(), shards)

    def refuse_other_call(self, queue: str, stored: bytes | None) -> None:
        """Raise InvalidArgument if ``stored``, the value of the digest's key, is of another call of this number."""
        number = self.sequence.to_bytes(8)
        if stored is not None and stored.startswith(number) and stored != number + self.digest:
            raise InvalidArgument(f"queue {queue!r}: {OTHER_CALL_ADVICE}")


class RequestId(NamedTuple):
    """`slot:sequence`: identifies a call that its caller may retry.

    Slots of different queues are independent, and so are slots of different ``owner``s: the names of access tokens. A
    caller without a token has no owner.
    """

    text: str
    slot: str
    sequence: int
    owner: str = ""

    @classmethod
    def parse(cls, text: object, owner: str = "") -> Self:
        """Return the parsed request id. Raises InvalidArgument."""
        if isinstance(text, str) and len(text) <= limits.NAME_CHARS + 16:
            slot, _, number = text.rpartition(":")
            plain = slot.isascii() and slot.replace("-", "").replace("_", "").isalnum()
            if (
                plain
                and len(slot) <= limits.NAME_CHARS
                and number.isascii()
                and number.isdigit()
                and 0 < len(number) < 16
            ):
                return cls(text, slot, int(number), owner)
        raise InvalidArgument(
            f"request_id must be 'slot:sequence', not {preview(text)}: slot is a name of up to {limits.NAME_CHARS}"
            " letters, digits, '-' and '_', and sequence is a whole number that grows with each call of the slot"
        )

    def call(self, queue: str, kind: str, content: bytes) -> NamedCall:
        """Return the call of this request id. ``kind`` and ``content`` are equal for all retries of the call."""
        digest = begin_digest(kind)
        digest.update(content)
        return self.call_of(queue, digest)

    def call_of(self, queue: str, digest: "hashlib.blake2b") -> NamedCall:
        """Return the call of this request id, whose ``digest`` (`begin_digest`) contains the whole content."""
        name = self.slot
        if self.owner:
            # No other token can name this session. The slot contains no NUL, so the text is unambiguous.
            text = f"{self.slot}\0{self.owner}".encode()
            name = hashlib.blake2b(text, digest_size=_SLOT_HASH_BYTES).hexdigest()
        return NamedCall(self.slot, f"{queue}/{name}", self.sequence, digest.digest())


def begin_digest(kind: str) -> "hashlib.blake2b":
    """Return the digest of a call of this ``kind``. Update it with the content of the call, also in parts."""
    return hashlib.blake2b(kind.encode() + b"\0", digest_size=_DIGEST_BYTES)


class RequestSessions:
    """The sessions of a call with a request id: one for each part of the call, with the same names in every retry."""

    def __init__(self, call: NamedCall) -> None:
        self.call = call
        self.is_registered = False
        """Whether the call was compared with the earlier calls of its slot (`answered_calls.register_call`)."""
        self._count = 0

    def borrow(self) -> ClientSession:
        """Lend the session of the next part, for one use."""
        session = self.call.session(self._count)
        self._count += 1
        session.pin_sequence(session.sequence, final=True)
        return session


Sessions = SessionPool | RequestSessions
