"""The calls that a program may repeat, by each row of the table in the guide."""

from datetime import timedelta

import pytest

from tickwheel import InvalidTransition, LeaseLost, NewMessage, Tickwheel
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

HOUR = timedelta(hours=1)


def test_calls_that_the_guide_permits_to_repeat_change_nothing_when_repeated(
    tw: Tickwheel, clock: VirtualClock
) -> None:
    queue = tw.create_queue("q", max_attempts=1)
    first = queue.enqueue(b"a", id="a")
    assert queue.enqueue(b"a", id="a").id == first.id
    assert queue.enqueue(b"a").id != queue.enqueue(b"a").id
    [one] = queue.dequeue(request_id="r:1")
    [again] = queue.dequeue(request_id="r:1")
    assert again.token == one.token
    assert queue.counts()["running"] == 1
    until = one.extend(HOUR)
    assert one.extend(HOUR) == until
    for _ in range(2):
        one.complete()
        queue.complete_many([one])
    [other] = queue.dequeue()
    assert other.fail("why") == "errored"
    with pytest.raises(LeaseLost):
        other.fail("why")
    queue.redrive(other.id)
    with pytest.raises(InvalidTransition):
        queue.redrive(other.id)
    for _ in range(2):
        queue.cancel(other.id)
        queue.cancel_many([other.id])
        queue.block()
    assert queue.config().enqueue_blocked
    for _ in range(2):
        queue.unblock()
        tw.create_queue("q", max_attempts=1)
    later = queue.enqueue(b"later", delay=HOUR)
    due = clock.now + 2 * HOUR
    versions = [queue.reschedule(later.id, due=due).version for _ in range(2)]
    assert versions == [2, 3]
    assert queue.get(later.id).due == due
    clock.advance(timedelta(minutes=1))
    queue.reschedule(later.id, delay=HOUR)
    assert queue.get(later.id).due == clock.now + HOUR


@pytest.mark.parametrize("consistency", ["heads", "exact"])
@pytest.mark.parametrize("deadlines", [3, 300], ids=["ties", "distinct"])
@pytest.mark.parametrize("where", [None, {"odd": "1"}], ids=["all", "filter"])
def test_a_repeated_request_returns_its_messages_in_the_same_order(
    tw: Tickwheel, where: dict[str, str] | None, deadlines: int, consistency: str
) -> None:
    queue = tw.create_queue("q")
    queue.enqueue_many(
        NewMessage(deadline=timedelta(seconds=n * 7919 % deadlines), metadata={"odd": str(n % 2)}) for n in range(300)
    )
    other = tw.queue("q")
    for n in range(1, 11):
        options = {"where": where, "consistency": consistency, "request_id": f"r:{n}"}
        first = queue.dequeue(10, **options)  # type: ignore[arg-type]
        # A dequeue by another client changes the cached heads of the shards.
        other.dequeue(3)
        again = queue.dequeue(10, **options)  # type: ignore[arg-type]
        assert len(first) == 10
        assert [message.id for message in again] == [message.id for message in first]
