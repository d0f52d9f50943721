"""The test kit for tasks: tests inspect the calls that were sent, and run due calls in their own process."""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from datetime import timedelta

import pytest

from tickwheel import Tickwheel
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks import Middleware, Outcome, Reject, Retry, RetryLater, Run, Skip, Task, TaskApp, current
from tickwheel.tasks.run_context import running_task
from tickwheel.testing import VirtualClock
from tickwheel.testing.task_tester import TaskTester, open_task_tester

pytestmark = pytest.mark.integration

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
app = TaskApp()
app.queue("encode", exclusive_key="project")
effects: list[str] = []
contexts: list[Context] = []
INTERRUPTS = {"Ctrl-C": KeyboardInterrupt(), "pytest.fail": pytest.fail.Exception("too slow")}


@app.task(queue="mail", metadata=["user"])
def send(user: int, template: str = "welcome") -> str:
    effects.append(f"{template} {user}")
    return template


@app.task(queue="mail")
async def send_async(user: int) -> None:
    await asyncio.sleep(0)
    effects.append(f"async {current().task.name.rpartition('.')[2]} {user}")


@app.task(queue="mail")
def keep_context() -> None:
    contexts.append(copy_context())
    effects.append(f"task {running_task()}")


@app.task(queue="mail", max_attempts=3, retry=Retry(MINUTE, MINUTE))
def flaky(fails: int) -> None:
    if current().message.attempt <= fails:
        raise ConnectionError("no route")


@app.task
def chain(left: int) -> None:
    effects.append(f"left {left}")
    if left:
        chain.later(DAY, left - 1)


@app.task
def forever() -> None:
    forever.now()


@app.task
def interrupt(error: str) -> None:
    raise INTERRUPTS[error]


@app.task
async def interrupt_async(error: str) -> None:
    raise INTERRUPTS[error]


@app.task
def close_app(user: int) -> str:
    """Closes the app, and then uses a queue that it opened before."""
    mail = app.declared("mail")
    with app:
        send.now(user)
    return str(mail.counts()["pending"])


@app.task
async def close_app_async(user: int) -> str:
    mail = await app._clients.current.ensure_queue_async("mail")
    async with app:
        await send.anow(user)
    return str((await mail.counts())["pending"])


@app.task(queue="encode", metadata=["project"])
def encode(project: str) -> None: ...


@app.task(queue="mail")
def cancel(id: str) -> None:
    app.declared("mail").cancel(id)


@app.task(queue="mail")
def cancel_itself() -> str:
    app.declared("mail").cancel(current().message.id)
    effects.append(f"lost: {current().is_lost()}")
    return "of no consequence"


@app.task(queue="mail")
async def cancel_itself_async() -> str:
    await asyncio.to_thread(app.declared("mail").cancel, current().message.id)
    effects.append(f"lost: {current().is_lost()}")
    return "of no consequence"


@app.task(queue="encode", metadata=["project"])
def cancel_itself_exclusively(project: str) -> None:
    app.declared("encode").cancel(current().message.id, project)
    effects.append(f"lost: {current().is_lost()}")


@app.task(queue="mail")
def delete_queue() -> None:
    app.tickwheel.delete_queue("mail", purge=True)
    effects.append(f"lost: {current().is_lost()}")


@pytest.fixture
def tasks(tickwheel_tasks: Callable[[TaskApp], TaskTester]) -> Iterator[TaskTester]:
    effects.clear()
    yield tickwheel_tasks(app)
    app.middleware.clear()


def test_sent_tasks_are_visible_with_their_arguments_and_due_times(tasks: TaskTester, clock: VirtualClock) -> None:
    send.later(timedelta(days=30), user=7)
    send.now(8, template="hello")
    chain.at(clock.now + DAY, 2)
    assert [(sent_task.task.rpartition(".")[2], sent_task.arguments, sent_task.due) for sent_task in tasks.sent()] == [
        ("send", {"user": 8, "template": "hello"}, clock.now),
        ("chain", {"left": 2}, clock.now + DAY),
        ("send", {"user": 7}, clock.now + timedelta(days=30)),
    ]
    assert [sent_task.metadata for sent_task in tasks.sent(send)] == [{"user": "8"}, {"user": "7"}]


def test_nothing_runs_before_it_is_due(tasks: TaskTester) -> None:
    send.later(timedelta(days=30), user=7)
    assert tasks.run_due() == []
    assert tasks.advance(timedelta(days=30) - timedelta(milliseconds=1)) == []
    assert [outcome.result for outcome in tasks.advance(timedelta(milliseconds=1))] == ['"welcome"']
    assert effects == ["welcome 7"]
    assert tasks.sent() == []


def test_async_tasks_run_too_and_can_be_sent_from_async_code(tasks: TaskTester) -> None:
    async def handle_request() -> None:
        async with app:
            await send_async.anow(7)
            await send_async.alater(DAY, 8)

    asyncio.run(handle_request())
    tasks.advance(2 * DAY)
    assert effects == ["async send_async 7", "async send_async 8"]


