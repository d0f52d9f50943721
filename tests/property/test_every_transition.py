"""A fixed sequence of calls takes every transition of the table, on the server and in the model."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.property.machine_values import key_of
from tests.property.model_messages import EnqueueArguments, Settings
from tests.property.namespace_under_test import NamespaceUnderTest, duration
from tests.support.state_table import all_transitions
from tickwheel import Message
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.property

LEASE_MS = 30_000
# A script that records no event is not in the history.
WITHOUT_EVENT = {("running", "extend", "running")}


class Sequence:
    """Makes each call on the server and in the model."""

    def __init__(self, namespace: NamespaceUnderTest) -> None:
        self.advance = namespace.advance
        self._queue = namespace.queue(0, "work")
        self._model = namespace.model.queues["work"]

    def enqueue(self, id: str, delay: int = 0) -> None:
        self._queue.enqueue(id=id, delay=duration(delay))
        self._model.enqueue([EnqueueArguments(id, delay=delay)], lambda shard: None)

    def dequeue(self) -> Message:
        [message] = self._queue.dequeue()
        self._model.lease(self._model.messages[key_of(message)], None, message.token, "")
        return message

    def complete(self) -> None:
        message = self.dequeue()
        message.complete()
        self._model.complete(key_of(message), message.token)

    def fail(self, retry_in: int = 0) -> None:
        message = self.dequeue()
        message.fail(retry_in=duration(retry_in))
        self._model.fail(key_of(message), message.token, "", retry_in)

    def fail_for_good(self) -> None:
        message = self.dequeue()
        message.fail(final=True)
        self._model.fail(key_of(message), message.token, "", 0, final=True)

    def purge(self, state: str) -> None:
        self._queue.purge([state])
        self._model.purge([state])

    def release(self) -> None:
        message = self.dequeue()
        message.release()
        self._model.release(key_of(message), message.token)

    def expire(self) -> None:
        self.dequeue()
        self.advance(LEASE_MS)

    def reschedule(self, id: str, delay: int) -> None:
        self._queue.reschedule(id, delay=duration(delay))
        self._model.reschedule((id, None), None, delay=delay)

    def cancel(self, id: str) -> None:
        self._queue.cancel(id)
        self._model.cancel((id, None), release=False)

    def redrive(self, id: str) -> None:
        self._queue.redrive(id)
        self._model.redrive((id, None))


@pytest.fixture
def under_test(tickwheel_server: PrivateServer) -> Iterator[NamespaceUnderTest]:
    queues = {"work": Settings(max_attempts=2, lease=LEASE_MS)}
    with closing(NamespaceUnderTest(tickwheel_server, 1, queues)) as namespace:
        yield namespace


def test_every_transition_of_the_table_occurs_and_no_other(under_test: NamespaceUnderTest) -> None:
    sequence = Sequence(under_test)

    sequence.enqueue("completed", delay=1)
    sequence.advance(1)
    sequence.complete()

    sequence.enqueue("errored")
    sequence.fail(retry_in=1)
    sequence.advance(1)
    sequence.fail()
    sequence.redrive("errored")
    sequence.fail(retry_in=0)
    sequence.release()
    sequence.expire()

    sequence.enqueue("cancelled")
    sequence.expire()
    for delay in (0, 1, 1, 0):
        sequence.reschedule("cancelled", delay)
    sequence.cancel("cancelled")

    sequence.enqueue("cancelled while invisible", delay=1)
    sequence.cancel("cancelled while invisible")

    sequence.enqueue("cancelled while running")
    sequence.dequeue()
    sequence.cancel("cancelled while running")

    sequence.enqueue("purged while pending")
    for state in ("completed", "cancelled", "errored", "invisible", "pending"):
        sequence.purge(state)
    sequence.enqueue("purged while invisible", delay=1)
    sequence.purge("invisible")
    sequence.enqueue("errored at the end")
    sequence.fail_for_good()
    sequence.purge("errored")
    sequence.enqueue("running at the end")
    sequence.dequeue()
    under_test.delete_and_create(0, "work")
    sequence = Sequence(under_test)
    for id in ("completed", "errored", "cancelled"):
        sequence.enqueue(id)
        if id == "completed":
            sequence.complete()
        elif id == "errored":
            sequence.fail_for_good()
        else:
            sequence.cancel(id)

    under_test.finish_everything()
    under_test.check_history()
    assert under_test.transitions() == all_transitions() - WITHOUT_EVENT
