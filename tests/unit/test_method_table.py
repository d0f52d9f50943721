"""The table of RPCs: the role, the cost and the counter of each."""

import pytest

from tickwheel import limits
from tickwheel.rpc.methods import SERVICES
from tickwheel.service.method_table import METHOD_ROWS, METHOD_TABLE, one_shard
from tickwheel.v1 import message_service_pb2 as calls
from tickwheel.v1.queue_service_pb2 import GetForecastRequest

pytestmark = pytest.mark.unit


def test_every_rpc_has_exactly_one_row_and_every_row_is_an_rpc() -> None:
    rpcs = [method.name for service in SERVICES for method in service.methods]
    assert sorted(row.name for row in METHOD_ROWS) == sorted(rpcs)


@pytest.mark.parametrize(
    ("name", "request_", "cost"),
    [
        ("Enqueue", calls.EnqueueRequest(), 1),
        ("EnqueueBatch", calls.EnqueueBatchRequest(), 1),
        ("EnqueueBatch", calls.EnqueueBatchRequest(messages=[{}, {}]), 2),
        ("Cancel", calls.CancelRequest(ids=["a", "b", "c"]), 3),
        ("Complete", calls.CompleteRequest(leases=[{}, {}]), 0),
        ("AwaitMessages", calls.AwaitMessagesRequest(queues=["a", "b"]), 1),
    ],
)
def test_a_call_costs_its_messages_and_at_least_one_unless_the_enqueue_paid(
    name: str, request_: object, cost: int
) -> None:
    assert METHOD_TABLE[name].cost(request_, one_shard) == cost


@pytest.mark.parametrize(
    ("shards", "queues", "cost"),
    [(1, 1, 1), (1, 3, 1), (8, 3, 1), (1, 100, 3), (8, 100, 25), (64, 3, 8), (64, 100, 200)],
)
def test_a_wait_for_several_queues_costs_what_it_reads(shards: int, queues: int, cost: int) -> None:
    request = calls.AwaitMessagesRequest(queues=[f"q{n}" for n in range(queues)])
    assert METHOD_TABLE["AwaitMessages"].cost(request, lambda _: shards) == cost


@pytest.mark.parametrize(
    ("shards", "minutes", "cost"),
    [(1, 0, 1), (1, 1_440, 22), (16, 0, 15), (16, 60, 15), (256, 1, 32), (256, 1_440, 5_760), (256, 2**31 - 1, 5_760)],
)
def test_a_forecast_costs_the_minutes_that_it_reads(shards: int, minutes: int, cost: int) -> None:
    request = GetForecastRequest(minutes=minutes)
    assert METHOD_TABLE["GetForecast"].cost(request, lambda _: shards) == cost


def test_a_batch_is_as_large_as_its_items_and_no_other_request_has_any() -> None:
    batch = {"EnqueueBatch": "messages", "EnqueueStream": "messages", "DequeueBatch": "requests", "Cancel": "ids"}
    batch |= {"Complete": "leases", "Fail": "items", "Release": "leases", "Extend": "leases"}
    assert {row.name: row.items for row in METHOD_ROWS if row.items} == batch
    assert METHOD_TABLE["Complete"].count_items(calls.CompleteRequest(leases=[{}, {}])) == 2
    assert METHOD_TABLE["Enqueue"].count_items(calls.EnqueueRequest()) == 0
    # A dequeue takes longer than other items.
    assert {row.name for row in METHOD_ROWS if row.item_size != 1} == {"DequeueBatch"}
    # A page of messages takes as long as a batch.
    assert METHOD_TABLE["ListMessages"].turn_size(calls.ListMessagesRequest()) == limits.CALLER_ITEMS
    assert METHOD_TABLE["DequeueBatch"].turn_size(calls.DequeueBatchRequest(requests=[{}, {}])) == 10


def test_a_release_costs_its_leases_at_its_end_and_no_other_call_does() -> None:
    assert METHOD_TABLE["Release"].cost_at_end(calls.ReleaseRequest(leases=[{}, {}])) == 2
    assert {row.name for row in METHOD_ROWS if row.charge_at_end} == {"Release"}


def test_the_calls_that_read_or_change_all_shards_cost_more_in_a_namespace_with_many_shards() -> None:
    reads = {"AwaitMessages", "Dequeue", "DequeueBatch", "DequeueStream", "Explain"}
    assert {row.name for row in METHOD_ROWS if row.reads_all_shards} == {
        *reads,
        *("GetCounts", "GetDepth", "GetForecast"),
        *("OpenNamespace", "CreateQueue", "BlockQueue", "PurgeQueue", "DeleteQueue"),
    }


@pytest.mark.parametrize(("shards", "cost"), [(1, 1), (15, 1), (16, 2), (256, 32)])
def test_a_dequeue_costs_the_shards_that_it_reads(shards: int, cost: int) -> None:
    for name, request in (("Dequeue", calls.DequeueRequest()), ("DequeueStream", calls.DequeueStreamRequest())):
        assert METHOD_TABLE[name].cost(request, lambda _: shards) == cost


def test_each_dequeue_of_a_batch_costs_the_shards_of_its_own_namespace() -> None:
    shards = {"small": 1, "medium": 64, "large": 256}
    batch = calls.DequeueBatchRequest(requests=[{"namespace": name} for name in ("small", "large", "medium", "small")])
    assert METHOD_TABLE["DequeueBatch"].cost(batch, lambda request: shards[request.namespace]) == 1 + 32 + 8 + 1
