"""Checks the indexes (`lua/_ready_indexes.lua`): each entry has the record that it comes from.

`doctor/messages.py` checks the opposite direction: each record has its entries.
"""

from collections.abc import Callable
from struct import Struct

from tickwheel.doctor.expected_entries import ExpectedEntries
from tickwheel.doctor.shard_reader import ShardReader, Walk
from tickwheel.model.queue_config import QueueConfig
from tickwheel.plan import Plan
from tickwheel.storage.record import State

_U16 = Struct(">H")
_ORDER_BYTES, _SIGNATURE_BYTES, _RANK_BYTES, _NUMBER_BYTES = 14, 8, 6, 2
# Returns whether the record of a message implies an index entry.
Fits = Callable[[ExpectedEntries, bytes], bool]


def check_indexes(shard: ShardReader) -> Plan[None]:
    """Check that a record justifies every entry of `ready`, `waiting`, `pairs`, `vpairs`, `locks` and `parked`."""
    for queue, config in shard.queues.values():
        exclusive = config.exclusive_key is not None
        yield from _check_members(shard, queue, config, "ready", _name_in_ready, lambda m, e: m.ready == e)
        pair_name = _name_in_pairs
        yield from _check_members(
            shard, queue, config, "pairs", pair_name, lambda m, e: e in map(m.pair_entry, m.pairs)
        )
        if exclusive:
            yield from _check_members(shard, queue, config, "waiting", _name_in_waiting, lambda m, e: m.waiting == e)
            yield from _check_members(
                shard, queue, config, "vpairs", _name_in_vpairs, lambda m, e: e in map(m.value_pair_entry, m.pairs)
            )
            yield from _check_locks(shard, queue, config)
            yield from _check_parked(shard, queue)
        else:
            yield from _check_empty(shard, queue, "waiting", "vpairs", "locks", "parked")
        if not config.forecast:
            yield from _check_empty(shard, queue, "forecast")


def _check_members(
    shard: ShardReader, queue: str, config: QueueConfig, index: str, name_in: Callable[[bytes], bytes], fits: Fits
) -> Plan[None]:
    """Check that every member of the index belongs to a Pending message and fits the record of this message.

    ``name_in`` extracts the name of the message from a member. The name is the id; in an exclusive queue, it is the
    length of the exclusive value, the value, and the id.
    """
    walk = Walk(shard, "ZSCAN", shard.queue_key(queue, index))
    while not walk.ended:
        entries = {member: name_in(member) for member, _ in (yield from walk.next())}
        messages = yield from _read_messages(shard, config, list(entries.values()))
        for member, name in entries.items():
            message = messages.get(name)
            if message is None or message.record.state is not State.PENDING or not fits(message, member):
                if message is None:
                    actual = "does not exist"
                elif message.record.state is not State.PENDING:
                    actual = f"is {message.record.state.label}, not pending"
                else:
                    actual = "is pending, but its record implies another entry"
                shard.add_finding(f"queue {queue}, {index} entry {member!r}", f"its message {actual}")


def _check_locks(shard: ShardReader, queue: str, config: QueueConfig) -> Plan[None]:
    walk = Walk(shard, "HSCAN", shard.queue_key(queue, "locks"))
    while not walk.ended:
        names = {}
        for value, lock in (yield from walk.next()):
            id_ = lock[1:] if lock[:1] == b"R" else lock[1 + _ORDER_BYTES :]
            names[value, lock] = _U16.pack(len(value)) + value + id_
        messages = yield from _read_messages(shard, config, list(names.values()))
        for (value, lock), name in names.items():
            message = messages.get(name)
            leased = message is not None and message.holds_value and lock == message.leased_lock
            head = message is not None and message.record.state is State.PENDING and lock == message.head_lock
            if not (leased or head):
                id_ = name[_U16.size + len(value) :]
                shard.add_finding(f"queue {queue}, lock of {value!r}", _lock_problem(lock, id_, message))


def _lock_problem(lock: bytes, id_: bytes, message: ExpectedEntries | None) -> str:
    role = "holder" if lock[:1] == b"R" else "next message"
    if message is None:
        actual = "does not exist"
    elif lock[:1] != b"R" and message.record.state is State.PENDING:
        actual = "is pending, but its record implies another lock"
    else:
        actual = f"is {message.record.state.label}"
    return f"the lock {lock!r} names message {id_!r} as the {role} of the value, but this message {actual}"


def _check_parked(shard: ShardReader, queue: str) -> Plan[None]:
    walk = Walk(shard, "ZSCAN", shard.queue_key(queue, "parked"))
    while not walk.ended:
        groups = [member for member, _ in (yield from walk.next())]
        values = [group[2 : 2 + _U16.unpack_from(group)[0]] for group in groups]
        locks = yield from shard.execute(("HGET", shard.queue_key(queue, "locks"), value) for value in values)
        for group, lock in zip(groups, locks, strict=True):
            if lock is None or lock[:1] != b"R":
                shard.add_finding(
                    f"queue {queue}, parked {group!r}", f"no message holds its exclusive value: the lock is {lock!r}"
                )


def _check_empty(shard: ShardReader, queue: str, *indexes: str) -> Plan[None]:
    replies = yield from shard.execute(("EXISTS", shard.queue_key(queue, index)) for index in indexes)
    for index, exists in zip(indexes, replies, strict=True):
        if exists:
            shard.add_finding(f"queue {queue}, {index}", "the key exists, but this queue must not have it")


def _read_messages(shard: ShardReader, config: QueueConfig, names: list[bytes]) -> Plan[dict[bytes, ExpectedEntries]]:
    number = _U16.pack(config.number)
    messages: dict[bytes, ExpectedEntries] = {}
    for field, stored in (yield from shard.records([number + name for name in names])).items():
        if stored is not None:
            try:
                messages[field[2:]] = shard.expected_entries(field, stored)
            except ValueError:
                # `check_messages` reports the unreadable record. Here its entries count as entries without a message.
                continue
    return messages


def _name_in_ready(member: bytes) -> bytes:
    return member[_RANK_BYTES + _NUMBER_BYTES :]


def _name_in_waiting(member: bytes) -> bytes:
    after = 2 + _U16.unpack_from(member)[0]
    return member[:after] + member[after + _ORDER_BYTES :]


def _name_in_pairs(member: bytes) -> bytes:
    return member[2 + _U16.unpack_from(member)[0] + _ORDER_BYTES + _SIGNATURE_BYTES :]


def _name_in_vpairs(member: bytes) -> bytes:
    after_value = 2 + _U16.unpack_from(member)[0]
    after_pair = after_value + 2 + _U16.unpack_from(member, after_value)[0]
    return member[:after_value] + member[after_pair + _ORDER_BYTES + _SIGNATURE_BYTES :]
