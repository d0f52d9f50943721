"""A server that loses its data loses the routes, too: calls are refused and do not go to Celery, and workers warn."""

from dataclasses import replace

import pytest

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.support.children import children_of
from tests.support.wait_until import eventually
from tickwheel import NamespaceGone
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

WARNING = "no task of Celery has a route"


def forget_age_of_routes() -> None:
    """Make the producer read its routes again at the next call."""
    cache = shop.celery.amqp.send_task_message._routes._cache
    for task, cached in list(cache.items()):
        cache[task] = replace(cached, until=0.0)


def test_a_call_is_refused_after_the_server_has_lost_its_data_and_does_not_go_to_celery(
    deployment: Shop, tickwheel_server: PrivateServer, caplog: pytest.LogCaptureFixture
) -> None:
    route("shop.note", "tickwheel")
    shop.note.delay("x")
    tickwheel_server.clear(deployment.namespace)
    for _ in range(2):
        forget_age_of_routes()
        with pytest.raises(NamespaceGone):
            shop.note.delay("y")
    with pytest.raises(NamespaceGone):
        shop.tickwheel.routes()
    assert deployment.broker.llen("celery") == 0
    assert caplog.text.count("cannot read the route of task shop.note") == 1


def test_a_worker_warns_once_if_no_task_of_celery_has_a_route(deployment: Shop) -> None:
    with deployment.tickwheel_worker("--processes", "2") as worker:
        eventually(lambda: WARNING in worker.log, worker.log, 60)
        line = next(line for line in worker.log.splitlines() if WARNING in line)
        assert "shop.note" in line
        # This task stays with Celery, so it needs no route.
        assert "held.limited" not in line
        assert "2 processes" in worker.log
        eventually(lambda: len(children_of(worker.pid)) == 2, "the second process is started", 30)
        assert worker.stop(30) == 0
    assert worker.log.count(WARNING) == 1
    route("shop.note", "celery")
    with deployment.tickwheel_worker() as worker:
        eventually(lambda: "tasks: " in worker.log, worker.log, 60)
        assert worker.stop(30) == 0
    assert WARNING not in worker.log
