"""A Celery application on a real Redis server, with workers of Celery and Tickwheel as processes."""

import gc
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import kombu.pools
import pytest

from services.process import Process
from tests.fault.event_processes import EventProcessChild
from tests.integration.migration import shop
from tests.support.process_records import ProcessRecords
from tests.support.wait_until import eventually
from tickwheel import MessageView, Tickwheel
from tickwheel.testing import PrivateServer

ROOT = Path(__file__).parents[3]
BROKER, BACKEND = 1, 2


class Shop(ProcessRecords):
    """The application: its record of runs, and its workers. Fields of a line: side, task, id, retries, and more."""

    def __init__(self, server: PrivateServer, namespace: str, folder: Path, tickwheel: Tickwheel) -> None:
        super().__init__(folder)
        self.tickwheel, self.namespace, self.url = tickwheel, namespace, server.url
        self.broker: Any = server.client(db=BROKER)
        self._folder = folder
        self.signals_path = folder / "signals.txt"
        self.signals_path.touch()
        self._processes: list[Process] = []

    @property
    def log(self) -> str:
        """The output of all workers."""
        return "".join(process.log for process in self._processes)

    def celery_url(self, db: int) -> str:
        """The URL of a database of the server in Celery's form."""
        return f"{self.url.replace('unix://', 'redis+socket://')}?virtual_host={db}"

    @property
    def broker_url(self) -> str:
        """The URL in the usual form."""
        return f"{self.url}?db={BROKER}"

    def signals_of(self, id_: str) -> list[str]:
        """Return the signals and handlers of failures and revocations of a call, each with the class of its error."""
        return [line for line in self.every_signal_of(id_) if not line.startswith(("task_success", "task_retry"))]

    def every_signal_of(self, id_: str) -> list[str]:
        """Return all signals and handlers of a call, each with the class of its error."""
        lines = [line.split() for line in self.signals_path.read_text().splitlines()]
        return [f"{name} {error}" for name, call, error in lines if call == id_]

    def kills(self, *ids: str) -> int:
        """Return how often a first run of these calls has killed its process."""
        return sum(line[2] in ids and line[-1] == shop.KILLED for line in self.record)

    def ran(self, *ids: str) -> dict[str, list[str]]:
        """Return the sides that ran each of these calls, once for each run."""
        sides: dict[str, list[str]] = {id_: [] for id_ in ids}
        for side, _, id_, *_ in self.record:
            if id_ in sides:
                sides[id_].append(side)
        return sides

    def wait_until_run(self, ids: list[str], within: float = 40.0) -> None:
        try:
            eventually(lambda: all(self.ran(*ids).values()), "all calls have run", within, 0.05)
        except AssertionError as error:
            missing = [id_ for id_, sides in self.ran(*ids).items() if not sides]
            raise AssertionError(
                f"{len(missing)} of {len(ids)} did not run: {missing[:5]}\n{self.log[-2_000:]}"
            ) from error

    def ends(self, id_: str, queue: str = "celery") -> MessageView:
        """Return the message of a call once the message is finished."""
        messages = self.tickwheel.queue(queue)
        finished = ("completed", "errored")
        eventually(lambda: messages.get(id_).state in finished, f"{id_} ends: {self.log[-2_000:]}", 30, 0.01)
        return messages.get(id_)

    def event_process(self) -> EventProcessChild:
        return EventProcessChild(self.url, self.namespace, self._folder / "lock")

    def celery_worker(self, *options: str) -> Process:
        """Return a worker of Celery that is not started."""
        command = ["celery", "-A", "tests.integration.migration.shop:celery", "worker", "-P", "solo", "-n", "c@test"]
        quiet = ["--without-gossip", "--without-mingle", "-Q", "celery,urgent", "-l", "WARNING"]
        return self._process(
            "celery", [*command, *quiet, *options], lambda: bool(shop.celery.control.ping(timeout=0.2))
        )

    def tickwheel_worker(self, *options: str, kill_first: bool = False, url: str = "") -> Process:
        """Return a worker of Tickwheel that is not started. With ``kill_first``, the first run of each call kills its
        process. ``url`` replaces the URL of the server, for example by that of a service.
        """
        command = ["tickwheel", "worker", "tests.integration.migration.shop:tickwheel", "--drive", "never", *options]
        more = ({"KILL_FIRST": "1"} if kill_first else {}) | ({"TICKWHEEL_URL": url} if url else {})
        return self._process("tickwheel", command, more=more)

    def _process(
        self,
        side: str,
        command: list[str],
        ready_when: Callable[[], bool] | str = "",
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> Process:
        environment = {
            "SIDE": side,
            "RECORD": str(self.record_path),
            "SIGNALS": str(self.signals_path),
            "BROKER": self.celery_url(BROKER),
            "BACKEND": self.celery_url(BACKEND),
            "TICKWHEEL_URL": self.url,
            "TICKWHEEL_NAMESPACE": self.namespace,
            **more,
        }
        command = [sys.executable, "-m", *command]
        process = Process(side, command, self._folder, ready_when, environment=environment, cwd=ROOT)
        self._processes.append(process)
        return process


@pytest.fixture
def deployment(tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[Shop]:
    """The application in this process, a producer, without any worker."""
    with shop_of(tickwheel_server, tmp_path) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def moved_deployment(tickwheel_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A deployment with an event process and a worker of Tickwheel, one for a module; `celery` is its queue."""
    folder = tmp_path_factory.mktemp("moved")
    with shop_of(tickwheel_server, folder) as deployment, deployment.event_process(), deployment.tickwheel_worker():
        yield deployment


@contextmanager
def shop_of(tickwheel_server: PrivateServer, folder: Path) -> Iterator[Shop]:
    namespace = f"moving-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        tickwheel = stack.enter_context(Tickwheel(tickwheel_server.url, namespace=namespace))
        stack.callback(tickwheel_server.clear, namespace)
        deployment = Shop(tickwheel_server, namespace, folder, tickwheel)
        stack.enter_context(deployment.broker)
        for db in (BROKER, BACKEND):
            with tickwheel_server.client(db=db) as client:
                client.flushdb()
        shop.celery.conf.broker_url = deployment.celery_url(BROKER)
        shop.celery.conf.result_backend = deployment.celery_url(BACKEND)
        # Connections that other code has opened since the last deployment may be lost by now.
        forget_connections()
        stack.callback(forget_connections)
        shop.tickwheel.move(url=tickwheel_server.url, namespace=namespace)
        stack.callback(shop.tickwheel.close)
        yield deployment


def forget_connections() -> None:
    """Close cached connections: the next deployment may use another server. Abandoned results are dropped first."""
    finish_checks()
    gc.collect()
    celery: Any = shop.celery
    celery.backend.result_consumer.subscribed_to.clear()
    celery.close()
    # Kombu keeps the connections of a URL for the whole process, and other tests disconnect all clients of the server.
    # Pools of other applications stay open: those applications have cached them.
    connection = celery.connection_for_write()
    for pools in (kombu.pools.producers, kombu.pools.connections):
        if connection in pools:
            pools[connection].force_close_all()
            del pools[connection]
    celery.amqp._producer_pool = None
    vars(celery.amqp).pop("send_task_message", None)
    celery._backend_cache = None
    vars(celery._local).pop("backend", None)


def finish_checks() -> None:
    """Wait until this producer no longer checks whether a worker of Celery answers."""
    sender: Any = vars(shop.celery.amqp).get("send_task_message")
    if sender is not None and (thread := sender._unanswered_calls._thread) is not None:
        thread.join()


def route(task: str, to: str, share: float = 1.0) -> None:
    """Set a route and make this producer read it immediately."""
    shop.tickwheel.route(task, to=to, share=share)
    shop.celery.amqp.send_task_message._routes._cache.pop(task, None)


def nested(levels: int) -> list[Any]:
    """Return an empty list in as many lists."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value
