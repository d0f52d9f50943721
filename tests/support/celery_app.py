"""A Celery app for tests without a server, apart from the other apps of the process."""

from typing import Any

import celery
import pytest
from celery import _state


def make_celery_app(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an app that has only its own tasks. Afterwards, the process has no current app until one is set."""
    # Celery gives every new app the tasks of all apps of the process, so also those of other tests.
    monkeypatch.setattr(_state, "_on_app_finalizers", set())
    monkeypatch.setattr(_state, "default_app", None)
    monkeypatch.setattr(_state._tls, "current_app", None)
    return celery.Celery("shop", broker="memory://", set_as_current=False)
