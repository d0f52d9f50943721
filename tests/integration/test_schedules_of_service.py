"""Recurring tasks over the service, by a worker with the rights to produce and consume only."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tickwheel import QueueNotFound
from tickwheel.tasks import TaskApp
from tickwheel.tasks.schedule import OCCURRENCE_QUEUE_CONFIG
from tickwheel.testing import PrivateServer, sandbox
from tickwheel.testing.virtual_clock import FRAGMENT
from tickwheel.worker.schedule_runner import OccurrenceOutcome, ScheduleRunner

pytestmark = pytest.mark.integration

NOON, HOUR = datetime(2026, 3, 27, 12, tzinfo=UTC), timedelta(hours=1)
WORKER = f"tw_{os.urandom(12).hex()}"


def digest() -> None: ...


@pytest.fixture
def service(tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[ServiceThread]:
    """The service, with the worker's token as its only token."""
    rights = 'queues = ["schedules", "mail"]\nnamespaces = ["test-*"]'
    tokens = write_token_file(tmp_path, entry(WORKER, '["produce", "consume"]', rights))
    with ServiceThread(tickwheel_server.url, FRAGMENT, tokens=tokens) as serving:
        yield serving


def test_a_worker_with_a_produce_and_consume_token_fires_schedules(
    service: ServiceThread, tickwheel_server: PrivateServer
) -> None:
    fates: list[OccurrenceOutcome] = []
    with (
        sandbox(tickwheel_server, shards=4, now=NOON) as (inside, clock),
        TaskApp(service.url.replace("//", f"//:{WORKER}@"), namespace=inside._context.namespace) as app,
    ):
        app.every(HOUR, app.task(queue="mail")(digest), name="digest", overlap=False)
        process = ScheduleRunner(app, on_outcome=lambda name, fate: fates.append(fate))
        with pytest.raises(QueueNotFound, match="queue 'schedules' does not exist, and this token may not create it"):
            process.ensure_occurrences(clock.now)
        inside.create_queue("schedules", **OCCURRENCE_QUEUE_CONFIG)
        inside.create_queue("mail")
        process.ensure_occurrences(clock.now)
        for _ in range(2):
            clock.advance(HOUR)
            process.fire_due()
        assert fates == [OccurrenceOutcome.FIRED, OccurrenceOutcome.SKIPPED]
        [fired] = inside.queue("mail").messages()
        assert fired.due == NOON + HOUR
