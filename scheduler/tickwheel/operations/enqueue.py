"""Enqueue: packs messages and sends them in rounds. A round has at most one call of bounded size for each shard."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice
from struct import Struct

from tickwheel import limits
from tickwheel.errors import IdConflict, InvalidArgument, TickwheelError
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, NewMessage, label
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import call_shards
from tickwheel.operations.message_packer import PackedMessage, Packer
from tickwheel.operations.queues import CreationLimit, ensure
from tickwheel.operations.results import CONFLICT, DONE, INVALID
from tickwheel.plan import Command, Pause, Plan, Request, iter_argument

_CALL = Struct(">IHI")
# Messages and pairs that are packed without a pause. This takes about 2 ms.
_UNITS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that the server rejected: the id is taken by another message, or the due time is too far ahead."""

    id: str
    conflicts: bool


def enqueue_many(
    context: NamespaceContext, queue: str, messages: Iterable[NewMessage], uid: bytes = b""
) -> Plan[list[EnqueueResult]]:
    """Enqueue all messages, in rounds of bounded size. Return the results in the order of ``messages``.

    An invalid message stops the call before the round that contains it is sent; messages of earlier rounds remain
    enqueued. A message that the server rejects (its id is taken by another message, or its due time is too far ahead by
    the server's clock) does not stop the others: IdConflict or InvalidArgument is raised after all rounds. After any
    other error, it is unknown which messages were enqueued. The call may be repeated if every message has an id.
    ``uid``: see `ensure`.
    """
    results = yield from enqueue_messages(context, queue, messages, uid=uid)
    return check_refused(queue, results)


def enqueue_messages(
    context: NamespaceContext,
    queue: str,
    messages: Iterable[NewMessage],
    limit: CreationLimit | None = None,
    uid: bytes = b"",
) -> Plan[list[EnqueueResult | RefusedMessage]]:
    """Enqueue all messages. Return the result of each, or RefusedMessage if the server rejected the message.

    No queue is created without messages, or if one of the first round is invalid. ``limit`` is the limit of auto-create
    for the token of the caller. ``uid``: see `ensure`.
    """
    if not isinstance(messages, Iterable):
        raise InvalidArgument(f"enqueue_many takes an iterable of NewMessage, not {validation.preview(messages)}")
    items = iter_argument(messages)
    first = list(islice(items, 1))
    if not first:
        return []

    def read_ahead() -> Iterator[NewMessage]:
        yield first[0]
        for new in items:
            first.append(new)
            yield new

    config = yield from ensure(context, queue, limit, uid, check=first_round_check(context, queue, read_ahead()))
    packer = Packer(context, queue, config)
    results: list[EnqueueResult | RefusedMessage] = []
    for part in _enqueue_rounds(packer, chain(first, items)):
        if part:
            results += yield from send(context, queue, part, packer.uid)
        else:
            yield Pause(0)
    return results


def check_new(new: object) -> None:
    """Raise InvalidArgument if ``new`` is not a NewMessage."""
    if not isinstance(new, NewMessage):
        raise InvalidArgument(
            f"enqueue_many takes NewMessage objects, not {type(new).__name__} {validation.preview(new)}"
        )


def first_round_check(
    context: NamespaceContext, queue: str, messages: Iterable[NewMessage]
) -> Callable[[QueueConfig], Plan[None]]:
    """Return a check for `ensure`, which raises the error of an invalid message of the first round."""

    def check(config: QueueConfig) -> Plan[None]:
        for part in _enqueue_rounds(Packer(context, queue, config), messages):
            if part:
                break
            yield Pause(0)

    return check


def check_refused(queue: str, results: Sequence[EnqueueResult | RefusedMessage]) -> list[EnqueueResult]:
    """Return the results if the server accepted all messages.

    Otherwise raises InvalidArgument or IdConflict with the results of the accepted messages.
    """
    accepted = [None if isinstance(result, RefusedMessage) else result for result in results]
    refused = [result for result in results if isinstance(result, RefusedMessage)]
    conflicts = [message.id for message in refused if message.conflicts]
    too_far = [message.id for message in refused if not message.conflicts]
    summary = _describe_results(accepted) if refused else ""
    if too_far:
        max_days = timedelta(milliseconds=limits.DELAY_MS_MAX).days
        text = (
            f"due of {_describe_ids(too_far)} must be within {max_days} days from now, by the clock of its"
            " shard's server"
        )
        if conflicts:
            text += f"; and the queue has a {_describe_ids(conflicts)} with other content"
        raise InvalidArgument(text + summary, accepted, summary=summary)
    if conflicts:
        text = (
            f"queue {queue!r} has a {_describe_ids(conflicts)} with other content; an id identifies one message"
            " until the retention of the message is over"
        )
        raise IdConflict(text + summary, accepted, summary=summary)
    return accepted  # type: ignore[return-value]  # contains no None if no message was rejected


