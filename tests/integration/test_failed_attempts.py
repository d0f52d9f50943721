"""The answer to a failure: the new state of the message, its back-off and the maximum number of its attempts."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.integration.service_thread import ServiceThread
from tickwheel import Message, Tickwheel
from tickwheel.operations.settle import FailedAttempt
from tickwheel.testing import PrivateServer
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

pytestmark = pytest.mark.integration

SECOND = timedelta(seconds=1)


@pytest.fixture(params=["redis", "grpc"])
def client(request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as direct:
        direct.create_queue("jobs", max_attempts=3, backoff=4 * SECOND, backoff_max=4 * SECOND)
        if request.param == "redis":
            yield direct
            return
        service: ServiceThread = request.getfixturevalue("real_time_service")
        with Tickwheel(service.url, namespace=namespace) as over_service:
            yield over_service


def take(client: Tickwheel, max_attempts: int | None = None) -> Message:
    client.queue("jobs").enqueue(max_attempts=max_attempts)
    [message] = client.queue("jobs").dequeue()
    return message


def fail(client: Tickwheel, message: Message, retry_in: timedelta | None = None) -> FailedAttempt:
    answer: FailedAttempt = client._run(client._backend.fail(message, "boom", retry_in, False))
    return answer


@pytest.mark.parametrize(("own", "maximum"), [(None, 3), (7, 7)], ids=["of the queue", "of the message"])
def test_the_answer_has_the_back_off_of_the_queue_and_the_maximum_of_attempts(
    client: Tickwheel, own: int | None, maximum: int
) -> None:
    state, retry_in_ms, max_attempts = fail(client, take(client, own))
    assert (state, max_attempts) == ("invisible", maximum)
    assert retry_in_ms is not None
    assert 2_000 <= retry_in_ms <= 4_000


def test_an_errored_message_has_no_back_off(client: Tickwheel) -> None:
    assert fail(client, take(client, 1)) == ("errored", 0, 1)


def test_the_answer_has_the_back_off_of_the_caller(client: Tickwheel) -> None:
    assert fail(client, take(client), timedelta(seconds=9)) == ("invisible", 9_000, 3)
    assert fail(client, take(client), timedelta(0)) == ("pending", 0, 3)


@pytest.mark.parametrize("client", ["grpc"], indirect=True)
@pytest.mark.parametrize("retry_in", [None, SECOND])
def test_a_service_of_an_earlier_version_sends_neither(client: Tickwheel, retry_in: timedelta | None) -> None:
    plan = client._backend.fail(take(client), "boom", retry_in, False)
    next(plan)
    with pytest.raises(StopIteration) as ended:
        plan.send(calls.FailResponse(states=[messages.STATE_INVISIBLE]))
    assert ended.value.value == ("invisible", None if retry_in is None else 1_000, 0)
