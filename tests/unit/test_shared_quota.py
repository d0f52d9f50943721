"""The limits of a token over several processes of a service."""

import os
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tickwheel import LimitExceeded, TickwheelError
from tickwheel.runtime.shared_memory import create_shared_memory
from tickwheel.service import shared_quota
from tickwheel.service.shared_quota import SharedCounters, SharedQuotas
from tickwheel.service.token_quota import TokenQuota

pytestmark = pytest.mark.unit

ROW = 7
DIGEST, OTHER = bytes([1]) * 32, bytes([2]) * 32


def quota(quotas: SharedQuotas, digest: bytes = DIGEST, rate: int = 1, burst: int = 10, waiting: int = 2) -> TokenQuota:
    made = TokenQuota("shop", quotas.counters(digest))
    made.update_limits("rights", rate, burst, waiting)
    return made


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked process, and return its exit code: 1 if LimitExceeded was raised."""
    return wait_for_child(start_child(work))


def start_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except LimitExceeded:
            os._exit(1)
        finally:
            os._exit(2)
    return child


def wait_for_child(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def memory() -> SharedQuotas:
    return SharedQuotas(2)


def member(memory: SharedQuotas, process: int) -> SharedQuotas:
    return SharedQuotas(2, process, memory.fd)


def test_the_memory_needs_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    quotas = SharedQuotas(1, 0)
    assert in_child(lambda: quota(SharedQuotas(1, 0, quotas.fd)).take(20)) == 0
    with pytest.raises(LimitExceeded):
        quota(quotas).take(1)


def test_on_other_systems_the_memory_is_a_file_without_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    fd = create_shared_memory(100_000)
    status = os.fstat(fd)
    assert (os.pread(fd, 200_000, 0), status.st_nlink) == (bytes(100_000), 0)
    assert 512 * status.st_blocks >= 100_000
    os.close(fd)


def test_without_space_the_memory_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(TickwheelError, match=r"a file of 100,000 bytes .* set TMPDIR to another directory"):
            create_shared_memory(100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_rate_of_a_token_holds_over_all_processes(memory: SharedQuotas) -> None:
    assert in_child(lambda: quota(member(memory, 0)).take(20)) == 0
    assert in_child(lambda: quota(member(memory, 1)).take(1)) == 1
    assert in_child(lambda: quota(member(memory, 1), OTHER).take(1)) == 0


def test_a_call_that_has_ended_is_charged_over_the_rate_too_and_in_all_processes(memory: SharedQuotas) -> None:
    charged, other = quota(member(memory, 0)), quota(member(memory, 1))
    charged.charge(20)
    other.charge(20)
    for one in (charged, other):
        with pytest.raises(LimitExceeded) as refused:
            one.take(1)
        # The burst is 10, and the rate is 1.
        assert 20_000 < refused.value.retry_after_ms <= 30_000


def test_two_processes_that_take_from_one_bucket_at_the_same_time_lose_nothing(
    memory: SharedQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No process goes on without the lock, however slow the machine is.
    monkeypatch.setattr(shared_quota, "_LOCK_S", 60)
    burst, takes, began = 1_000_000, 20_000, time.monotonic()
    ready_fd, fd = os.pipe()

    def take_all(process: int) -> None:
        bucket = SharedCounters(member(memory, process), ROW).make_bucket(1, burst, began)
        if process:
            os.write(fd, b"x")
        else:
            os.read(ready_fd, 1)
        for _ in range(takes):
            bucket.take(1, time.monotonic())

    child = start_child(lambda: take_all(1))
    take_all(0)
    assert wait_for_child(child) == 0
    # The bucket got back a message in each second.
    assert memory.read_bucket(ROW)[0] <= burst - 2 * takes + time.monotonic() - began


def test_the_waiting_calls_of_a_token_are_counted_over_all_processes(memory: SharedQuotas) -> None:
    first, second = (quota(member(memory, process)).wait_limit for process in range(2))
    with first.acquire(), second.acquire():
        for limit in (first, second):
            with pytest.raises(LimitExceeded, match="its limit of 2 waiting calls"), limit.acquire():
                pass
    with first.acquire(), first.acquire():
        pass


def test_the_successor_of_a_killed_process_gives_back_its_waiting_calls(memory: SharedQuotas) -> None:
    def wait_and_die() -> None:
        limit = quota(member(memory, 0)).wait_limit
        with ExitStack() as stack:
            stack.enter_context(limit.acquire())
            stack.enter_context(limit.acquire())
            os._exit(0)

    assert in_child(wait_and_die) == 0
    survivor = quota(member(memory, 1)).wait_limit
    with pytest.raises(LimitExceeded), survivor.acquire():
        pass
    member(memory, 0)
    with survivor.acquire():
        pass


def test_a_killed_process_leaves_no_lock(memory: SharedQuotas) -> None:
    def die_with_the_lock() -> None:
        with member(memory, 0).lock(3):
            os._exit(0)

    assert in_child(die_with_the_lock) == 0
    with member(memory, 1).lock(3):
        assert in_child(lambda: die_with_the_lock()) == 0


def test_tokens_beyond_the_memory_are_limited_by_each_process(
    memory: SharedQuotas, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_quota, "ROWS", 1)
    quotas = SharedQuotas(1, 0)
    quota(quotas).take(20)
    quota(quotas, OTHER).take(20)
    with pytest.raises(LimitExceeded):
        quota(quotas).take(1)
    [record] = caplog.records
    assert "each process limits further tokens separately" in record.getMessage()
    assert vars(record)["fields"] == {"event": "too many tokens"}
