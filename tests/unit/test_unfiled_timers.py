"""What was read from the inbox: when it is filed, and which timers need not be. Every moment is an argument."""

import pytest

from tickwheel.event_process.inbox import HURRY_TIMERS, ROTATE_MS, Entry, Unfiled, id_after, to_file
from tickwheel.timers import Kind, Timer, message_of, pack, split

pytestmark = pytest.mark.unit

NOW = 1_700_000_000_000


def timer(kind: Kind, name: str = "m", version: int = 1) -> bytes:
    return pack(Timer(NOW, 1, version, kind, name.encode()))


def entry(number: int, *far: bytes, near: tuple[bytes, ...] = ()) -> Entry:
    """An entry with these timers: retention timers say that the lease of their message has ended."""
    packed = b"".join(far)
    ended = [message_of(each) for _, _, kind, each in split(packed) if kind is Kind.RETIRE]
    return Entry(b"%d-0" % number, packed, list(near), len(far) + len(near), ended)


def unfiled(*entries: Entry) -> Unfiled:
    """What holds these, read at the moment 0."""
    found = Unfiled()
    for each in entries:
        found.add(each, 0)
    return found


def filed(found: Unfiled, entries: list[Entry]) -> bytes:
    """What a filing of these carries."""
    return b"".join(to_file(entries, found.unanswered, found.ended))


# When it is filed


def test_an_entry_is_filed_in_the_second_period_after_it_was_read() -> None:
    read = entry(1, timer(Kind.PROMOTE))
    found = unfiled(read)

    for moment in (ROTATE_MS - 1, ROTATE_MS, 2 * ROTATE_MS - 1):
        found.rotate(moment)
        assert found.prefix(10) == []
    found.rotate(2 * ROTATE_MS)

    assert found.prefix(10) == [read]


def test_what_is_read_after_a_rotation_waits_for_two_more() -> None:
    first, second = entry(1, timer(Kind.PROMOTE)), entry(2, timer(Kind.PROMOTE))
    found = unfiled(first)
    found.rotate(ROTATE_MS)
    found.add(second, ROTATE_MS + 1)

    found.rotate(2 * ROTATE_MS)
    assert found.prefix(10) == [first]
    found.filed([first])
    found.rotate(3 * ROTATE_MS)

    assert found.prefix(10) == [second]


@pytest.mark.parametrize(("late", "is_filed"), [(ROTATE_MS - 1, False), (ROTATE_MS, True)])
def test_a_rotation_that_comes_a_whole_period_late_files_everything(late: int, is_filed: bool) -> None:
    read = [entry(1, timer(Kind.PROMOTE)), entry(2, timer(Kind.PROMOTE))]
    found = unfiled(*read)

    found.rotate(ROTATE_MS + late)

    assert found.prefix(10) == (read if is_filed else [])


@pytest.mark.parametrize(("more", "is_filed"), [(0, False), (1, True)])
def test_with_too_many_timers_everything_is_filed_at_once(more: int, is_filed: bool) -> None:
    read = [entry(1, *[timer(Kind.PROMOTE)] * HURRY_TIMERS), entry(2, *[timer(Kind.PROMOTE)] * more)]
    found = unfiled(*read)

    found.rotate(0)

    assert found.prefix(2 * HURRY_TIMERS) == (read if is_filed else [])


def test_what_is_being_filed_is_finished_before_anything_else() -> None:
    first, second, third = (entry(n, timer(Kind.PROMOTE)) for n in range(3))
    found = unfiled(first, second)
    found.rotate(2 * ROTATE_MS)
    found.add(third, 2 * ROTATE_MS)

    found.filed(found.prefix(1))
    found.rotate(9 * ROTATE_MS)

    assert found.prefix(10) == [second]


# What is filed


def test_the_timer_of_a_lease_that_has_ended_is_not_filed() -> None:
    at_work, promotion, retention = timer(Kind.EXPIRE, "at work"), timer(Kind.PROMOTE), timer(Kind.RETIRE)
    read = [entry(1, promotion, timer(Kind.EXPIRE), at_work), entry(2, retention)]

    assert filed(unfiled(*read), read) == promotion + at_work + retention


def test_the_timer_of_a_lease_is_not_filed_where_the_retention_timer_was_read_and_is_not_filed_yet() -> None:
    lease = entry(1, timer(Kind.EXPIRE))
    found = unfiled(lease, entry(2, timer(Kind.RETIRE)))

    assert filed(found, [lease]) == b""


def test_the_lease_of_a_message_that_was_redriven_is_filed_with_its_end_before() -> None:
    retention, lease = timer(Kind.RETIRE, version=3), timer(Kind.EXPIRE, version=5)
    read = [entry(1, timer(Kind.EXPIRE, version=2)), entry(2, retention), entry(3, lease)]

    assert filed(unfiled(*read), read) == retention + lease


def test_the_lease_of_a_message_that_was_redriven_is_filed_after_its_end_was() -> None:
    finished, lease = entry(1, timer(Kind.RETIRE, version=3)), entry(2, timer(Kind.EXPIRE, version=5))
    found = unfiled(finished)
    filed(found, [finished])
    found.add(lease, ROTATE_MS)

    assert filed(found, [lease]) == lease.far


def test_near_timers_are_filed_unless_they_are_answered() -> None:
    answered, open_one = timer(Kind.PROMOTE, "a"), timer(Kind.PROMOTE, "b")
    read = entry(1, near=(answered, open_one))
    found = unfiled(read)
    found.unanswered.discard(answered)

    assert filed(found, [read]) == open_one


def test_the_inbox_is_cut_right_behind_an_entry() -> None:
    assert id_after(b"1700000000000-9") == b"1700000000000-10"
