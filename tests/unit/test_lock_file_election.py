"""The election by lock file: one leader at a time, and a released lock leaves no file."""

import threading
from pathlib import Path

import pytest

from tickwheel.election import lock_file
from tickwheel.event_process import LockFileElection

pytestmark = pytest.mark.unit


def acquired(election: LockFileElection) -> lock_file.LockFileLeadership:
    leadership = election.acquire(3, threading.Event())
    assert leadership is not None
    return leadership


def test_a_released_lock_leaves_no_file(tmp_path: Path) -> None:
    leadership = acquired(LockFileElection(tmp_path / "lock"))
    assert [path.name for path in tmp_path.iterdir()] == ["lock.3"]
    leadership.release()
    leadership.release()
    assert list(tmp_path.iterdir()) == []


def test_a_waiting_process_succeeds_and_a_stopped_process_does_not(tmp_path: Path) -> None:
    first = acquired(LockFileElection(tmp_path / "lock"))
    stop = threading.Event()
    stop.set()
    assert LockFileElection(tmp_path / "lock").acquire(3, stop) is None
    following: list[lock_file.LockFileLeadership] = []
    waiting = threading.Thread(target=lambda: following.append(acquired(LockFileElection(tmp_path / "lock"))))
    waiting.start()
    first.release()
    waiting.join(10)
    [second] = following
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_a_file_left_by_a_killed_process_is_not_a_lock(tmp_path: Path) -> None:
    (tmp_path / "lock.3").touch()
    acquired(LockFileElection(tmp_path / "lock")).release()


def test_the_lock_has_one_holder_at_a_time_over_many_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_file, "RETRY_SECONDS", 0)
    holders, overlaps, turns = [0], [0], [0]

    def take_turns() -> None:
        for _ in range(200):
            leadership = acquired(LockFileElection(tmp_path / "lock"))
            holders[0] += 1
            overlaps[0] += holders[0] != 1
            turns[0] += 1
            holders[0] -= 1
            leadership.release()

    threads = [threading.Thread(target=take_turns) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (turns[0], overlaps[0]) == (1_600, 0)
    assert list(tmp_path.iterdir()) == []
