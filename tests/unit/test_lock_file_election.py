"""The election by lock file: one leader at a time, whatever other users do, and a released lock leaves no file."""

import fcntl
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.wait_until import eventually
from tickwheel.election import lock_file
from tickwheel.embedded.file_lock import is_free
from tickwheel.event_process import LockFileElection
from tickwheel.runtime.private_file import UnsafePath

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


def test_a_leader_whose_file_was_removed_does_not_remove_the_file_of_its_successor(tmp_path: Path) -> None:
    first = acquired(LockFileElection(tmp_path / "lock"))
    (tmp_path / "lock.3").unlink()
    second = acquired(LockFileElection(tmp_path / "lock"))
    first.release()
    assert not is_free(tmp_path / "lock.3")
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


@pytest.fixture
def shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which everybody may write to. The user's folder for state is another one."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine" / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return folder


def default_election() -> tuple[LockFileElection, Path]:
    """Return the election of a process without --lock, and the path of the lock file of shard 3."""
    path = lock_file.default_lock("redis://host", "tw")
    return LockFileElection(path), path.with_name(f"{path.name}.3")


def test_the_default_lock_is_in_a_folder_of_this_user(shared_folder: Path) -> None:
    _, path = default_election()
    assert path.parent == shared_folder.parent / "mine" / "state" / "tickwheel" / "locks"
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("has_runtime_folder", [True, False])
def test_without_a_folder_for_state_the_default_lock_is_in_another_folder_of_this_user(
    shared_folder: Path, monkeypatch: pytest.MonkeyPatch, has_runtime_folder: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    expected = shared_folder / f"tickwheel-{os.geteuid()}"
    if has_runtime_folder:
        expected = shared_folder.parent / "run" / "tickwheel"
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(expected.parent))
    _, path = default_election()
    assert path.parent == expected
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_another_user_could_enter_is_not_used_for_locks(
    shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    (shared_folder / f"tickwheel-{os.geteuid()}").mkdir()
    with pytest.raises(UnsafePath, match=r"no folder for the lock files.*must be a folder with owner.*--lock FILE"):
        default_election()


def test_a_leader_excludes_processes_of_the_earlier_version(shared_folder: Path) -> None:
    election, path = default_election()
    leadership = acquired(election)
    former = shared_folder / path.name
    assert (path.exists(), is_free(former)) == (True, False)
    leadership.release()
    assert (path.exists(), former.exists()) == (False, False)


def test_a_process_waits_for_a_leader_of_the_earlier_version(shared_folder: Path) -> None:
    election, path = default_election()
    earlier = acquired(LockFileElection(shared_folder / path.name.removesuffix(".3")))
    stop = threading.Event()
    waiting = threading.Thread(target=lambda: elected.append(election.acquire(3, stop)))
    elected: list[lock_file.LockFileLeadership | None] = []
    waiting.start()
    eventually(path.exists, "the process holds the lock of its own version")
    stop.set()
    waiting.join(10)
    assert elected == [None]
    assert is_free(path)

    stop.clear()
    waiting = threading.Thread(target=lambda: elected.append(election.acquire(3, stop)))
    waiting.start()
    earlier.release()
    waiting.join(10)
    assert elected[1] is not None
    elected[1].release()


def hard_link(former: Path) -> None:
    (former.parent.parent / "file").touch()
    former.hardlink_to(former.parent.parent / "file")


def file_of_another_user(former: Path) -> None:
    former.touch()
    if os.geteuid() == 0:
        os.chown(former, 12_345, 12_345)
    else:
        # Only root can make a file of another user. A file that others can change is refused by the same check.
        former.chmod(0o666)


FOREIGN: list[Callable[[Path], None]] = [
    lambda former: former.symlink_to("/etc/passwd"),
    lambda former: former.mkdir(),
    hard_link,
    file_of_another_user,
]


@pytest.mark.parametrize("make", FOREIGN, ids=["link", "folder", "hard-link", "another-user"])
def test_a_former_lock_that_another_user_made_does_not_stop_the_timers(
    shared_folder: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    election, path = default_election()
    former = shared_folder / path.name
    make(former)
    # The other user holds the lock forever.
    held = os.open("/etc/passwd" if former.is_symlink() else former, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)

    acquired(election).release()
    acquired(election).release()

    os.close(held)
    [record] = caplog.records
    assert "the lock file of earlier versions of Tickwheel is ignored" in record.getMessage()
    assert str(former) in record.getMessage()
    assert os.path.lexists(former)


def test_a_lock_file_that_others_can_change_is_an_error_if_the_user_chose_it(tmp_path: Path) -> None:
    (tmp_path / "lock.3").touch()
    (tmp_path / "lock.3").chmod(0o666)
    with pytest.raises(UnsafePath, match="so other users can change it"):
        acquired(LockFileElection(tmp_path / "lock"))
