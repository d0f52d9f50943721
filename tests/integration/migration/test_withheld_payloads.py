"""A producer whose token lacks the role consume cannot read messages: neither to compare a call with the call that has
the same id, nor to recognise a call that it revokes.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, route
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tickwheel import IdConflict, limits

pytestmark = [
    pytest.mark.integration,
    # Celery's result backend calls a method of redis-py that is deprecated.
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
]
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


def test_a_message_of_a_queue_of_the_app_is_revoked_although_the_producer_cannot_read_it(deployment: Shop) -> None:
    deployment.tickwheel.queue("celery").enqueue(b"17", id="one")
    shop.celery.control.revoke("one")
    assert deployment.tickwheel.queue("celery").get("one").state == "cancelled"


def test_a_message_that_the_producer_cannot_read_is_not_revoked_in_another_queue_and_this_is_logged(
    deployment: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    deployment.tickwheel.create_queue("of-others")
    deployment.tickwheel.queue("of-others").enqueue(b"17", id="one")
    with caplog.at_level(logging.WARNING, "tickwheel.celery"):
        shop.celery.control.revoke("one")
    assert deployment.tickwheel.queue("of-others").get("one").state == "pending"
    [line] = [record.getMessage() for record in caplog.records if record.name == "tickwheel.celery"]
    assert "call one was not revoked: queue of-others has a message with this id" in line
    assert "run `tickwheel cancel of-others one`" in line