def test_code_that_goes_on_after_its_task_does_not_belong_to_the_task(tasks: TaskTester) -> None:
    id = keep_context.with_options(id="kept").now().id
    tasks.run_due()
    fields = {"queue": "mail", "id": id, "attempt": 1, "task": keep_context.name}
    assert effects == [f"task {fields}"]
    # For example, an asyncio task that the task has created keeps the context of the task.
    assert contexts.pop().run(running_task) is None


@pytest.mark.parametrize("task", [close_app, close_app_async], ids=["sync", "async"])
def test_a_task_that_closes_its_app_leaves_the_client_open_as_in_a_worker(
    tasks: TaskTester, task: Task[..., str]
) -> None:
    task.now(7)
    assert [outcome.error for outcome in tasks.run_due()] == [None, None]
    assert effects == ["welcome 7"]


def test_the_clients_of_an_app_are_closed_at_the_end_of_its_test(tickwheel: Tickwheel, clock: VirtualClock) -> None:
    with open_task_tester(app, tickwheel, clock) as tasks:
        client = app.tickwheel
        send_async.now(7)
        tasks.run_due()
        app.close()
        assert app.tickwheel is client
    with pytest.raises(TickwheelError, match="is closed"):
        client.queues()


def test_a_task_sent_by_a_task_runs_at_its_own_time(tasks: TaskTester, clock: VirtualClock) -> None:
    chain.now(3)
    tasks.run_due()
    assert effects == ["left 3"]
    tasks.advance(2 * DAY)
    assert effects == ["left 3", "left 2", "left 1"]
    assert [sent_task.due for sent_task in tasks.sent()] == [clock.now + DAY]


def test_failures_are_outcomes_and_are_retried(tasks: TaskTester) -> None:
    result = flaky.now(2)
    assert [outcome.error for outcome in tasks.run_due()] == ["ConnectionError: no route"]
    assert [outcome.error for outcome in tasks.advance(2 * MINUTE)] == ["ConnectionError: no route", None]
    assert app.tickwheel.queue("mail").get(result.id).state == "completed"
    result = flaky.now(3)
    assert len(tasks.advance(3 * MINUTE)) == 3
    assert app.tickwheel.queue("mail").get(result.id).state == "errored"


