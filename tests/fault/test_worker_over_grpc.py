"""A worker that uses the service with a consume token, for a producer with a produce token."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault import worker_app
from tests.fault.event_processes import EventProcessChild
from tests.fault.worker_processes import Worker
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tests.support.wait_until import eventually
from tickwheel import QueueNotFound, Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

NAMESPACE = "worker-of-service"
PRODUCER, CONSUMER = "tw_producer-Of-Nobody-Else", "tw_consumer-Of-Nobody-Else"


@pytest.fixture
def service(tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[ServiceThread]:
    here = f'namespaces = ["{NAMESPACE}"]'
    tokens = write_token_file(tmp_path, entry(PRODUCER, '["produce"]', here), entry(CONSUMER, '["consume"]', here))
    with (
        Tickwheel(tickwheel_server.url, namespace=NAMESPACE),
        EventProcessChild(tickwheel_server.url, NAMESPACE, tmp_path / "lock"),
        ServiceThread(tickwheel_server.url, tokens=tokens) as serving,
    ):
        worker_app.app.move(url=serving.url.replace("//", f"//:{PRODUCER}@"), namespace=NAMESPACE)
        yield serving
    worker_app.app.close()
    tickwheel_server.clear(NAMESPACE)


def test_a_worker_with_a_consume_token_runs_the_tasks_of_a_producer(
    service: ServiceThread, tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    with pytest.raises(QueueNotFound, match="this token may not create it"):
        worker_app.double.now(4)
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE) as inside:
        for queue in worker_app.app.queues.values():
            inside.create_queue(queue.name, **queue.config)
        work, go = inside.queue("work"), tmp_path / "go"
        slow, killed = worker_app.block_interpreter.now(2.0), worker_app.wait_for.now(str(go))
        with Worker(service.url.replace("//", f"//:{CONSUMER}@"), NAMESPACE, tmp_path, "--processes", "2") as worker:
            worker.wait_until_recorded("began", 2)
            assert CONSUMER not in worker.log
            id = worker_app.double.now(4).id
            eventually(
                lambda: work.get(slow.id).state == "completed", "the lease was renewed and the task completed", 30
            )
            assert work.get(slow.id).attempt == 1
            eventually(lambda: work.get(id).result == "8", "the result is stored", 30)
            for child in worker.children:
                os.kill(child, signal.SIGKILL)
            go.touch()
            eventually(lambda: work.get(killed.id).state == "completed", "the task runs again", 30)
            assert work.get(killed.id).attempt == 2
            assert worker.stop(30) == 0


def test_a_worker_process_that_closes_its_supervisor_pipe_over_grpc_is_replaced(
    service: ServiceThread, tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE) as inside:
        for queue in worker_app.app.queues.values():
            inside.create_queue(queue.name, **queue.config)
        work, url = inside.queue("work"), service.url.replace("//", f"//:{CONSUMER}@")
        with Worker(url, NAMESPACE, tmp_path, "--drain", "1s") as worker:
            before = worker_app.double.now(3).id
            eventually(lambda: work.get(before).result == "6", "the result is stored", 30)
            [watched] = worker.children
            closing = worker_app.close_all_files.now()
            eventually(lambda: worker.children not in ([], [watched]), "another process has started", 30)
            # gRPC may abort the process before the supervisor notices the closed pipe.
            assert re.search("closed or misused the pipe to its supervisor|ended by SIGABRT", worker.log)
            after = worker_app.double.now(4).id
            eventually(lambda: work.get(after).result == "8", "the result is stored", 30)
            eventually(
                lambda: work.get(closing.id).state in ("completed", "errored"), "the closing task is settled", 30
            )
            assert worker.stop(30) == 0
