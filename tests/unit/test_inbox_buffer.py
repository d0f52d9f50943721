"""Entries read from the inbox: when they are filed, and which timers need not be filed. Tests pass every time."""

import pytest

from tickwheel.driver import finished_leases as event_process_ended
from tickwheel.driver.finished_leases import FinishedLeases
from tickwheel.driver.inbox_buffer import HURRY_TIMERS, ROTATE_MS, Entry, InboxBuffer, timers_to_file
from tickwheel.storage.timer import Kind, Timer, generation, iter_timers, pack

pytestmark = pytest.mark.unit

NOW = 1_700_000_000_000


def timer(kind: Kind, name: str = "m", version: int = 1) -> bytes:
    return pack(Timer(NOW, 1, version, kind, name.encode()))


def entry(number: int, *far: bytes, near: tuple[bytes, ...] = ()) -> Entry:
    return Entry(b"%d-0" % number, b"".join(far), list(near), len(far) + len(near))


def unfiled(*entries: Entry) -> InboxBuffer:
    """Return a buffer with these entries, read at time 0."""
    buffer = InboxBuffer()
    for entry in entries:
        buffer.add(entry, 0)
    return buffer


def ended(*entries: Entry) -> FinishedLeases:
    """Return the leases that have ended, according to the retention timers in these entries."""
    leases = FinishedLeases()
    for entry in entries:
        for _, _, kind, own in iter_timers(entry.far):
            if kind is Kind.RETIRE:
                leases.on_finished(own)
    return leases


def filed(buffer: InboxBuffer, entries: list[Entry], ended_leases: FinishedLeases) -> bytes:
    """Return the packed timers that are filed for these entries."""
    return b"".join(timers_to_file(entries, buffer.unconfirmed, ended_leases))


# When entries are filed


def test_an_entry_is_filed_in_the_second_period_after_it_was_read() -> None:
    read = entry(1, timer(Kind.PROMOTE))
    buffer = unfiled(read)

    for moment in (ROTATE_MS - 1, ROTATE_MS, 2 * ROTATE_MS - 1):
        buffer.rotate(moment)
        assert buffer.prefix(10) == []
    buffer.rotate(2 * ROTATE_MS)

    assert buffer.prefix(10) == [read]


def test_an_entry_read_after_a_rotation_waits_for_two_more_rotations() -> None:
    first, second = entry(1, timer(Kind.PROMOTE)), entry(2, timer(Kind.PROMOTE))
    buffer = unfiled(first)
    buffer.rotate(ROTATE_MS)
    buffer.add(second, ROTATE_MS + 1)

    buffer.rotate(2 * ROTATE_MS)
    assert buffer.prefix(10) == [first]
    buffer.on_filed([first])
    buffer.rotate(3 * ROTATE_MS)

    assert buffer.prefix(10) == [second]


@pytest.mark.parametrize(("late", "is_filed"), [(ROTATE_MS - 1, False), (ROTATE_MS, True)])
def test_a_rotation_that_is_a_whole_period_late_files_everything(late: int, is_filed: bool) -> None:
    read = [entry(1, timer(Kind.PROMOTE)), entry(2, timer(Kind.PROMOTE))]
    buffer = unfiled(*read)

    buffer.rotate(ROTATE_MS + late)

    assert buffer.prefix(10) == (read if is_filed else [])


@pytest.mark.parametrize(("more", "is_filed"), [(0, False), (1, True)])
def test_with_too_many_timers_everything_is_filed_at_once(more: int, is_filed: bool) -> None:
    read = [entry(1, *[timer(Kind.PROMOTE)] * HURRY_TIMERS), entry(2, *[timer(Kind.PROMOTE)] * more)]
    buffer = unfiled(*read)

    buffer.rotate(0)

    assert buffer.prefix(2 * HURRY_TIMERS) == (read if is_filed else [])


