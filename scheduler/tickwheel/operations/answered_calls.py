"""Compares a call with a request id with the earlier calls of its slot, before a shard executes the call.

A shard itself returns its first answer to a repeated call, and rejects another call with the same number. It does not
know what the other shards have answered. So the service registers each call on the *registration shard* of its slot,
unless the call concerns only this shard. If no shard stores an answer to a call, the registration shard stores one.
"""

from collections.abc import Callable, Collection
from struct import Struct
from typing import Final

from tickwheel.errors import SessionExpired
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.sessions import NamedCall, RequestSessions, Sessions
from tickwheel.plan import Plan, Reply, Request, Round
from tickwheel.storage.keys import session_key
from tickwheel.storage.script_errors import SESSIONOLD

ENDED: Final = b"ended"
_SEQUENCE: Final = Struct(">Q")


def register_call(
    context: NamespaceContext, queue: str, sessions: RequestSessions, shards: Collection[int] = ()
) -> Plan[bytes | None]:
    """Register a call on its registration shard, unless it is registered already. Return the answer that the shard has
    stored to the call, or None.

    ``shards`` are all shards that the call concerns. If the registration shard is the only one, its script compares and
    stores the digest, so the call need not be registered. Raises as `answered_shards` does, before a shard executes the
    call.
    """
    named = sessions.call
    registrar = named.registration_shard(context.shards)
    if sessions.is_registered or set(shards) == {registrar}:
        return None
    # A program that dequeues from Redis directly registers no call. A single shard compares the digest itself.
    compared = set(shards) - {registrar} if len(shards) > 1 else set()
    registered, *digests = yield Round(
        [_registration(context, registrar, named), *_digest_requests(context, compared, named)]
    )
    _raise_if_refused(registered, queue, named)
    for reply in digests:
        named.refuse_other_call(queue, reply.value)
    sessions.is_registered = True
    answer: bytes | None = registered.value
    if not isinstance(answer, bytes | None):
        raise TypeError(answer)
    return answer


def run_once(
    context: NamespaceContext, queue: str, sessions: Sessions | None, step: Callable[[], Plan[bytes | None]]
) -> Plan[bytes | None]:
    """Execute a step to which no shard stores an answer, unless ``sessions`` are those of a repeated call. Return the
    answer of the step, which the registration shard stores.

    A step that returns None is not answered: the caller may execute it again.
    """
    if not isinstance(sessions, RequestSessions):
        return (yield from step())
    sessions.is_registered = False
    answer = yield from register_call(context, queue, sessions)
    if answer is None:
        answer = yield from step()
        if answer is not None:
            answer = yield from _store_answer(context, queue, sessions.call, answer)
    return answer


def _store_answer(context: NamespaceContext, queue: str, named: NamedCall, answer: bytes) -> Plan[bytes]:
    """Make the registration shard store the answer to a call. Return the stored answer: the first one counts.

    Without a stored answer, the repeated call would be executed again.
    """
    request = _registration(context, named.registration_shard(context.shards), named, answer)
    [recorded] = yield Round([request])
    _raise_if_refused(recorded, queue, named)
    return answer if recorded.value is None else bytes(recorded.value)


def answered_shards(context: NamespaceContext, queue: str, named: NamedCall, *, registers: bool) -> Plan[list[int]]:
    """Return the shards that have answered this call. Also register the call, if ``registers``.

    The scripts of the returned shards compare the digest themselves. So the digests of the shards are read only for
    calls that are not registered.

    Raises SessionExpired if any shard knows a call with the same slot and a greater number, and InvalidArgument if any
    shard knows another call with the same number.
    """
    shards = range(context.shards)
    keys = [session_key(context.namespace, shard, named.session_name) for shard in shards]
    requests = [Request(shard, command=("GET", key)) for shard, key in enumerate(keys)]
    if registers:
        requests.append(_registration(context, named.registration_shard(context.shards), named))
    else:
        requests += _digest_requests(context, shards, named)
    replies = yield Round(requests)
    if registers:
        _raise_if_refused(replies.pop(), queue, named)
    stored = zip(shards, replies[: len(shards)], strict=True)
    last = {shard: _SEQUENCE.unpack_from(reply.value)[0] for shard, reply in stored if reply.value is not None}
    if any(sequence > named.sequence for sequence in last.values()):
        raise _newer_call_error(named)
    for reply in replies[len(shards) :]:
        named.refuse_other_call(queue, reply.value)
    return [shard for shard, sequence in last.items() if sequence == named.sequence]


def _registration(context: NamespaceContext, registrar: int, named: NamedCall, answer: bytes = b"") -> Request:
    key, session, _ = named.session().begin_call(context.namespace, registrar)
    call = context.call(
        "register_call", registrar, "", [answer, session], key, named.digest_key(context.namespace, registrar)
    )
    return Request(registrar, call, durable=True)


def _raise_if_refused(registered: Reply, queue: str, named: NamedCall) -> None:
    if registered.error is None:
        return
    if registered.error.code == SESSIONOLD:
        raise _newer_call_error(named)
    raise registered.error.to_tickwheel_error(f"queue {queue!r}")


def _newer_call_error(named: NamedCall) -> SessionExpired:
    return SessionExpired(f"request {named.slot}:{named.sequence} is rejected: a newer call of this slot was answered")


def _digest_requests(context: NamespaceContext, shards: Collection[int], named: NamedCall) -> list[Request]:
    return [Request(shard, command=("GET", named.digest_key(context.namespace, shard))) for shard in shards]
