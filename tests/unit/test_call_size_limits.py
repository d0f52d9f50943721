"""A batch of any size is split into calls of bounded size, in the order of the batch."""

from collections import Counter

import pytest

from tickwheel import NewMessage, limits
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.enqueue import _UNITS_AT_ONCE, _enqueue_rounds
from tickwheel.operations.message_packer import PackedMessage, Packer

pytestmark = pytest.mark.unit

KIB = 1024


def parts(config: QueueConfig, messages: list[NewMessage], shards: int = 1) -> list[list[PackedMessage]]:
    core = NamespaceContext("tw")
    core.shards = shards
    return list(filter(None, _enqueue_rounds(Packer(core, "q", config), messages)))


@pytest.mark.parametrize(
    ("payload", "count", "calls"),
    [
        (0, 2_500, 10),
        # The script receives these payloads, and about 60 more bytes for each message.
        (KIB, 2_000, 8),
        # These payloads are sent next to the script call, 128 of them per call.
        (32 * KIB, 300, 3),
        (256 * KIB, 33, 3),
    ],
)
def test_messages_are_split_by_number_and_by_bytes(payload: int, count: int, calls: int) -> None:
    config = QueueConfig(payload_limit=limits.PAYLOAD_BYTES_MAX)
    messages = [NewMessage(bytes(payload), id=f"{n:020}") for n in range(count)]
    call_parts = parts(config, messages)
    assert [packed.id for part in call_parts for packed in part] == [new.id for new in messages]
    assert len(call_parts) == calls
    for part in call_parts:
        assert len(part) <= limits.CALL_MESSAGES
        assert sum(len(packed.head + packed.field + packed.tail) for packed in part) <= limits.CALL_BYTES
        assert sum(len(packed.body[1]) for packed in part if packed.body) <= limits.OUT_OF_BAND_BYTES


@pytest.mark.parametrize(("exclusive_key", "limit"), [(None, 29), ("k0", 7)])
def test_messages_are_split_by_the_index_entries_they_make(exclusive_key: str | None, limit: int) -> None:
    metadata = {f"k{n}": "v" for n in range(16)}
    call_parts = parts(QueueConfig(exclusive_key=exclusive_key), [NewMessage(metadata=metadata) for _ in range(500)])
    assert max(len(part) for part in call_parts) == limit
    assert sum(len(part) for part in call_parts) == 500


def test_each_shard_has_its_own_limits_of_a_call() -> None:
    messages = [NewMessage(id=f"{n:020}") for n in range(10_000)]
    call_parts = parts(QueueConfig(), messages, shards=16)
    calls = [Counter(packed.shard for packed in part) for part in call_parts]
    assert max(max(call.values()) for call in calls) == limits.CALL_MESSAGES
    # 625 messages per shard on average: three rounds, rarely a fourth.
    assert len(call_parts) <= 4
    assert [packed.id for part in call_parts for packed in part] == [new.id for new in messages]


@pytest.mark.parametrize("shards", [1, 256])
def test_other_calls_go_on_while_messages_with_much_metadata_are_packed(
    monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    packed: list[PackedMessage] = []
    pack = Packer.pack

    def count(packer: Packer, new: NewMessage) -> PackedMessage:
        packed.append(pack(packer, new))
        return packed[-1]

    monkeypatch.setattr(Packer, "pack", count)
    core = NamespaceContext("tw")
    core.shards = shards
    messages = [NewMessage(metadata={f"k{n}": "v" for n in range(16)}) for _ in range(1_000)]
    units, of_a_message = [], 0
    for _ in _enqueue_rounds(Packer(core, "q", QueueConfig()), messages):
        units.append(sum(each.units for each in packed))
        of_a_message = max([of_a_message, *(each.units for each in packed)])
        packed.clear()
    assert max(units) <= _UNITS_AT_ONCE + of_a_message


def test_the_size_of_concurrent_calls_is_limited_for_any_number_of_shards() -> None:
    config = QueueConfig(payload_limit=limits.PAYLOAD_BYTES_MAX)
    call_parts = parts(config, [NewMessage(bytes(256 * KIB)) for _ in range(200)], shards=1_024)
    assert len(call_parts) == 4
    assert (
        max(sum(packed.size() + packed.out_of_band_bytes() for packed in part) for part in call_parts)
        <= limits.ROUND_BYTES
    )