def to_error(queue: str, message: RefusedMessage) -> TickwheelError:
    """Return the error for a rejected message."""
    try:
        check_refused(queue, [message])
    except TickwheelError as error:
        return error
    raise AssertionError(message)


def _describe_results(results: Sequence[EnqueueResult | None]) -> str:
    """Return the end of an error text: how many messages were enqueued. Empty if there is only one message."""
    if len(results) == 1:
        return ""
    created = sum(1 for result in results if result is not None and result.created)
    existing = sum(1 for result in results if result is not None and not result.created)
    return f"; {created} of {len(results)} messages were enqueued" + (
        f", {existing} existed already" if existing else ""
    )


def _describe_ids(ids: list[str]) -> str:
    return f"message {ids[0]!r}" + (f" and {len(ids) - 1} more" if len(ids) > 1 else "")


@dataclass(slots=True)
class ShardCallSize:
    """The size of one shard's call, compared with the limits of a call. `PackedMessage` describes the fields."""

    messages: int = 0
    size: int = 0
    out_of_band_bytes: int = 0
    units: int = 0

    def add(self, packed: PackedMessage) -> None:
        """Add the size of a message."""
        self.messages += 1
        self.size += packed.size()
        self.out_of_band_bytes += packed.out_of_band_bytes()
        self.units += packed.units

    @property
    def exceeds_limit(self) -> bool:
        """Whether the call exceeds a limit. A call with a single message never exceeds a limit."""
        many = self.messages > limits.CALL_MESSAGES or self.units > limits.CALL_ENTRIES
        return self.messages > 1 and (
            many or self.size > limits.CALL_BYTES or self.out_of_band_bytes > limits.OUT_OF_BAND_BYTES
        )


class EnqueueRound:
    """The messages of one round, which makes at most one call to each shard."""

    def __init__(self) -> None:
        self.messages: list[PackedMessage] = []
        self._sizes: dict[int, ShardCallSize] = {}
        self._size = 0

    def add(self, packed: PackedMessage) -> bool:
        """Add a message if it fits, and return whether it did. The first message always fits."""
        size = packed.size() + packed.out_of_band_bytes()
        call = self._sizes.setdefault(packed.shard, ShardCallSize())
        call.add(packed)
        if self.messages and (call.exceeds_limit or self._size + size > limits.ROUND_BYTES):
            return False
        self._size += size
        self.messages.append(packed)
        return True


def _enqueue_rounds(packer: Packer, messages: Iterable[NewMessage]) -> Iterator[list[PackedMessage]]:
    """Yield the packed messages round by round, and an empty list whenever other calls should go on."""
    part, units = EnqueueRound(), 0
    for new in messages:
        check_new(new)
        packed = packer.pack(new)
        units += packed.units
        if units >= _UNITS_AT_ONCE:
            units = 0
            yield []
        if not part.add(packed):
            yield part.messages
            part = EnqueueRound()
            part.add(packed)
    if part.messages:
        yield part.messages


def send(
    context: NamespaceContext, queue: str, part: list[PackedMessage], uid: bytes
) -> Plan[list[EnqueueResult | RefusedMessage]]:
    """Send one round: one call to each shard that has messages. Return the result of each message."""
    by_shard: dict[int, list[int]] = {}
    for n, packed in enumerate(part):
        by_shard.setdefault(packed.shard, []).append(n)
    call = _CALL.pack(context.clock_guard_ms, limits.DELAY_MS_MAX >> 32, limits.DELAY_MS_MAX & 0xFFFFFFFF)

    def build(config: QueueConfig, shard: int) -> Request:
        if config.uid != uid:
            raise context.queue_recreated_error(queue, config)
        shard_part = [part[n] for n in by_shard[shard]]
        heads = b"".join([packed.head for packed in shard_part])
        args = [config.context(context.history, context.options(config.enqueue_blocked)), call, heads]
        bodies: list[bytes] = []
        for packed in shard_part:
            args += packed.field, packed.tail
            if packed.body is not None:
                bodies += packed.body
        prelude: Command | None = ("HSET", context.keys(shard, queue)["bodies"], *bodies) if bodies else None
        return Request(shard, context.call("enqueue", shard, queue, args), prelude=prelude, durable=True)

    shards = list(by_shard)
    replies = yield from call_shards(context, queue, shards, build)
    results: dict[int, EnqueueResult | RefusedMessage] = {}
    for shard, reply in zip(shards, replies, strict=True):
        for n, code, state in zip(by_shard[shard], reply.value[::2], reply.value[1::2], strict=True):
            if code in (CONFLICT, INVALID):
                results[n] = RefusedMessage(part[n].id, conflicts=code == CONFLICT)
            else:
                results[n] = EnqueueResult(part[n].id, label(state), code == DONE)
    return [results[n] for n in range(len(part))]
