"""Times and states in tables."""

import re
import sys
from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from tickwheel.cli.message_tables import format_relative, format_state, format_time
from tickwheel.cli.tables import print_table

pytestmark = pytest.mark.unit

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("distance", "text"),
    [
        (timedelta(minutes=14), "in 14m"),
        (timedelta(hours=2, minutes=5, seconds=7), "in 2h5m"),
        (timedelta(days=3, hours=4), "in 3d4h"),
        (timedelta(days=30, seconds=1), "in 30d"),
        (timedelta(seconds=1), "in 1s"),
        (timedelta(milliseconds=999), "now"),
        (-timedelta(milliseconds=999), "now"),
        (-timedelta(minutes=1, seconds=1), "1m1s ago"),
        (-timedelta(days=400), "400d ago"),
    ],
)
def test_a_relative_time_has_its_two_largest_units(distance: timedelta, text: str) -> None:
    assert format_relative(NOW + distance, NOW) == text


def test_times_are_relative_and_states_are_coloured_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert format_time(NOW + timedelta(hours=1), NOW) == "2026-05-17 13:00:00.000 UTC"
    assert format_state("errored") == "errored"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert format_time(NOW + timedelta(hours=1), NOW) == "in 1h"
    assert format_state("errored") == Text("errored", style="bold red")


def printed_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    states = ("invisible", "pending", "running", "completed", "cancelled", "errored")
    print_table(("queue", *states, "late p50", "late p99"), [("orders", 1, 2, 3, 4, 5, 6_000, "", "7 ms")], states)
    return [" ".join(line.split()) for line in re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()]


def test_a_table_that_does_not_fit_the_terminal_has_its_cells_below_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed_on_a_terminal(monkeypatch, capsys, 80) == [
        *("orders", "invisible 1", "pending 2", "running 3", "completed 4", "cancelled 5", "errored 6,000"),
        "late p99 7 ms",
    ]


def test_a_table_that_fits_the_terminal_has_one_line_for_each_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed_on_a_terminal(monkeypatch, capsys, 120)
    assert "orders 1 2 3 4 5 6,000 7 ms" in lines
