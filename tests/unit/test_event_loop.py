"""Tasks whose outcome nobody needs, and the errors that the event loop logs."""

import asyncio
import gc
import logging

import pytest

from tickwheel.runtime.event_loop import abandon, throttle_unhandled_errors

pytestmark = pytest.mark.unit


async def fail(text: str = "") -> None:
    raise ValueError(text)


async def fail_despite_cancel() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError as error:
        raise ValueError from error


@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize("work", [fail, fail_despite_cancel])
def test_the_error_of_an_abandoned_task_is_not_logged(
    work: type[None], turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        task = asyncio.ensure_future(work())  # type: ignore[misc]
        for _ in range(turns):
            await asyncio.sleep(0)
        abandon(task)
        await asyncio.wait([task])
        await asyncio.sleep(0)

    asyncio.run(run())
    gc.collect()
    assert not caplog.records


def test_equal_unhandled_errors_are_logged_once_whatever_their_texts_and_others_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def divide(number: int) -> None:
        number // 0

    async def run() -> None:
        loop = asyncio.get_running_loop()
        throttle_unhandled_errors(loop)
        for number in range(100):
            loop.call_soon(divide, number)
            asyncio.ensure_future(fail(f"call {number}"))  # noqa: RUF006
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ZeroDivisionError, ValueError]
    assert all(record.name == "tickwheel" and record.levelname == "ERROR" for record in caplog.records)


def test_an_error_that_grpc_logs_is_logged_once_whatever_its_method(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("grpc._cython.cygrpc")

    async def run() -> None:
        throttle_unhandled_errors(asyncio.get_running_loop())
        for number in range(100):
            logger.error("the answer was not sent by method [%d]" % number)  # noqa: UP031
            logging.getLogger("other.library").error("another error")

    asyncio.run(run())
    names = [record.name for record in caplog.records]
    assert (names.count(logger.name), names.count("other.library")) == (1, 100)
