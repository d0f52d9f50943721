"""A producer whose token lacks the role consume cannot compare its call with the call that has the same id."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tickwheel import IdConflict, limits

pytestmark = pytest.mark.integration
PRODUCER = "tw_producer-Without-Consume"


@pytest.fixture(autouse=True)
def _limited_producer(deployment: Shop, tmp_path: Path) -> Iterator[None]:
    """Make this process a producer with a token that may only enqueue."""
    route("shop.note", "tickwheel")
    deployment.tickwheel.create_queue("celery", payload_limit=limits.PAYLOAD_BYTES_MAX)
    tokens = write_token_file(tmp_path, entry(PRODUCER, '["produce"]', f'namespaces = ["{deployment.namespace}"]'))
    with ServiceThread(deployment.url, tokens=tokens) as service:
        shop.tickwheel.move(url=service.url.replace("//", f"//:{PRODUCER}@"))
        yield
        shop.tickwheel.close()


def test_another_call_with_the_id_of_an_unfinished_call_is_refused(deployment: Shop) -> None:
    shop.note.apply_async(("first",), task_id="one", countdown=3_600)
    with pytest.raises(IdConflict):
        shop.note.apply_async(("second",), task_id="one", countdown=3_600)
    assert b"first" in deployment.tickwheel.queue("celery").get("one").payload


def test_another_call_with_the_id_of_a_finished_call_is_not_sent_and_this_is_logged(
    deployment: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.note.apply_async(("first",), task_id="one", countdown=3_600)
    deployment.tickwheel.queue("celery").cancel("one")
    with caplog.at_level(logging.INFO, "tickwheel.celery"):
        shop.note.apply_async(("second",), task_id="one")
    assert deployment.tickwheel.queue("celery").get("one").state == "cancelled"
    assert "call one was not sent: queue celery had a call with this id, now cancelled" in caplog.text
