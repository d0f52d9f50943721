"""A Django project whose tasks move: `shared_task`, calls on commit, the ORM, and the end of database connections."""

from collections.abc import Callable
from pathlib import Path

import pytest

from services.process import Process
from tests.support.django_project import DjangoProject
from tests.support.wait_until import eventually
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

BROKER = 3
CALLS = """
import os
import sys

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "proj.settings"
django.setup()

from django.db import transaction

from orders.models import Order
from orders.tasks import pay
from proj.celery import tickwheel

if sys.argv[1] == "tickwheel":
    tickwheel.route("orders.tasks.pay", to="tickwheel")
names = sys.argv[2:]
for name in names[:-1]:
    Order.objects.create(name=name)
    pay.delay(name)
with transaction.atomic():
    Order.objects.create(name=names[-1])
    pay.delay_on_commit(names[-1])
try:
    with transaction.atomic():
        pay.delay_on_commit("undone")
        raise KeyError
except KeyError:
    pass
if sys.argv[1] == "tickwheel":
    assert tickwheel.tickwheel.queue("celery").counts()["pending"] == len(names)
"""
WORKERS: dict[str, tuple[str, ...]] = {
    "celery": ("celery", "-A", "proj", "worker", "-P", "solo", "--without-gossip", "--without-mingle", "-l", "WARNING"),
    "tickwheel": ("tickwheel", "worker", "proj.celery:tickwheel", "--drive", "never"),
    "tickwheel with threads": ("tickwheel", "worker", "proj.celery:tickwheel", "--drive", "never", "--threads", "2"),
}


@pytest.mark.parametrize("worker", WORKERS)
def test_the_tasks_of_a_django_project_run_with_connections_that_are_closed_around_each_task(
    worker: str, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    """Celery's worker is the reference: a worker of Tickwheel does the same."""
    side, _, _ = worker.partition(" ")
    with tickwheel_server.client(db=BROKER) as client:
        client.flushdb()
    broker = f"{tickwheel_server.url.replace('unix://', 'redis+socket://')}?virtual_host={BROKER}"
    project = DjangoProject(tmp_path, tickwheel_server.url, namespace, BROKER=broker)
    (tmp_path / "hold-last").touch()
    project.run("-c", CALLS, side, "one", "two", "last")
    with project.process(*WORKERS[worker]) as process:
        wait_for(lambda: project.paid == {"one", "two", "last"}, process)
        assert sorted(project.record) == ["last closed", "one closed", "two closed"]
        # The last task still runs, with its connection.
        wait_for(lambda: project.connections_of(process) == 1, process)
        (tmp_path / "hold-last").unlink()
        wait_for(lambda: project.connections_of(process) == 0, process)
        assert process.stop(30) == 0
    assert len(project.record) == 3


def wait_for(condition: Callable[[], bool], process: Process) -> None:
    eventually(condition, f"the tasks of the worker have this effect\n{process.log}", 40, 0.02)
