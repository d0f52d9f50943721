"""A Django project with a Celery app that moves to Tickwheel, in a folder of the test.

Its app `orders` has a model, which its tasks use. With CONN_MAX_AGE, Django itself would keep connections open.
"""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

from services.process import Process
from tests.support.children import children_of

FILES = {
    "manage.py": """
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")

from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
""",
    "proj/__init__.py": """
from .celery import app as celery_app

__all__ = ("celery_app",)
""",
    "proj/settings.py": """
import os
from pathlib import Path

SECRET_KEY = "of a test"
INSTALLED_APPS = ["orders"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).parents[1] / "db.sqlite3",
        "CONN_MAX_AGE": eval(os.environ.get("CONN_MAX_AGE", "None")),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
CELERY_BROKER_URL = os.environ.get("BROKER", "memory://")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
""",
    "proj/celery.py": """
import os

from celery import Celery

from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
app = Celery("proj")
app.config_from_object("django.conf:settings", namespace="CELERY")
tickwheel = TaskApp()
migrate(app, tickwheel)
app.autodiscover_tasks()
""",
    "orders/__init__.py": "",
    "orders/migrations/__init__.py": "",
    "orders/models.py": """
from django.db import models


class Order(models.Model):
    name = models.CharField(max_length=40)
    paid = models.BooleanField(default=False)
""",
    "orders/tasks.py": """
import time
from pathlib import Path

from celery import shared_task
from django.db import connection

from orders.models import Order


def record(line):
    with open("record.txt", "a") as file:
        file.write(f"{line}\\n")


@shared_task
def pay(name):
    record(f"{name} {'closed' if connection.connection is None else 'open'}")
    Order.objects.filter(name=name).update(paid=True)
    hold = Path(f"hold-{name}")
    while hold.exists():
        time.sleep(0.01)
""",
}


class DjangoProject:
    """The project in a folder, with an empty database. ``more`` are further files, or others than those above."""

    def __init__(self, folder: Path, url: str, namespace: str, more: dict[str, str] | None = None, **environment: str):
        self.folder = folder
        self._environment = {"TICKWHEEL_URL": url, "TICKWHEEL_NAMESPACE": namespace, **environment}
        for name, text in {**FILES, **(more or {})}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder / "record.txt").touch()
        self.run("manage.py", "makemigrations", "-v", "0", "orders")
        self.run("manage.py", "migrate", "-v", "0")

    def run(self, *arguments: str) -> None:
        """Run a program of the project until its end."""
        environment = os.environ | self._environment
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

    def process(self, *command: str) -> Process:
        """Return a process of the project that is not started."""
        return Process("worker", [sys.executable, "-m", *command], self.folder, environment=self._environment)

    @property
    def record(self) -> list[str]:
        """The lines that the tasks have written."""
        return (self.folder / "record.txt").read_text().splitlines()

    @property
    def paid(self) -> set[str]:
        """The names of the orders that tasks have marked as paid."""
        with closing(sqlite3.connect(self.folder / "db.sqlite3")) as database:
            return {name for (name,) in database.execute("SELECT name FROM orders_order WHERE paid")}

    def connections_of(self, worker: Process) -> int:
        """Return how many connections to the database the processes of the worker have open."""
        database, count = str(self.folder / "db.sqlite3"), 0
        for pid in (worker.pid, *children_of(worker.pid)):
            with suppress(FileNotFoundError):  # the process has ended
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    with suppress(FileNotFoundError):
                        count += os.readlink(f"/proc/{pid}/fd/{fd}") == database
        return count
