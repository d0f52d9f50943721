"""The recipe for Django in the pages works in a real project, also next to the Celery app of a migration."""

import re
from pathlib import Path

import pytest

from tests.examples.test_docs import blocks
from tests.support.django_project import FILES, DjangoProject
from tests.support.wait_until import eventually
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.examples

# As the page demands of async tasks.
ASYNC_TASK = """

from asgiref.sync import sync_to_async
from django.db import close_old_connections


@app.task(queue="orders")
async def pay_async(name: str) -> None:
    await sync_to_async(close_old_connections)()
    await Order.objects.filter(name=name).aupdate(paid=True)
    await sync_to_async(close_old_connections)()
"""
CALLS = """
import os

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "proj.settings"
django.setup()

from orders.models import Order
from orders.tasks import pay, pay_async

for name in ("one", "two", "three"):
    Order.objects.create(name=name)
for task, name in ((pay, "one"), (pay, "two"), (pay_async, "three")):
    task.now(name)
"""


def page_files() -> dict[str, str]:
    """Return the modules of the page, by path."""
    found = (re.match(r"# (\w+/\w+\.py)\n", block) for block in blocks("docs/workers.md", "python"))
    files = {match[1]: match.string for match in found if match}
    assert list(files) == ["proj/background.py", "orders/tasks.py", "proj/worker.py"]
    files["orders/tasks.py"] += ASYNC_TASK
    return files


def finished_project() -> dict[str, str]:
    """Return the files of the page, in a project without Celery."""
    return {**page_files(), "proj/__init__.py": "", "proj/celery.py": ""}


def moving_project() -> dict[str, str]:
    """Return the files of a project whose tasks belong to the `TaskApp` of the migration, with the middleware."""
    files = page_files()
    head = files["proj/background.py"].partition("app = TaskApp()")[0]
    return {
        "proj/celery.py": f"{head}{FILES['proj/celery.py']}tickwheel.add_middleware(DatabaseConnections())\n",
        "orders/tasks.py": files["orders/tasks.py"].replace(
            "from proj.background import app", "from proj.celery import tickwheel as app"
        ),
    }


@pytest.mark.parametrize(
    ("project", "app"),
    [(finished_project(), "proj.worker:app"), (moving_project(), "proj.celery:tickwheel")],
    ids=["finished", "moving"],
)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_worker_of_the_page_closes_its_database_connections_after_its_tasks(
    project: dict[str, str], app: str, threads: str, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    """Without the hooks, the connections would stay open."""
    django = DjangoProject(tmp_path, tickwheel_server.url, namespace, project, CONN_MAX_AGE="0")
    django.run("-c", CALLS)
    with django.process("tickwheel", "worker", app, "--drive", "never", "--threads", threads) as worker:
        eventually(lambda: django.paid == {"one", "two", "three"}, f"the tasks run\n{worker.log}", 40, 0.02)
        eventually(lambda: django.connections_of(worker) == 0, f"no connection is open\n{worker.log}", 10, 0.02)
        assert worker.stop(30) == 0
