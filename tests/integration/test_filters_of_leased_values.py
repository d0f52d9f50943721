"""The pairs that filters park for a leased exclusive value are all found again once the value is free."""

from collections.abc import Callable

import pytest

from tickwheel import Message, Queue, Tickwheel

pytestmark = pytest.mark.integration

Neighbours = Callable[[str, int], list[str]]
# More than a call parks at a time, and more than a call unparks.
KINDS = 200


@pytest.fixture
def videos(tw: Tickwheel) -> Queue:
    return tw.create_queue("videos", exclusive_key="project")


@pytest.fixture
def holder(videos: Queue, neighbours: Neighbours) -> Message:
    """A leased message with one message of each kind behind its value; a filter for each kind has met its message."""
    leased, free = neighbours("videos", 2)
    videos.enqueue(id="held", metadata={"project": leased})
    [message] = videos.dequeue()
    # If no message is ready, filters do not walk, so another value of the shard has a message.
    videos.enqueue(id="free", metadata={"project": free})
    for n in range(KINDS):
        videos.enqueue(id=f"m{n}", metadata={"project": leased, "kind": str(n)})
    for n in range(KINDS):
        assert videos.dequeue(where={"kind": str(n)}) == []
    return message


def test_every_pair_of_a_leased_value_can_be_filtered_once_the_value_is_free(videos: Queue, holder: Message) -> None:
    holder.complete()
    ids = []
    # The last message of the indexes comes first: each completed message unparks the pairs parked by then.
    for n in reversed(range(KINDS)):
        for message in videos.dequeue(where={"kind": str(n)}):
            ids.append(message.id)
            message.complete()
    assert ids == [f"m{n}" for n in reversed(range(KINDS))]


def test_every_pair_of_a_leased_value_is_counted_during_and_after_the_lease(videos: Queue, holder: Message) -> None:
    assert [videos.depth({"kind": str(n)}) for n in range(KINDS)] == [1] * KINDS
    holder.complete()
    assert [videos.depth({"kind": str(n)}) for n in range(KINDS)] == [1] * KINDS
