"""A priority from 0 to 9 moves the deadline before the due time, by 365 days for each step."""

from datetime import timedelta
from typing import Any

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tickwheel import InvalidArgument, NewMessage, Queue
from tickwheel.celery.celery_message import CeleryMessage
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

YEAR = timedelta(days=365)
HOUR = timedelta(hours=1)


def test_a_higher_priority_is_delivered_first(queue: Queue) -> None:
    queue.enqueue_many(NewMessage(id=str(priority), priority=priority) for priority in (0, 5, 9, 1))
    queue.enqueue(id="none")
    order = [message.id for message in queue.dequeue(5, consistency="exact")]
    assert order[:3] == ["9", "5", "1"]
    assert set(order[3:]) == {"0", "none"}


def test_the_deadline_is_the_due_time_minus_a_year_for_each_step(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="now", priority=9)
    queue.enqueue(id="delayed", priority=2, delay=HOUR)
    queue.enqueue(id="due", priority=2, due=clock.now + HOUR)
    queue.enqueue(id="zero", priority=0)
    deadlines = {id: queue.get(id).deadline - clock.now for id in ("now", "delayed", "due", "zero")}
    assert deadlines == {
        "now": -9 * YEAR,
        "delayed": HOUR - 2 * YEAR,
        "due": HOUR - 2 * YEAR,
        "zero": timedelta(0),
    }


def test_the_same_priority_again_is_the_same_message(queue: Queue) -> None:
    assert queue.enqueue(b"x", id="m", priority=3, delay=HOUR).created
    assert not queue.enqueue(b"x", id="m", priority=3, delay=HOUR).created
    assert queue.enqueue(b"x", id="zero", priority=0).created
    assert not queue.enqueue(b"x", id="zero").created


@pytest.mark.parametrize("value", [-1, 10, True, 1.5, "1"])
def test_a_priority_is_a_whole_number_from_0_to_9(queue: Queue, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"priority must be a whole number from 0 to 9, not {value!r}"):
        queue.enqueue(priority=value)


def test_a_priority_and_a_deadline_exclude_each_other(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="give a deadline or a priority, not both"):
        queue.enqueue(priority=1, deadline=HOUR)
    assert queue.counts()["pending"] == 0


def test_a_priority_of_amqp_means_the_same_in_a_celery_message(queue: Queue, clock: VirtualClock) -> None:
    call = CeleryMessage({"task": "shop.note", "id": "c"}, "[[], {}, {}]", priority=7)
    queue.enqueue_many([call.to_new_message(lowest_first=False)])
    queue.enqueue(id="own", priority=7)
    assert queue.get("c").deadline == queue.get("own").deadline
    queue.enqueue_many([CeleryMessage({"task": "t", "id": "r"}, "", priority=7).to_new_message()])
    assert queue.get("r").deadline == clock.now + 7 * YEAR


def test_another_client_of_the_service_sends_the_priority_itself(
    real_time_service: ServiceThread, namespace: str
) -> None:
    where = {"namespace": namespace, "queue": "orders"}
    with grpc.insecure_channel(real_time_service.target) as channel:
        client = GenericClient(channel)
        client.call("OpenNamespace", namespace=namespace)
        for id, fields in {"low": {"priority": 1}, "high": {"priority": 9}, "zero": {"priority": 0}}.items():
            client.call("Enqueue", **where, message={"id": id, "due_ms": 1_000} | fields)
        messages = [client.call("GetMessage", **where, id=id)["message"] for id in ("low", "zero")]
        low, zero = (int(message["due_ms"]) - int(message["deadline_ms"]) for message in messages)
        assert (low, zero) == (365 * 86_400_000, 0)
        [first] = client.call("Dequeue", **where)["deliveries"]
        assert first["lease"]["id"] == "high"
        with pytest.raises(grpc.RpcError, match="priority must be a whole number from 0 to 9, not 10"):
            client.call("Enqueue", **where, message={"priority": 10})