def test_an_endless_chain_of_tasks_is_reported(tasks: TaskTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tickwheel.testing.task_tester._MAX_RUNS", 50)
    forever.now()
    with pytest.raises(TickwheelError, match="and more are due: check for tasks that enqueue each other"):
        tasks.run_due()


def test_calls_with_the_same_id_are_one_call(tasks: TaskTester) -> None:
    welcome = send.with_options(id="welcome-7")
    assert [welcome.later(DAY, 7).created for _ in range(2)] == [True, False]
    assert len(tasks.advance(2 * DAY)) == 1


def test_the_app_creates_its_queues_as_declared(tasks: TaskTester) -> None:
    encode.now("p1")
    assert app.tickwheel.queue("encode").config().exclusive_key == "project"
    assert tasks.sent()[0].metadata == {"project": "p1"}


def test_arguments_that_do_not_match_send_nothing(tasks: TaskTester) -> None:
    with pytest.raises(InvalidArgument, match="Expected `int`"):
        send.now("seven")  # type: ignore[arg-type]
    assert tasks.sent() == []


class RecordingMiddleware(Middleware):
    """Records its calls, and raises ``veto`` before a task."""

    def __init__(self, name: str, veto: Exception | None = None) -> None:
        self.name, self.veto = name, veto
        self.notes: list[str] = []

    def before_task(self, run: Run) -> None:
        self.notes.append(f"{self.name} before {run.arguments}")
        if self.veto is not None:
            raise self.veto

    def after_task(self, run: Run, outcome: Outcome) -> None:
        self.notes.append(f"{self.name} after {outcome.error}")
        raise RuntimeError("of no consequence")

    def before_batch(self, queue: str, messages: "list[LeasedMessage]") -> None:  # type: ignore[override]
        raise AssertionError("the test kit has no batches")


def test_middleware_wraps_tasks_in_the_order_of_declaration(tasks: TaskTester) -> None:
    outer, inner = RecordingMiddleware("outer"), RecordingMiddleware("inner")
    inner.notes = outer.notes
    app.add_middleware(outer)
    app.add_middleware(inner)
    send.now(7)
    tasks.run_due()
    assert outer.notes == [
        "outer before {'user': 7}",
        "inner before {'user': 7}",
        "inner after None",
        "outer after None",
    ]
    assert effects == ["welcome 7"]


@pytest.mark.parametrize(
    ("veto", "state"),
    [
        (Skip(), "completed"),
        (Reject("blacklisted"), "errored"),
        (RetryLater(DAY), "invisible"),
        (ValueError("broken"), "invisible"),
    ],
    ids=["skip", "reject", "later", "error"],
)
def test_middleware_may_veto(tasks: TaskTester, veto: Exception, state: str) -> None:
    app.add_middleware(RecordingMiddleware("veto", veto))
    result = send.now(7)
    tasks.run_due()
    assert effects == []
    assert app.tickwheel.queue("mail").get(result.id).state == state


def test_a_task_that_another_task_cancels_does_not_run(tasks: TaskTester) -> None:
    cancel.now("reminder-7")
    send.with_options(id="reminder-7").now(7)
    send.now(8)
    assert [outcome.error for outcome in tasks.run_due()] == [None, None]
    assert effects == ["welcome 8"]
    assert app.tickwheel.queue("mail").get("reminder-7").state == "cancelled"


@pytest.mark.parametrize("task", [cancel_itself, cancel_itself_async], ids=["sync", "async"])
def test_a_task_that_is_cancelled_while_it_runs_stays_cancelled_and_the_others_run(
    tasks: TaskTester, task: Task[[], str]
) -> None:
    result = task.now()
    send.now(8)
    assert [outcome.error for outcome in tasks.run_due()] == [None, None]
    assert effects == ["lost: True", "welcome 8"]
    assert app.tickwheel.queue("mail").get(result.id).state == "cancelled"


def test_a_task_of_an_exclusive_queue_notices_its_cancellation_and_frees_its_value(tasks: TaskTester) -> None:
    cancel_itself_exclusively.now("p1")
    encode.now("p1")
    assert len(tasks.run_due()) == 2
    assert effects == ["lost: True"]


def test_a_task_that_is_not_cancelled_has_its_lease(tasks: TaskTester) -> None:
    lost: list[bool] = []

    class ReadingMiddleware(Middleware):
        def before_task(self, run: Run) -> None:
            lost.append(run.is_lost())

    app.add_middleware(ReadingMiddleware())
    flaky.now(1)
    tasks.advance(2 * MINUTE)
    assert lost == [False, False]


def test_a_task_that_deletes_its_queue_is_no_error(tasks: TaskTester) -> None:
    delete_queue.now()
    send.now(7)
    assert [outcome.error for outcome in tasks.run_due()] == [None]
    assert effects == ["lost: True"]


def test_a_blocked_queue_is_skipped_until_it_is_unblocked(tasks: TaskTester) -> None:
    send.now(7)
    chain.now(0)
    app.declared("mail").block(enqueue=False)
    assert len(tasks.advance(DAY)) == 1
    assert [sent_task.arguments for sent_task in tasks.sent()] == [{"user": 7}]
    app.declared("mail").unblock()
    tasks.run_due()
    assert effects == ["left 0", "welcome 7"]


def test_if_the_queue_of_the_schedules_is_blocked_the_other_tasks_run(
    tickwheel_tasks: Callable[[TaskApp], TaskTester],
) -> None:
    effects.clear()
    scheduled = TaskApp()

    @scheduled.task
    def note(text: str) -> None:
        effects.append(text)

    scheduled.every(MINUTE, note.call("by schedule"), name="minutely")
    tasks = tickwheel_tasks(scheduled)
    tasks.run_due()
    queue = scheduled.declared(scheduled.schedule_queue)
    queue.block()
    note.now("by a call")
    tasks.advance(2 * MINUTE)
    assert effects == ["by a call"]
    queue.unblock()
    tasks.run_due()
    assert effects[1:2] == ["by schedule"]


def test_messages_that_are_no_calls_of_the_app_are_not_listed_and_fail(tasks: TaskTester) -> None:
    send.now(7)
    payloads = [b"\xff", b"{}", b'{"task": "of another app"}', b'{"task": "%b"}' % send.name.encode()]
    for payload in payloads:
        app.declared("mail").enqueue(payload)
    assert [sent_task.arguments for sent_task in tasks.sent()] == [{"user": 7}]
    assert [sent_task.arguments for sent_task in tasks.sent(send)] == [{"user": 7}]
    assert sum(outcome.error is not None for outcome in tasks.run_due()) == len(payloads)
    assert effects == ["welcome 7"]


def test_less_than_a_millisecond_makes_no_task_due(tasks: TaskTester, clock: VirtualClock) -> None:
    send.later(timedelta(milliseconds=1), user=7)
    start = clock.now
    assert tasks.advance(timedelta(microseconds=999)) == []
    assert clock.now == start
    assert len(tasks.advance(timedelta(microseconds=1_999))) == 1
    assert clock.now == start + timedelta(milliseconds=1)


@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_exception_that_ends_the_test_is_not_the_outcome_of_a_task(tasks: TaskTester, error: str) -> None:
    interrupt.now(error)
    with pytest.raises(type(INTERRUPTS[error])):
        tasks.run_due()


def test_an_assertion_of_the_test_runner_in_an_async_task_ends_the_test(tasks: TaskTester) -> None:
    interrupt_async.now("pytest.fail")
    with pytest.raises(pytest.fail.Exception):
        tasks.run_due()


def test_the_schedules_of_an_app_can_be_turned_off(
    tickwheel_tasks: Callable[..., TaskTester], tickwheel: Tickwheel
) -> None:
    scheduled = TaskApp()

    @scheduled.task
    def note(text: str) -> str:
        return text

    scheduled.every(timedelta(seconds=5), note.call("by schedule"), name="often")
    tasks = tickwheel_tasks(scheduled, schedules=False)
    note.later(29 * DAY, "by hand")
    assert [outcome.result for outcome in tasks.advance(29 * DAY)] == ['"by hand"']
