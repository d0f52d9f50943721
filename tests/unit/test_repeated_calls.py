"""Rejected calls that repeat: their number is logged after each pause, and many callers do not fill the log."""

import asyncio
import logging
from typing import Any

import pytest

from tests.support.wait_until import eventually_in_task
from tickwheel.service import repeated_calls
from tickwheel.service.repeated_calls import CallKind, RepeatedCalls

pytestmark = pytest.mark.unit


def kind(caller: str, code: str = "NOT_FOUND") -> CallKind:
    return CallKind(logging.INFO, "GetMessage", code, caller)


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records]


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tickwheel.service")


def test_the_number_of_equal_calls_is_logged_after_a_pause_and_the_next_call_has_a_line_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(repeated_calls, "PAUSE_S", 0.01)

    async def repeat() -> None:
        repeated = RepeatedCalls()
        assert [repeated.is_repeated(kind("token 'a'")) for _ in range(3)] == [False, True, True]
        assert not repeated.is_repeated(kind("token 'a'", "UNAVAILABLE"))
        await eventually_in_task(lambda: caplog.records, "the number is logged")
        # A pause without such a call ends the count.
        await eventually_in_task(lambda: not repeated._counts, "nothing remains")
        assert not repeated.is_repeated(kind("token 'a'"))

    asyncio.run(repeat())
    assert fields(caplog) == [
        {"event": "repeated calls", "method": "GetMessage", "code": "NOT_FOUND", "caller": "token 'a'", "count": 2}
    ]


def test_ten_thousand_callers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def call() -> int:
        repeated = RepeatedCalls()
        lines = sum(not repeated.is_repeated(kind(f"address {n}")) for n in range(10_000))
        repeated.close()
        return lines

    assert asyncio.run(call()) == 1_001
    [rest] = fields(caplog)
    assert (rest["caller"], rest["count"]) == ("other callers", 8_999)
