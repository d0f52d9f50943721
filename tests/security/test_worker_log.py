"""The log of a real worker: ids and errors that other programs chose add no line and control no terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault import worker_app
from tests.fault.worker_processes import WorkerDeployment, deploy_workers
from tests.support.wait_until import eventually
from tickwheel.tasks import Task
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

FORGED = "2030-01-01 00:00:00,000 INFO tickwheel.worker: FORGED"
HOSTILE = f"x\n{FORGED}\x1b[2J\r{FORGED}\x9b2J"


@pytest.fixture
def deployment(tickwheel_server: PrivateServer, namespace: str, tmp_path: Path) -> Iterator[WorkerDeployment]:
    with deploy_workers(tickwheel_server.url, namespace, tmp_path) as deployed:
        yield deployed


def assert_nothing_is_forged(log: str) -> None:
    # Not `splitlines`, which also splits at the characters that the log must escape. Lines of a traceback are indented.
    lines = log.split("\n")
    assert [line for line in lines if not line.isprintable() or line.startswith(FORGED[:10])] == []


@pytest.mark.parametrize(
    ("task", "text"),
    [(worker_app.boom, "a short text"), (worker_app.boom, HOSTILE), (worker_app.fail_in_thread, HOSTILE)],
    ids=["id", "traceback", "thread"],
)
def test_hostile_texts_cannot_forge_a_line_of_the_log(
    deployment: WorkerDeployment, task: Task[..., object], text: str
) -> None:
    message = task.message((text,), {})
    message.id = HOSTILE
    with deployment.worker() as worker:
        worker_app.app.declared("work").enqueue_many([message])
        # The escaped text shows that the worker has logged the failure.
        eventually(lambda: "FORGED\\x1b[2J" in worker.log, "the failure is in the log", 30)
        assert worker.stop(30) == 0
        assert_nothing_is_forged(worker.log)
