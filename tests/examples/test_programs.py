"""Every program in examples/ runs and prints the documented lines."""

import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.examples

EXAMPLES = Path(__file__).parents[2] / "examples"


def lines(program: str) -> list[str]:
    """Return the lines that a program prints."""
    done = subprocess.run([sys.executable, EXAMPLES / program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()


def test_every_program_has_a_test() -> None:
    tested = {"order_timeout.py", "reminders.py", "exclusive_encode.py", "cron_reminder.py", "celery_migration.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_unpaid_orders_time_out() -> None:
    printed = lines("order_timeout.py")
    timed_out = sorted(line for line in printed if "not paid in time" in line)
    assert [line.split()[0] for line in timed_out] == ["order-3", "order-5"]
    assert printed[-1] == "timed out: 2, paid: 3"


def test_reminders_come_before_the_meeting_and_move_with_it() -> None:
    reminded = [line.split(": the ")[1].split()[0] for line in lines("reminders.py")[1:]]
    assert reminded == ["review"] * 2 + ["standup"] * 3


def test_no_two_videos_of_a_project_are_encoded_at_once() -> None:
    printed = lines("exclusive_encode.py")
    assert printed[-1] == "6 videos encoded; two of one project at the same time: 0 times"
    encoded = [line.split()[-1] for line in printed[:-1]]
    small_alps = [video for video in encoded if video in ("alps-1", "alps-2")]
    assert small_alps == ["alps-2", "alps-1"]
    assert {line.split()[0] for line in printed if "alps-3" in line or "coast-2" in line} == {"worker-3"}


def test_a_standup_every_second_sends_one_reminder_each_time() -> None:
    printed = lines("cron_reminder.py")
    assert len([line for line in printed if line.startswith("cron_reminder.remind cron 30 9 * * MON-FRI")]) == 2
    times = [
        datetime.strptime(line, "here: the standup of %H:%M:%S UTC begins").replace(tzinfo=UTC) for line in printed[3:]
    ]
    assert {(later - earlier).seconds for earlier, later in pairwise(times)} == {1}
    assert len(times) == 3


def test_a_celery_task_moves_by_shares_while_it_is_in_use() -> None:
    none, half, all_, end = lines("celery_migration.py")
    assert none == "share 0: 20 calls run by Celery, 0 by Tickwheel"
    assert half.startswith("share 0.5: ")
    assert all_ == "share 1: 0 calls run by Celery, 20 by Tickwheel"
    assert end == "60 calls, each run once: True"
