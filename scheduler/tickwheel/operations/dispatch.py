"""Dispatch: sends script calls to the shards of a queue, and raises the errors in their replies.

If a call must not be executed twice, it is part of a session. If a shard has another version of the queue's
configuration, the shard rejects the call. The call is then sent again with the current configuration. If the call's
session has expired on the shard, the call is sent again in a new session, unless the rejected call was itself a retry.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from tickwheel import limits
from tickwheel.errors import QueueBlocked, QueueNotFound, SessionExpired, TickwheelError
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.answered_calls import register_call
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.queue_numbers import LAST_VERSION
from tickwheel.operations.sessions import ClientSession, RequestSessions, Sessions
from tickwheel.plan import Plan, Reply, Request, Round, send_request
from tickwheel.storage.keys import metadata_keys, queues_key, shard_key
from tickwheel.storage.script_errors import BLOCKED, SESSIONEXPIRED, SESSIONOLD, RetryCondition, ScriptError
from tickwheel.storage.scripts import Call, bind, load

# The name and the arguments of a script. Inner functions use the alias, because Python evaluates their annotations at
# each call of the outer function.
ScriptCall = tuple[str, list[bytes | int | str]]

_SESSION_ERRORS = (SESSIONEXPIRED, SESSIONOLD)

_log = logging.getLogger("tickwheel.operations")


def call_shards(
    context: NamespaceContext, queue: str, shards: Sequence[int], build: Callable[[QueueConfig, int], Request]
) -> Plan[list[Reply]]:
    """Send one call to each shard, in one round, and again to shards that had another configuration.

    Raises the first error.
    """
    replies = yield from _call_until_config_current(context, queue, shards, build)
    return [_reply_or_raise(context, queue, reply) for reply in replies]


def _call_until_config_current(
    context: NamespaceContext, queue: str, shards: Sequence[int], build: Callable[[QueueConfig, int], Request]
) -> Plan[list[Reply]]:
    """Return the replies of `call_shards`, including error replies."""
    config = yield from context.config(queue)
    replies: dict[int, Reply] = {}
    waiting = list(dict.fromkeys(shards))
    for _ in range(limits.STALE_CONFIG_RETRIES):
        requests = [build(config, shard) for shard in waiting]
        context.heads.forget_changed(queue, config.exclusive_key is not None, requests)
        answers = yield Round(requests)
        replies.update(zip(waiting, answers, strict=True))
        waiting = [s for s in waiting if _retry(replies[s]) is RetryCondition.WITH_CURRENT_CONFIG]
        if not waiting:
            return [replies[shard] for shard in shards]
        config = yield from _refetch_config(context, queue, config)
        yield from push_config_version(context, queue, config, waiting)
    raise TickwheelError(
        f"the configuration of queue {queue!r} changed {limits.STALE_CONFIG_RETRIES} times during one call; check"
        " which programs update the queue"
    )


def _refetch_config(context: NamespaceContext, queue: str, previous: QueueConfig) -> Plan[QueueConfig]:
    """Return the current configuration from the metadata shard.

    Raises QueueNotFound if the queue does not exist, or was recreated since ``previous`` was read.
    """
    config = yield from context.load_config(queue)
    if config is None:
        raise QueueNotFound(f"queue {queue!r} no longer exists in namespace {context.namespace!r}")
    if config.uid != previous.uid:
        raise context.queue_recreated_error(queue, config)
    return config


def push_config_version(
    context: NamespaceContext, queue: str, config: QueueConfig, shards: Sequence[int], *, allow_partial: bool = False
) -> Plan[bool]:
    """Send the version of a configuration to the shards. Each shard keeps a copy. ``allow_partial``: see `Round`.

    If a shard has a newer version than the metadata shard, raise the version on the metadata shard, send the raised
    version to every shard, and return True: the caller's configuration is outdated. Otherwise return False.
    """
    version = config.packed_version
    is_raised = False
    while True:
        requests = [Request(s, context.call("sync_queue_version", s, queue, [version])) for s in shards]
        replies = yield Round(requests, allow_partial)
        # Every reply has the same uid.
        newest = max((reply.value for reply in replies if reply is not None and reply.error is None), default=version)
        # The shards have LAST_VERSION of a placeholder while its number is prepared for a new queue.
        if newest[:4] in (version[:4], LAST_VERSION.to_bytes(4, "big")):
            return is_raised
        # The call need not be durable: if the raised version is lost, too, it is raised again.
        script = load("raise_queue_version", context.clock)
        call = bind(script, {"queues": queues_key(context.namespace)}, [queue, newest])
        raised = (yield from send_request(Request(0, call))).value
        if not raised:
            # The metadata shard is not behind: another program has updated the queue since ``config`` was read.
            return is_raised
        if not is_raised:
            _log.warning(
                "namespace %s: the metadata shard has lost an update of queue %s, probably in a failover. The queue has"
                " the settings that the metadata shard still stores: check them, and repeat the update",
                *(context.namespace, queue),
            )
        version, shards, allow_partial, is_raised = raised, range(context.shards), True, True


def call_in_session(
    context: NamespaceContext,
    queue: str,
    shard: int,
    client_session: ClientSession,
    build: Callable[[QueueConfig, bytes], ScriptCall],
) -> Plan[Reply]:
    """Send one call with the session's next number. ``build`` returns the script's name and arguments."""
    replies = yield from call_shards_in_session(
        context, queue, [shard], client_session, lambda config, _, session: build(config, session)
    )
    return replies[0]


def call_shards_in_session(
    context: NamespaceContext,
    queue: str,
    shards: Sequence[int],
    client_session: ClientSession,
    build: Callable[[QueueConfig, int, bytes], ScriptCall],
    *,
    reopens: bool = False,
) -> Plan[list[Reply]]:
    """Send one call to each shard, in one round, with the session's next number.

    ``reopens`` is for calls that may be executed twice: if their session has expired, they are executed again.
    Raises SessionExpired if a newer call of the session was answered, or if it is unknown whether the call took effect.
    """
    sequence = client_session.sequence

    def request(config: QueueConfig, shard: int) -> Request:
        # A call that is built again for another configuration keeps its sequence number: an earlier try may have been
        # executed.
        client_session.sequence = sequence
        key, first, retry_session = client_session.begin_call(context.namespace, shard, reopens)
        name, args = build(config, shard, first)
        retry_args = [args[0], retry_session, *args[2:]]
        named = client_session.call
        call_digest = None if named is None else named.digest_key(context.namespace, shard)
        call = context.call(name, shard, queue, args, key, call_digest)
        return Request(shard, call, retry_args=retry_args, durable=True)

    replies: dict[int, Reply] = {}
    waiting = shards
    while waiting:
        answers = yield from _call_until_config_current(context, queue, waiting, request)
        replies.update(zip(waiting, answers, strict=True))
        waiting = [shard for shard in waiting if _code(replies[shard]) in _SESSION_ERRORS]
        for shard in waiting:
            if _code(replies[shard]) == SESSIONOLD:
                slot = client_session.name if client_session.call is None else client_session.call.slot
                raise SessionExpired(
                    f"call {client_session.sequence} of slot {slot} is rejected: a newer call of this slot was answered"
                )
            if replies[shard].resent:
                raise SessionExpired(
                    "the call was retried after its session had expired: it is unknown whether the first call took"
                    " effect; check the state of the message before you continue"
                )
            client_session.forget(shard)
    return [_reply_or_raise(context, queue, replies[shard]) for shard in shards]


def call_shards_once(
    context: NamespaceContext,
    queue: str,
    shards: Sequence[int],
    build: Callable[[QueueConfig, int, bytes], ScriptCall],
    sessions: Sessions | None = None,
    *,
    reopens: bool = False,
) -> Plan[list[Reply]]:
    """Run `call_shards_in_session` with a session from ``sessions``, by default from the client's pool.

    For calls whose answers the shard always stores.
    """
    if isinstance(sessions, RequestSessions):
        yield from register_call(context, queue, sessions, shards)
    with (sessions or context.sessions).borrow() as client_session:
        replies = yield from call_shards_in_session(context, queue, shards, client_session, build, reopens=reopens)
        for shard in shards:
            client_session.call_answered(shard, stored=True)
    return replies


def call_metadata_shard(
    context: NamespaceContext, name: str, args: Sequence[bytes | int | str], *, handles: str = ""
) -> Plan[Reply]:
    """Call a script that changes the queues or the settings of the namespace.

    Raises the error of the script, unless the caller ``handles`` its code.
    """
    keys = metadata_keys(context.namespace)
    reply = yield from send_request(Request(0, bind(load(name, context.clock), keys, args), durable=True))
    if reply.error is not None and reply.error.code != handles:
        raise context.metadata_error(reply.error)
    return reply


def confirm_earlier_changes(context: NamespaceContext, shards: Iterable[int]) -> Plan[None]:
    """Wait until as many replicas as the client's durability demands have all earlier changes of the shards.

    For a call that finds nothing to change: an earlier call may have made the change, and may have raised NotDurable.
    Raises NotDurable.
    """
    barrier = load("replication_barrier")
    requests = [
        Request(shard, Call(barrier, [shard_key(context.namespace, shard, "clock")], []), durable=True)
        for shard in shards
        if context.replicas
    ]
    if requests:
        yield Round(requests)


def read_shard(
    context: NamespaceContext, queue: str, shard: int, name: str, args: Sequence[bytes | int | str]
) -> Plan[Reply]:
    """Send one read-only call. ``args`` follow the packed context of the queue (`QueueConfig.context`)."""

    def build(config: QueueConfig, shard: int) -> Request:
        return Request(shard, context.call(name, shard, queue, [config.context(context.history), *args]))

    return (yield from call_shards(context, queue, [shard], build))[0]


def queue_deleting_error(queue: str) -> QueueBlocked:
    """Return the error for a call that needs a queue, while the queue is being deleted."""
    return QueueBlocked(
        f"queue {queue!r} is being deleted: wait until `tickwheel queue delete` has ended, or repeat the command if it"
        " was cut off; afterwards, the queue can be created again, or works again if it has unfinished messages and the"
        " command has no --purge"
    )


def _queue_blocked_error(context: NamespaceContext, queue: str, error: ScriptError) -> TickwheelError:
    """Return the error of a call that a shard has rejected because the queue is blocked, or is being deleted."""
    config = context.configs.get(queue)
    if config is not None and not config.deleting:
        return error.to_tickwheel_error(f"queue {queue!r}")
    # The end of the deletion changes no version on the shards, so the next call must read the configuration again.
    context.forget_queue(queue)
    if config is not None:
        return queue_deleting_error(queue)
    # Another thread has forgotten the configuration.
    return QueueBlocked(f"queue {queue!r} is blocked or is being deleted: repeat the call to learn which")


def _reply_or_raise(context: NamespaceContext, queue: str, reply: Reply) -> Reply:
    if reply.error is None:
        return reply
    if reply.error.code == BLOCKED:
        raise _queue_blocked_error(context, queue, reply.error)
    raise reply.error.to_tickwheel_error(f"queue {queue!r}")


def _retry(reply: Reply) -> RetryCondition | None:
    return reply.error.retry if reply.error else None


def _code(reply: Reply) -> str:
    return reply.error.code if reply.error else ""
