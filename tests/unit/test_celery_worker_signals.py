"""The signals of a Celery worker at the start and at the end of its processes, without a server."""

from typing import Any

import pytest
from celery import signals

from tests.support.celery_app import make_celery_app
from tickwheel.celery.worker_signals import HOSTNAME, WorkerSender, WorkerSignals
from tickwheel.tasks import TaskApp

pytestmark = pytest.mark.unit


def test_each_signal_of_a_process_reaches_its_receivers_with_the_sender_of_celery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    celery = make_celery_app(monkeypatch)
    received: dict[str, Any] = {}
    configured: list[Any] = []

    def receive(signal: Any, sender: Any, **arguments: Any) -> None:
        received[signal.name] = sender
        if signal is signals.celeryd_init:
            configured.extend((arguments["instance"], arguments["conf"], arguments["options"]))

    own = (signals.celeryd_init, signals.worker_init, signals.worker_process_init, signals.worker_process_shutdown)
    # Receivers of a sender are found by its hash.
    for signal in own:
        signal.connect(receive)
        signal.connect(receive, sender=HOSTNAME, dispatch_uid="of a sender")
    try:
        app, middleware = TaskApp("redis://127.0.0.1:1"), WorkerSignals(celery)
        middleware.startup(app)
        middleware.shutdown(app)
    finally:
        for signal in own:
            signal.disconnect(receive)
            signal.disconnect(receive, sender=HOSTNAME, dispatch_uid="of a sender")
    worker = received.pop("worker_init")
    names = ("celeryd_init", "worker_process_init", "worker_process_shutdown")
    assert received == dict.fromkeys(names, HOSTNAME)
    # Both receivers get the same instance.
    assert configured == [worker, celery.conf, {}] * 2
    assert (worker.app, worker.hostname, worker.pool_cls, worker.concurrency) == (celery, HOSTNAME, "solo", 1)
    assert (worker.pool, worker.consumer, HOSTNAME in repr(worker)) == (None, None, True)
    assert len({worker, WorkerSender(celery)}) == 2
