"""The lines of a process of last resort that begins to drive, and that no longer drives, and which lines it may log."""

import logging
import resource
import sys

import pytest

from tickwheel.errors import TickwheelError
from tickwheel.event_process.driving_log import DrivingLog
from tickwheel.event_process.main import _should_log, raise_fd_limit
from tickwheel.runtime.log_fields import log_fields

pytestmark = pytest.mark.unit


def test_each_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    led: dict[int, int] = {}
    log = DrivingLog("tw", 4, lambda: led)
    with caplog.at_level(logging.INFO, "tickwheel.driving"):
        log.check()
        assert caplog.messages == []
        led |= {0: 7, 2: 7}
        log.check()
        log.check()
        led.clear()
        log.close()
    assert caplog.messages == [
        "this program now drives namespace tw: 2 of 4 shards",
        "this program no longer drives namespace tw",
    ]
    assert [vars(record)["fields"]["event"] for record in caplog.records] == ["drives", "no longer drives"]
    assert all(map(_should_log, caplog.records))


def test_another_number_of_shards_is_logged_once_it_no_longer_changes(caplog: pytest.LogCaptureFixture) -> None:
    led: dict[int, int] = {}
    log = DrivingLog("tw", 4, lambda: led)
    with caplog.at_level(logging.INFO, "tickwheel.driving"):
        for shard in range(4):
            led[shard] = 7
            log.check()
        assert caplog.messages == ["this program now drives namespace tw: 1 of 4 shards"]
        log.check()
        log.check()
        del led[0]
        log.check()
        # For a short time, another process drove the shard.
        led[0] = 8
        log.check()
        log.check()
    assert caplog.messages[1:] == ["this program drives namespace tw with 4 of 4 shards"]


def make_record(level: int, error: Exception | None = None, **fields: object) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, None)
    record = logging.LogRecord("tickwheel.driving", level, "", 0, "text", None, exc_info)
    vars(record).update(fields)
    return record


def test_no_other_line_below_a_warning_reaches_the_log_of_the_program() -> None:
    assert not _should_log(make_record(logging.INFO))
    assert not _should_log(make_record(logging.INFO, **log_fields("ended")))
    assert _should_log(make_record(logging.WARNING))
    assert not _should_log(make_record(logging.ERROR, TickwheelError("the error that ends the program")))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may have a lower limit than the one that they name")
def test_an_event_process_may_open_as_many_files_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        raise_fd_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
