"""Messages that wait behind a long task are released, so that idle consumers run them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.support.consumer_thread import run_consumer
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks import Middleware, TaskApp
from tickwheel.worker import consumer, early_release

pytestmark = pytest.mark.integration


# A consumer begins with one message, and takes twice as many after short tasks. After these numbers it takes 8.
FIRST = [1, 2, 4]


@pytest.fixture(autouse=True)
def _long_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_release, "_CHECK_S", 0.01)
    allow_waits(monkeypatch, 60.0)


def allow_waits(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set how long a message may wait behind a long task."""
    monkeypatch.setattr(early_release, "LONGEST_WAIT_S", seconds)
    monkeypatch.setattr(consumer, "LONGEST_WAIT_S", seconds)


class App(TaskApp):
    """An app with a short task, and one that lasts until ``end`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.end = threading.Event()
        self.long_began: list[str] = []
        self.batches: list[int] = []
        batches = self.batches

        class Batches(Middleware):
            def before_batch(self, queue: str, messages: Sequence[LeasedMessage]) -> None:
                batches.append(len(messages))

        self.middleware.append(Batches())
        self.queue("work", batch=8)
        end = self.end

        @self.task(queue="work")
        def long() -> None:
            self.long_began.append("long")
            assert end.wait(60)

        @self.task(queue="work")
        def short() -> None:
            pass

        self.long, self.short = long, short

    def messages(self, *kinds: str) -> list[NewMessage]:
        """Return a message for each kind, after those of a consumer's first batches."""
        return [self.message(kind) for kind in ("short",) * sum(FIRST) + kinds]

    def message(self, kind: str) -> NewMessage:
        new: NewMessage = getattr(self, kind).message((), {})
        return new


@pytest.fixture
def app() -> Iterator[App]:
    app = App()
    yield app
    app.end.set()


def attempts(work: Queue) -> set[tuple[str, int]]:
    return {(message.state, message.attempt) for message in work.messages()}


def test_messages_behind_a_long_task_are_run_by_another_consumer_meanwhile(
    app: App, tickwheel: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tickwheel.create_queue("work")
    work.enqueue_many(app.messages("long", *["short"] * 7))
    with ExitStack() as stack:
        stack.enter_context(run_consumer(app, tickwheel))
        eventually(lambda: app.batches == [*FIRST, 8], "one consumer takes all messages")
        allow_waits(monkeypatch, 0.05)
        stack.enter_context(run_consumer(app, tickwheel))
        eventually(lambda: work.counts()["completed"] == sum(FIRST) + 7, "the other one runs the short tasks")
        assert work.counts()["running"] == 1
        app.end.set()
        eventually(lambda: work.counts()["completed"] == sum(FIRST) + 8, "the long task ends")
    # A message that is released has used no attempt.
    assert attempts(work) == {("completed", 1)}


def test_short_tasks_are_not_released(app: App, tickwheel: Tickwheel) -> None:
    work = tickwheel.create_queue("work")
    work.enqueue_many(app.messages(*["short"] * 40))
    with run_consumer(app, tickwheel):
        eventually(lambda: work.counts()["completed"] == sum(FIRST) + 40, "all tasks run")
    assert app.batches == [*FIRST, *[8] * 5]


@pytest.mark.parametrize("queues", [1, 2])
def test_idle_consumers_begin_long_tasks_that_become_ready_together_at_the_same_time(
    app: App, tickwheel: Tickwheel, queues: int
) -> None:
    if queues > 1:
        app.queue("empty")
        tickwheel.create_queue("empty")
    work = tickwheel.create_queue("work")
    with ExitStack() as stack:
        running = [stack.enter_context(run_consumer(app, tickwheel)) for _ in range(4)]
        for round_ in range(8):
            # So that consumers take more than one message.
            work.enqueue_many(app.message("short") for _ in range(40))
            eventually(lambda n=round_: work.counts()["completed"] == 40 * (n + 1), "all short tasks run")  # type: ignore[misc]
        assert any(one._options["work"].limit > 1 for one in running)
        eventually(lambda: all(one._found_nothing for one in running), "all consumers wait")
        work.enqueue_many(app.message("long") for _ in range(4))
        eventually(lambda: len(app.long_began) == 4, "all long tasks have begun")
        assert app.batches[-4:] == [1] * 4
        app.end.set()


def test_after_a_long_task_a_consumer_takes_few_messages_and_more_again_if_their_tasks_are_short(
    app: App, tickwheel: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tickwheel.create_queue("work")
    work.enqueue_many(app.messages("long", *["short"] * 30))
    with run_consumer(app, tickwheel):
        eventually(lambda: app.batches == [*FIRST, 8], "the consumer takes messages behind the long task")
        allow_waits(monkeypatch, 0.05)
        eventually(lambda: work.counts()["pending"] == 30, "the messages behind the long task are released")
        # From now on, all tasks are short.
        allow_waits(monkeypatch, 60.0)
        app.end.set()
        eventually(lambda: work.counts()["completed"] == sum(FIRST) + 31, "all tasks run")
    assert app.batches == [*FIRST, 8, 1, 2, 4, 8, 8, 7]


def test_a_consumer_that_takes_one_message_releases_none_and_takes_no_more_while_tasks_are_long(
    app: App, tickwheel: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.end.set()
    monkeypatch.setattr(consumer, "LONGEST_WAIT_S", 0.0)
    monkeypatch.setattr(early_release, "LONGEST_WAIT_S", 60.0)
    work = tickwheel.create_queue("work")
    with run_consumer(app, tickwheel):
        work.enqueue_many([app.message("short")])
        eventually(lambda: work.counts()["completed"] == 1, "the first task runs")
        work.enqueue_many(app.message("short") for _ in range(4))
        eventually(lambda: work.counts()["completed"] == 5, "all tasks run")
    assert app.batches == [1] * 5


def test_a_queue_whose_batch_is_one_asks_about_no_message(tickwheel: Tickwheel) -> None:
    app, ran = TaskApp(), threading.Event()
    app.queue("work", batch=1)
    asked: list[LeasedMessage] = []

    def may_wait(message: LeasedMessage) -> bool:
        # The answer of an app that has moved takes time: it decodes the call.
        asked.append(message)
        return True

    app._may_wait = may_wait

    @app.task(queue="work")
    def run() -> None:
        ran.set()

    work = tickwheel.create_queue("work")
    work.enqueue_many([run.message((), {})])
    with run_consumer(app, tickwheel):
        assert ran.wait(20)
    assert asked == []
