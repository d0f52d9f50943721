"""The settings of a queue survive the conversion for gRPC, so that the conversion omits no setting."""

from dataclasses import fields, replace

import pytest

from tickwheel.model.queue_config import QueueConfig
from tickwheel.rpc.queue_conversion import queue_from_proto, queue_to_proto

pytestmark = pytest.mark.unit

# The uid and the marks for the end of a deletion never leave Redis, and `indexed_keys` follows from `indexed`.
LOCAL = {"uid", "indexed_keys", "deleted", "enqueue_was_blocked", "dequeue_was_blocked"}
# One value for each field, other than its default.
OTHER = QueueConfig(
    exclusive_key="customer",
    indexed=("region", "tier"),
    lease_ms=1_001,
    max_attempts=2,
    backoff_ms=1_003,
    backoff_max_ms=1_004,
    retention_ms=1_005,
    errored_retention_ms=1_006,
    payload_limit=1_007,
    forecast=True,
    sink="kafka://orders",
    enqueue_blocked=True,
    dequeue_blocked=True,
    deleting=True,
    number=8,
    version=9,
)


@pytest.mark.parametrize("name", [item.name for item in fields(QueueConfig) if item.name not in LOCAL])
def test_each_field_of_a_queue_survives_the_conversion_to_protobuf_and_back(name: str) -> None:
    value = getattr(OTHER, name)
    config = replace(QueueConfig(), **{name: value})
    assert config != QueueConfig(), f"the test needs a value of {name} other than the default"
    assert queue_from_proto(queue_to_proto("jobs", config)) == config


@pytest.mark.parametrize("indexed", [None, (), ("region",)])
def test_no_index_an_empty_index_and_an_index_stay_three_different_settings(indexed: tuple[str, ...] | None) -> None:
    config = QueueConfig(indexed=indexed)
    assert queue_from_proto(queue_to_proto("jobs", config)).indexed == indexed
