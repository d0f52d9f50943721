"""What sending a call returns is its handle: cancel, reschedule, read the state, and wait for the result."""

import asyncio
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tickwheel import EnqueueResult, InvalidArgument, InvalidTransition, MessageNotFound, NoResult, ResultExpired
from tickwheel.tasks import EnqueuedCall, Reject, Skip, TaskApp, TaskHandle
from tickwheel.testing import VirtualClock
from tickwheel.testing.task_tester import TaskTester

pytestmark = pytest.mark.integration

HOUR = timedelta(hours=1)
app = TaskApp()
app.queue("encode", exclusive_key="project")


@dataclass
class Invoice:
    number: int


@app.task(queue="mail")
def send(user: int) -> str:
    return f"welcome {user}"


@app.task(queue="mail")
def bill(user: int) -> Invoice:
    return Invoice(user)


@app.task(queue="mail")
def notify(user: int) -> None:
    if user < 0:
        raise Reject("no such user")


@app.task(queue="mail")
def render(characters: int) -> str:
    return "x" * characters


@app.task(queue="mail")
def skip() -> None:
    raise Skip("nothing to do")


@app.task(queue="encode", metadata=["project"])
def encode(project: str) -> str:
    return project


@pytest.fixture
def tester(tickwheel_tasks: Callable[[TaskApp], TaskTester]) -> TaskTester:
    return tickwheel_tasks(app)


@pytest.mark.usefixtures("tester")
def test_a_sent_call_is_an_enqueue_result_and_its_state_can_be_read_again() -> None:
    sent = send.later(HOUR, 7)
    assert isinstance(sent, EnqueueResult)
    assert isinstance(sent, EnqueuedCall)
    assert (sent.state, sent.created) == ("invisible", True)
    assert sent == EnqueueResult(sent.id, "invisible", True)
    assert EnqueueResult(sent.id, "invisible", True) == sent
    assert len({sent, EnqueueResult(sent.id, "invisible", True)}) == 1
    assert f"{sent.state}" == "invisible"
    assert sent.state() == "invisible"
    sent.cancel()
    assert sent.state == "invisible"
    assert sent.state() == "cancelled"


@pytest.mark.usefixtures("tester")
def test_a_pickled_call_is_an_enqueue_result_without_a_client() -> None:
    sent = send.now(7)
    for copied in (pickle.loads(pickle.dumps(sent)), deepcopy(sent)):
        assert type(copied) is EnqueueResult
        assert type(copied.state) is str
        assert copied == sent


def test_a_cancelled_call_does_not_run(tester: TaskTester) -> None:
    sent = send.later(900, 17)
    assert sent.cancel().state == "cancelled"
    with pytest.raises(NoResult, match="was cancelled") as refused:
        sent.result()
    assert refused.value.state == "cancelled"
    assert tester.advance(HOUR) == []


def test_a_call_is_cancelled_by_its_id(tester: TaskTester) -> None:
    send.with_options(id="order-17").later(900, 17)
    handle = send.handle("order-17")
    assert isinstance(handle, TaskHandle)
    assert handle.state() == "invisible"
    handle.cancel()
    assert tester.advance(HOUR) == []
    with pytest.raises(MessageNotFound):
        send.handle("order-18").cancel()


def test_a_rescheduled_call_runs_at_its_new_time(tester: TaskTester, tickwheel_clock: VirtualClock) -> None:
    sent = send.later(HOUR, 7)
    assert sent.reschedule(delay=60).at == tickwheel_clock.now + timedelta(minutes=1)
    assert tester.advance(59) == []
    assert len(tester.advance(1)) == 1
    with pytest.raises(InvalidTransition):
        sent.reschedule(delay=60)


def test_a_result_has_the_return_type_of_the_task(tester: TaskTester) -> None:
    text, invoice = send.now(7), bill.now(8)
    tester.run_due()
    assert text.result() == "welcome 7"
    assert invoice.result() == Invoice(8)
    assert bill.handle(invoice.id).result() == Invoice(8)


def test_without_a_result_the_error_names_the_reason(tester: TaskTester) -> None:
    waiting, large, skipped, failed = send.later(HOUR, 1), render.now(3_000), skip.now(), notify.now(-1)
    tester.run_due()
    for call, state, reason in (
        (waiting, "invisible", "has not ended, and is invisible: pass `wait`"),
        (large, "completed", "stored no result: the result had more than 1 KiB"),
        (skipped, "completed", "stored no result: .* the task was skipped"),
        (failed, "errored", "failed: rejected: no such user"),
    ):
        with pytest.raises(NoResult, match=reason) as refused:
            call.result()
        assert refused.value.state == state
    assert refused.value.error == "rejected: no such user"


def test_the_result_of_a_task_that_returns_none_is_none(tester: TaskTester) -> None:
    sent = notify.now(2)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sent.result, wait=60)
        [outcome] = tester.run_due()
        assert waiting.result(30) is None
    # Tests that compare the outcome see no difference.
    assert outcome.result is None


def test_after_the_retention_the_result_has_expired(tester: TaskTester) -> None:
    sent = send.now(7)
    tester.run_due()
    tester.advance(HOUR)
    with pytest.raises(ResultExpired, match="its retention is over"):
        sent.result()
    with pytest.raises(ResultExpired):
        send.handle("never sent").result(wait=60)


def test_after_the_retention_of_a_cancelled_call_the_error_names_the_retention(tester: TaskTester) -> None:
    sent = send.later(HOUR, 7)
    sent.cancel()
    assert sent.state() == "cancelled"
    assert tester.advance(HOUR) == []
    with pytest.raises(MessageNotFound, match=r"its retention is over.* 10m after the end .* by the clock of a test"):
        sent.state()


def test_a_call_waits_for_its_result(tester: TaskTester) -> None:
    sent = send.now(7)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sent.result, wait=60)
        tester.run_due()
        assert waiting.result(30) == "welcome 7"
    later = send.later(HOUR, 8)
    with pytest.raises(NoResult, match="is still invisible after 50 ms"):
        later.result(wait=0.05)
    with pytest.raises(NoResult, match="is still invisible after 50 ms"):
        later.result(wait=timedelta(milliseconds=50))


def test_a_call_of_an_exclusive_queue_knows_its_value(tester: TaskTester) -> None:
    sent = encode.later(HOUR, "p1")
    assert sent.exclusive_value == "p1"
    assert sent.state() == "invisible"
    assert encode.handle(sent.id, "p1").cancel().state == "cancelled"
    with pytest.raises(InvalidArgument, match="pass exclusive_value"):
        encode.handle(sent.id).state()
    assert tester.advance(2 * HOUR) == []


def test_the_methods_have_twins_for_asyncio(tester: TaskTester) -> None:
    async def use() -> None:
        sent = await send.alater(HOUR, 7)
        assert await sent.astate() == "invisible"
        assert (await sent.areschedule(delay=60)).state == "invisible"
        with pytest.raises(NoResult):
            await sent.aresult()
        assert (await send.handle(sent.id).acancel()).state == "cancelled"
        done = await send.anow(8)
        await asyncio.to_thread(tester.run_due)
        assert await done.aresult(wait=30) == "welcome 8"
        with pytest.raises(ResultExpired):
            await send.handle("never sent").aresult()
        await app.aclose()

    asyncio.run(use())


@pytest.mark.usefixtures("tester")
def test_an_id_is_checked() -> None:
    with pytest.raises(InvalidArgument, match="id must be"):
        send.handle("")
