"""All signals of Celery, each with a receiver: those that a worker of Tickwheel sends, and those that it does not."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from celery import signals

from services.process import Process
from tests.fault.event_processes import EventProcessChild
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "migrating-from-celery.md"
APP = """
import os

from celery import Celery, signals

from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

celery = Celery("shop", broker="memory://")
tickwheel = TaskApp()
migrate(celery, tickwheel)


def receive(signal, sender, **arguments):
    with open(os.environ["RECORD"], "a") as file:
        file.write(f"{signal.name} {type(sender).__name__}\\n")
    if signal.name == os.environ.get("FAIL"):
        raise ValueError("a receiver that fails")


for name in (*signals.__all__, "import_modules"):
    getattr(signals, name).connect(receive)


@celery.task(name="end")
def end():
    pass


@celery.task(name="chain")
def chain():
    end.delay()


@celery.task(name="fail")
def fail():
    raise ValueError("no user")


@celery.task(name="again", bind=True, max_retries=1)
def again(self):
    if not self.request.retries:
        self.retry(countdown=0)
"""
CALLS = """
from signal_app import again, chain, fail, end, tickwheel

for task in (again, chain, fail, end):
    tickwheel.route(task.name, to="tickwheel")
for task in (again, chain, fail):
    task.delay()
end.apply_async(expires=0.001)
"""
SENT = {
    "after_task_publish",
    "before_task_publish",
    "celeryd_init",
    "import_modules",
    "task_failure",
    "task_postrun",
    "task_prerun",
    "task_retry",
    "task_revoked",
    "task_success",
    "worker_init",
    "worker_process_init",
    "worker_process_shutdown",
}


@pytest.mark.parametrize("failing", ["", "worker_init"])
def test_a_worker_sends_the_signals_of_the_page_and_no_others_to_their_receivers(
    failing: str, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    """A receiver that fails is logged by Celery, and has no other effect, as in Celery's worker."""
    (tmp_path / "signal_app.py").write_text(APP)
    record, where = tmp_path / "record.txt", {"TICKWHEEL_URL": tickwheel_server.url, "TICKWHEEL_NAMESPACE": namespace}
    producer = {**where, "RECORD": "/dev/null", "PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", CALLS], cwd=tmp_path, env=producer, check=True)
    command = [sys.executable, "-m", "tickwheel", "worker", "signal_app:tickwheel", "--drive", "never"]
    worker = Process("worker", command, tmp_path, environment={**where, "RECORD": str(record), "FAIL": failing})
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock"),
        worker,
    ):
        queue, ended = tickwheel.queue("celery"), Counter(completed=4, errored=1)
        eventually(
            lambda: Counter(message.state for message in queue.messages()) == ended,
            f"all calls have ended, one with an error\n{worker.log}",
            30,
            0.05,
        )
        assert worker.stop(30) == 0
        assert worker.log.count("raised: ValueError('a receiver that fails')") == bool(failing), worker.log
    sent = dict(line.split() for line in record.read_text().splitlines())
    assert set(sent) == SENT
    assert (sent["celeryd_init"], sent["worker_init"]) == ("str", "WorkerSender")
    [sentence] = re.findall(r"These signals are not sent:\s+(.*?)\.", PAGE.read_text(), re.DOTALL)
    not_sent = set(re.findall(r"`(\w+)`", sentence))
    assert not_sent <= set(signals.__all__)
    assert not_sent.isdisjoint(SENT)