def test_a_batch_in_progress_is_filed_before_anything_else() -> None:
    first, second, third = (entry(n, timer(Kind.PROMOTE)) for n in range(3))
    buffer = unfiled(first, second)
    buffer.rotate(2 * ROTATE_MS)
    buffer.add(third, 2 * ROTATE_MS)

    buffer.on_filed(buffer.prefix(1))
    buffer.rotate(9 * ROTATE_MS)

    assert buffer.prefix(10) == [second]


# Which timers are filed


def test_the_timer_of_a_lease_that_has_ended_is_not_filed() -> None:
    at_work, promotion = timer(Kind.EXPIRE, "at work", 2), timer(Kind.PROMOTE, version=1)
    retention = timer(Kind.RETIRE, version=3)
    read = [entry(1, promotion, timer(Kind.EXPIRE, version=2), at_work), entry(2, retention)]

    assert filed(unfiled(*read), read, ended(*read)) == promotion + at_work + retention


def test_the_lease_of_a_redriven_message_is_filed() -> None:
    retention, lease = timer(Kind.RETIRE, version=3), timer(Kind.EXPIRE, version=5)
    read = [entry(1, timer(Kind.EXPIRE, version=2)), entry(2, retention), entry(3, lease)]

    assert filed(unfiled(*read), read, ended(*read)) == retention + lease


def test_near_timers_are_filed_unless_they_are_answered() -> None:
    answered, open_one = timer(Kind.PROMOTE, "a"), timer(Kind.PROMOTE, "b")
    read = entry(1, near=(answered, open_one))
    buffer = unfiled(read)
    buffer.unconfirmed.discard(answered)

    assert filed(buffer, [read], ended()) == open_one


# Which leases have ended


@pytest.mark.parametrize(
    ("lease", "has_ended"),
    [
        (Timer(NOW, 1, 6, Kind.EXPIRE, b"m"), True),
        (Timer(NOW + 5, 1, 6, Kind.EXPIRE, b"m"), True),
        (Timer(NOW, 1, 5, Kind.EXPIRE, b"m"), False),
        (Timer(NOW, 1, 7, Kind.EXPIRE, b"m"), False),
        (Timer(NOW, 1, 8, Kind.EXPIRE, b"m"), False),
        (Timer(NOW, 2, 6, Kind.EXPIRE, b"m"), False),
        (Timer(NOW, 1, 6, Kind.EXPIRE, b"mm"), False),
        (Timer(NOW, 1, generation(1, 6), Kind.EXPIRE, b"m"), False),
    ],
)
def test_only_the_lease_of_the_version_before_has_ended(lease: Timer, has_ended: bool) -> None:
    assert ended(entry(1, timer(Kind.RETIRE, version=7))).has(pack(lease)) == has_ended


def test_a_new_lease_has_not_ended_though_a_lease_of_the_same_name_has() -> None:
    ended_leases = ended(entry(1, timer(Kind.RETIRE, version=7)))
    ended_leases.on_started(timer(Kind.EXPIRE, version=6))
    assert not ended_leases.has(timer(Kind.EXPIRE, version=6))

    ended_leases.on_finished(timer(Kind.RETIRE, version=7))
    assert ended_leases.has(timer(Kind.EXPIRE, version=6))


def test_versions_wrap_around() -> None:
    ended_leases = ended(entry(1, pack(Timer(NOW, 1, generation(3, 0x10000), Kind.RETIRE, b"m"))))

    assert ended_leases.has(pack(Timer(NOW, 1, generation(3, 0xFFFF), Kind.EXPIRE, b"m")))


def test_with_too_many_ended_leases_the_oldest_half_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_process_ended, "FINISHED_LEASES", 2)
    ended_leases = ended(*(entry(n, timer(Kind.RETIRE, f"m{n}", 3)) for n in range(5)))

    known = [ended_leases.has(timer(Kind.EXPIRE, f"m{n}", 2)) for n in range(5)]
    assert known == [False, False, True, True, True]
