"""What filters put aside of a leased exclusive value: all of it is found again once the value is free."""

from collections.abc import Callable

import pytest

from tickwheel import Message, Queue, Tickwheel

pytestmark = pytest.mark.integration

Neighbours = Callable[[str, int], list[str]]
# Far more than are put aside at a time, and than come back in one call.
KINDS = 200


@pytest.fixture
def videos(tw: Tickwheel) -> Queue:
    return tw.create_queue("videos", exclusive_key="project")


@pytest.fixture
def held(videos: Queue, neighbours: Neighbours) -> Message:
    """A leased message whose value has one of each kind behind it: every filter has met them, and none is for it."""
    leased, free = neighbours("videos", 2)
    videos.enqueue(id="held", metadata={"project": leased})
    [message] = videos.dequeue()
    # Where nothing at all is ready, nobody walks: another value of the shard has something.
    videos.enqueue(id="free", metadata={"project": free})
    for n in range(KINDS):
        videos.enqueue(id=f"m{n}", metadata={"project": leased, "kind": str(n)})
    for n in range(KINDS):
        assert videos.dequeue(where={"kind": str(n)}) == []
    return message


def test_every_pair_of_a_leased_value_can_be_filtered_once_the_value_is_free(videos: Queue, held: Message) -> None:
    held.complete()
    found = []
    # What comes last in the indexes first: each message that is completed brings back what is put aside by then.
    for n in reversed(range(KINDS)):
        for message in videos.dequeue(where={"kind": str(n)}):
            found.append(message.id)
            message.complete()
    assert found == [f"m{n}" for n in reversed(range(KINDS))]


def test_every_pair_of_a_leased_value_is_counted_while_it_is_leased_and_after(videos: Queue, held: Message) -> None:
    assert [videos.depth({"kind": str(n)}) for n in range(KINDS)] == [1] * KINDS
    held.complete()
    assert [videos.depth({"kind": str(n)}) for n in range(KINDS)] == [1] * KINDS
