"""Checks the indexes (`lua/_ready_indexes.lua`): each entry has the record that it comes from.

`doctor/messages.py` checks the opposite direction: each record has its entries.

A walk returns entries before their records are read, so a message can change in between. An entry is reported only if
it does not fit its record when both are read again, one directly after the other.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from tickwheel.doctor.expected_entries import ExpectedEntries
from tickwheel.doctor.shard_reader import ShardReader, Walk
from tickwheel.model.queue_config import QueueConfig
from tickwheel.plan import Command, Plan
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
    key = shard.queue_key(queue, index)
    walk = Walk(shard, "ZSCAN", key)
    while not walk.ended:
        names = {member: name_in(member) for member, _ in (yield from walk.next())}
        messages = yield from _read_messages(shard, config, list(names.values()))
        suspects = {member: name for member, name in names.items() if _member_problem(messages.get(name), member, fits)}
        again = yield from _read_again(
            shard, config, [(("ZSCORE", key, member), name) for member, name in suspects.items()]
        )
        for member, (score, message) in zip(suspects, again, strict=True):
            problem = _member_problem(message, member, fits)
            if score is not None and problem:
                shard.add_finding(f"queue {queue}, {index} entry {member!r}", problem)


def _member_problem(message: ExpectedEntries | None, member: bytes, fits: Fits) -> str | None:
    if message is None:
        return "its message does not exist"
    if message.record.state is not State.PENDING:
        return f"its message is {message.record.state.label}, not pending"
    return None if fits(message, member) else "its message is pending, but its record implies another entry"


def _check_locks(shard: ShardReader, queue: str, config: QueueConfig) -> Plan[None]:
    key = shard.queue_key(queue, "locks")
    walk = Walk(shard, "HSCAN", key)
    while not walk.ended:
        names = {}
        for value, lock in (yield from walk.next()):
            id_ = lock[1:] if lock[:1] == b"R" else lock[1 + _ORDER_BYTES :]
            names[value, lock] = _U16.pack(len(value)) + value + id_
        messages = yield from _read_messages(shard, config, list(names.values()))
        suspects = {entry: name for entry, name in names.items() if not _fits_lock(messages.get(name), entry[1])}
        again = yield from _read_again(
            shard, config, [(("HGET", key, value), name) for (value, _), name in suspects.items()]
        )
        for ((value, lock), name), (present_lock, message) in zip(suspects.items(), again, strict=True):
            if lock == present_lock and not _fits_lock(message, lock):
                id_ = name[_U16.size + len(value) :]
                shard.add_finding(f"queue {queue}, lock of {value!r}", _lock_problem(lock, id_, message))


def _fits_lock(message: ExpectedEntries | None, lock: bytes) -> bool:
    if message is None:
        return False
    if message.holds_value:
        return lock == message.leased_lock
    return message.record.state is State.PENDING and lock == message.head_lock


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
    parked, locks = shard.queue_key(queue, "parked"), shard.queue_key(queue, "locks")
    walk = Walk(shard, "ZSCAN", parked)
    while not walk.ended:
        values = {group: group[2 : 2 + _U16.unpack_from(group)[0]] for group, _ in (yield from walk.next())}
        found = yield from shard.execute(("HGET", locks, value) for value in values.values())
        suspects = [group for group, lock in zip(values, found, strict=True) if not _is_leased(lock)]
        again = yield from shard.execute_pairs(
            (("ZSCORE", parked, group), ("HGET", locks, values[group])) for group in suspects
        )
        for group, (score, lock) in zip(suspects, again, strict=True):
            if score is not None and not _is_leased(lock):
                shard.add_finding(
                    f"queue {queue}, parked {group!r}", f"no message holds its exclusive value: the lock is {lock!r}"
                )


def _is_leased(lock: bytes | None) -> bool:
    return lock is not None and lock[:1] == b"R"


def _check_empty(shard: ShardReader, queue: str, *indexes: str) -> Plan[None]:
    replies = yield from shard.execute(("EXISTS", shard.queue_key(queue, index)) for index in indexes)
    for index, exists in zip(indexes, replies, strict=True):
        if exists:
            shard.add_finding(f"queue {queue}, {index}", "the key exists, but this queue must not have it")


def _read_messages(shard: ShardReader, config: QueueConfig, names: list[bytes]) -> Plan[dict[bytes, ExpectedEntries]]:
    number = _U16.pack(config.number)
    records = yield from shard.records([number + name for name in names])
    decoded = {field[2:]: _decode(shard, field, stored) for field, stored in records.items()}
    return {name: message for name, message in decoded.items() if message is not None}


def _read_again(
    shard: ShardReader, config: QueueConfig, entries: list[tuple[Command, bytes]]
) -> Plan[list[tuple[Any, ExpectedEntries | None]]]:
    """Return the present value of each entry, and the message of the entry. An entry is a command and a name."""
    fields = [_U16.pack(config.number) + name for _, name in entries]
    answers = yield from shard.execute_pairs(
        (command, ("HGET", shard.key("messages"), field)) for (command, _), field in zip(entries, fields, strict=True)
    )
    return [(entry, _decode(shard, field, stored)) for field, (entry, stored) in zip(fields, answers, strict=True)]


def _decode(shard: ShardReader, field: bytes, stored: bytes | None) -> ExpectedEntries | None:
    try:
        return None if stored is None else shard.expected_entries(field, stored)
    except ValueError:
        # `check_messages` reports the unreadable record. Here its entries count as entries without a message.
        return None


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
