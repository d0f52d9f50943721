"""Operations of the holder of a lease: complete, fail, release and extend."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from struct import Struct
from typing import NamedTuple, TypeVar

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.model.message import LeasedMessage, label
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.retry_backoff import draw_backoff_ms
from tickwheel.model.validation import Duration
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import ScriptCall, call_shards, call_shards_once
from tickwheel.operations.locate import shard_of_message
from tickwheel.operations.results import (
    ALREADY,
    DONE,
    LOST,
    NOT_FOUND,
    call_each_queue,
    chunks_by_shard,
    queue_identity,
    raise_lease_lost,
    split_by_queue,
    unpack_results,
)
from tickwheel.operations.sessions import Sessions
from tickwheel.plan import Plan, Request
from tickwheel.storage.record import State

_U16, _U32 = Struct(">H"), Struct(">I")

L = TypeVar("L", bound=LeasedMessage)
# The result of one message, as `unpack_results` yields it.
Result = tuple[int, int, int, int]
# Packs the parameters of a script.
Builder = Callable[[QueueConfig], bytes]
# A message, and the result to store with it.
Item = tuple[LeasedMessage, bytes | None]
ItemsByShard = Mapping[int, list[Item]]
# A plan that settles messages. Returns the codes of each shard.
SettlePlan = Plan[list[Sequence[int]]]


class FailedAttempt(NamedTuple):
    """The answer to `fail`: the new state, the back-off if the message is invisible now, and the maximum of attempts.
    If a service of an earlier version answers, the maximum is unknown (0), and a back-off of the queue, too (None).
    """

    state: str
    retry_in_ms: int | None
    max_attempts: int


def complete(
    context: NamespaceContext, messages: Sequence[LeasedMessage], results: Sequence[str | None] | None = None
) -> Plan[None]:
    """Complete all messages, each with its result.

    If ``results`` is not None, calls that wait for these messages are woken, also for messages without a result.
    If some leases are lost, raises LeaseLost after all other messages are completed.
    """
    check_leased("complete_many", messages)

    def call(queue: str, part: ItemsByShard) -> SettlePlan:
        def build(config: QueueConfig, shard: int) -> Request:
            leased = [message for message, _ in part[shard]]
            params = _time(config.retention_ms)
            if results is not None:
                params += _results([result for _, result in part[shard]])
            args = [config.context(context.history), b"", params, *_items(context, queue, config, leased)]
            return Request(shard, context.call("complete", shard, queue, args), durable=True)

        replies = yield from call_shards(context, queue, list(part), build)
        return [_checked_codes(reply.value) for reply in replies]

    items = list(zip(messages, result_texts(messages, results), strict=False))
    yield from _settle(context, messages, items, limits.CALL_MESSAGES, call)


def _checked_codes(answer: object) -> bytes:
    """Return the answer to `complete`. Raises ValueError for another answer, which would count as a completion."""
    if not isinstance(answer, bytes) or not set(answer) <= {DONE, ALREADY, LOST, NOT_FOUND}:
        raise ValueError(f"the answer to complete is {answer!r:.80}")
    return answer


def fail(
    context: NamespaceContext,
    message: LeasedMessage,
    error: str | None,
    retry_in: Duration | None,
    final: bool = False,
    sessions: Sessions | None = None,
) -> Plan[FailedAttempt]:
    """Fail the attempt. The new state is Invisible for the back-off, Pending, or Errored.

    ``retry_in`` replaces the back-off. With ``final`` the message becomes Errored. The plan raises LeaseLost. Invalid
    arguments raise InvalidArgument here, before the plan begins.
    """
    text = error_text(error)
    check_final(final, retry_in)
    delay = None if retry_in is None else validation.duration_ms("retry_in", retry_in, 0, limits.DELAY_MS_MAX)
    wait = max_attempts = 0

    def build(config: QueueConfig) -> bytes:
        nonlocal wait, max_attempts
        wait = draw_backoff_ms(config, message.attempt, message.token + message.id.encode()) if delay is None else delay
        max_attempts = message._max_attempts or config.max_attempts
        return b"".join(
            (
                _time(config.retention_ms),
                _time(config.errored_retention_ms),
                _U16.pack(0 if final else config.max_attempts),
                _with_length(text),
                _time(wait),
            )
        )

    def plan() -> Plan[FailedAttempt]:
        [(code, state, _, _)] = yield from _leased_call(context, "fail", [message], build, sessions)
        raise_lease_lost(_select_lost([message], [code]))
        return FailedAttempt(label(state), wait if state == State.INVISIBLE else 0, max_attempts)

    return plan()


def release(
    context: NamespaceContext, messages: Sequence[LeasedMessage], sessions: Sessions | None = None
) -> Plan[None]:
    """Release all messages as if they had not been delivered.

    If some leases are lost, raises LeaseLost after all other messages are released.
    """
    check_leased("release_many", messages)

    def call(_: str, part: ItemsByShard) -> SettlePlan:
        leased = {shard: [message for message, _ in items] for shard, items in part.items()}
        results = yield from _leased_calls(
            context, "release", leased, lambda config: _time(config.retention_ms), sessions
        )
        return [[code for code, *_ in results[shard]] for shard in part]

    yield from _settle(context, messages, [(message, None) for message in messages], limits.CALL_INDEXED, call)


def _settle(
    context: NamespaceContext,
    messages: Sequence[LeasedMessage],
    items: Sequence[Item],
    call_limit: int,
    call: Callable[[str, ItemsByShard], SettlePlan],
) -> Plan[None]:
    """Settle messages of any queues. Each message has one item. ``call`` sends the items of one queue, by shard, and
    returns their codes.

    If some leases are lost, raises LeaseLost after all other messages are settled.
    """

    def settle_queue(of_queue: Sequence[Item]) -> Plan[list[LeasedMessage]]:
        lost: list[LeasedMessage] = []
        config = yield from _config_of_leases(context, [message for message, _ in of_queue])
        limit = call_limit if config.exclusive_key is None else limits.CALL_EXCLUSIVE
        for part in chunks_by_shard(of_queue, context.shards, lambda item: shard_of_message(context, item[0]), limit):
            codes = yield from call(of_queue[0][0].queue, part)
            for shard_items, shard_codes in zip(part.values(), codes, strict=True):
                lost += _select_lost([message for message, _ in shard_items], shard_codes)
        return lost

    queues = split_by_queue(items, messages)
    yield from call_each_queue(([message for message, _ in queue], settle_queue(queue)) for queue in queues)


def extend(
    context: NamespaceContext, messages: Sequence[LeasedMessage], duration: Duration, sessions: Sessions | None = None
) -> Plan[None]:
    """Move the end of each lease to ``duration`` from now, unless the lease ends later anyway.

    If some leases are lost, raises LeaseLost after all other leases are extended.
    """
    check_leased("extend_many", messages)
    ms = validation.duration_ms("duration", duration, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    queues = split_by_queue(messages, messages)
    yield from call_each_queue((queue, _extend_queue(context, queue, ms, sessions)) for queue in queues)


def apply_lease_ends(messages: Sequence[L], ends: Sequence[int | None], held_until: float) -> list[L]:
    """Set the new end of each lease. Return the messages whose lease is lost: their end is None.

    ``held_until`` is the monotonic time at which the call was sent, plus the length of the leases.
    """
    for message, until in zip(messages, ends, strict=True):
        if until:
            message._lease_until_ms = until
            message._extend_hold(held_until)
    return [message for message, until in zip(messages, ends, strict=True) if not until]


def extend_many(context: NamespaceContext, messages: Sequence[L], ms: int) -> Plan[list[L]]:
    """Extend up to CALL_MESSAGES leases of one queue and shard, and set their ends. Return the lost messages."""
    held_until = time.monotonic() + ms / 1_000
    results = yield from _leased_call(context, "extend", messages, _extension(ms))
    return apply_lease_ends(messages, _ends(results), held_until)


def _ends(results: Iterable[Result]) -> list[int | None]:
    return [None if code in (LOST, NOT_FOUND) else until for code, _, _, until in results]


def _extend_queue(
    context: NamespaceContext, messages: Sequence[L], ms: int, sessions: Sessions | None
) -> Plan[list[L]]:
    """Extend the leases of any number of messages of one queue. Return the messages whose lease is lost."""
    lost: list[L] = []
    locate = partial(shard_of_message, context)
    for part in chunks_by_shard(messages, context.shards, locate, limits.CALL_MESSAGES):
        held_until = time.monotonic() + ms / 1_000
        results = yield from _leased_calls(context, "extend", part, _extension(ms), sessions)
        for shard, of_shard in part.items():
            lost += apply_lease_ends(of_shard, _ends(results[shard]), held_until)
    return lost


def _extension(ms: int) -> Builder:
    return lambda config: _time(config.retention_ms) + _U32.pack(ms)


def check_leased(call: str, messages: object) -> None:
    """Raise InvalidArgument if ``messages`` is not a list of dequeued messages."""
    if not isinstance(messages, Sequence):
        raise InvalidArgument(f"{call} takes a list of messages, not {validation.preview(messages)}")
    for message in messages:
        if not isinstance(message, LeasedMessage):
            raise InvalidArgument(f"{call} takes messages that were dequeued, not {validation.preview(message)}")


def result_texts(messages: Sequence[LeasedMessage], results: object) -> list[bytes | None]:
    """Return the result of each message as UTF-8. Raises InvalidArgument if a result is missing or left over."""
    if results is None:
        return [None] * len(messages)
    if isinstance(results, str | bytes) or not isinstance(results, Sequence):
        raise InvalidArgument(f"results must be a list of str or None, not {validation.preview(results)}")
    if len(results) != len(messages):
        raise InvalidArgument(
            f"there are {len(results)} results for {len(messages)} messages: pass one result (or None) for each message"
        )
    return [None if result is None else validation.text("result", result, limits.RESULT_BYTES) for result in results]


def check_final(final: object, retry_in: object) -> None:
    """Raise InvalidArgument if a failure is final and also has a ``retry_in``."""
    if validation.boolean("final", final) and retry_in is not None:
        raise InvalidArgument("a final failure is not retried: give retry_in or final=True, not both")


def error_text(error: str | None) -> bytes:
    """Return the error text as stored with the message: cut to ERROR_BYTES, at a character boundary."""
    text = validation.text("error", "" if error is None else error, limits.PAYLOAD_BYTES_MAX)
    return text[: limits.ERROR_BYTES].decode(errors="ignore").encode()


def _results(results: Sequence[bytes | None]) -> bytes:
    """Return the results for `complete.lua`: a string for each message, preceded by its length.

    The string is empty, or the section ERROR of the record (`lua/_record.lua`), which also stores results.
    """
    sections = [b"" if result is None else _with_length(result) for result in results]
    return b"".join(map(_with_length, sections))


def _with_length(raw: bytes) -> bytes:
    return _U16.pack(len(raw)) + raw


def _leased_call(
    context: NamespaceContext,
    name: str,
    messages: Sequence[LeasedMessage],
    build: Builder,
    sessions: Sessions | None = None,
) -> Plan[list[Result]]:
    """Call a script on messages of one queue and shard. Return the result of each message."""
    shard = shard_of_message(context, messages[0])
    return (yield from _leased_calls(context, name, {shard: messages}, build, sessions))[shard]


def _leased_calls(
    context: NamespaceContext,
    name: str,
    part: Mapping[int, Sequence[LeasedMessage]],
    build: Builder,
    sessions: Sessions | None = None,
) -> Plan[dict[int, list[Result]]]:
    """Call a script on messages of one queue. Return their results by shard.

    All shards are called in one round, so an unreachable server does not delay the others.
    """
    messages = next(iter(part.values()))
    queue = messages[0].queue
    yield from _config_of_leases(context, messages)

    def build_call(config: QueueConfig, shard: int, session: bytes) -> ScriptCall:
        items = _items(context, queue, config, part[shard])
        return name, [config.context(context.history), session, build(config), *items]

    replies = yield from call_shards_once(context, queue, list(part), build_call, sessions)
    return {
        shard: list(unpack_results(reply.value, len(part[shard]), sessions))
        for shard, reply in zip(part, replies, strict=True)
    }


def _config_of_leases(context: NamespaceContext, messages: Sequence[LeasedMessage]) -> Plan[QueueConfig]:
    """Return the configuration of the queue of the messages. Raises QueueNotFound if this queue no longer exists."""
    name, number = queue_identity(messages[0])
    config = yield from context.config(name)
    if config.number != number:
        # The cached configuration can be older than the leases.
        config = yield from context.fetch_config(name)
    if config.number != number:
        raise context.lease_of_other_queue_error(name, config)
    return config


def _items(
    context: NamespaceContext, queue: str, config: QueueConfig, messages: Sequence[LeasedMessage]
) -> list[bytes]:
    """Return a script's arguments for the messages: all tokens in one argument, then each message's hash field.

    Each token is followed by the number of consecutive messages that have this token.
    """
    number = _U16.pack(config.number)
    fields = [message._field for message in messages]
    if {field[:2] for field in fields} != {number}:
        raise context.lease_of_other_queue_error(queue, config)
    runs = groupby([message.token for message in messages])
    return [b"".join(token + _U16.pack(len(list(run))) for token, run in runs), *fields]


def _select_lost(part: Sequence[L], codes: Sequence[int]) -> list[L]:
    return [message for message, code in zip(part, codes, strict=True) if code in (LOST, NOT_FOUND)]


def _time(ms: int) -> bytes:
    return ms.to_bytes(6)
