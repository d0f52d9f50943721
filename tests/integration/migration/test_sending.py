"""Calls of a Celery application follow the route of their task, and are otherwise unchanged."""

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from celery import chain, group, signals
from kombu.exceptions import EncodeError

from tests.integration.migration import shop
from tests.integration.migration.conftest import Shop, nested, route

pytestmark = pytest.mark.integration


def waiting_at_celery(deployment: Shop, queue: str = "celery") -> int:
    return int(deployment.broker.llen(queue))


def test_a_share_moves_this_fraction_of_the_calls_by_their_ids(deployment: Shop) -> None:
    ids = [f"call-{n}" for n in range(100)]
    moved_deployment: list[set[str]] = []
    deployment.tickwheel.create_queue("celery")
    for share in (0.0, 0.3, 0.6, 1.0):
        route("shop.note", "tickwheel", share)
        for id_ in ids:
            shop.note.apply_async(("x",), task_id=id_)
        moved_deployment.append({message.id for message in deployment.tickwheel.queue("celery").messages()})
    none, some, more, all_ = moved_deployment
    assert none < some < more < all_ == set(ids)
    assert 15 < len(some) < 45
    assert 45 < len(more) < 75


def test_priorities_match_those_of_celery_on_redis(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    for priority in (9, 3, None, 6):
        shop.note.apply_async((), priority=priority, task_id=f"p{priority}")
    order = [message.id for message in deployment.tickwheel.queue("celery").dequeue(limit=4)]
    assert order == ["pNone", "p3", "p6", "p9"]


UNSUPPORTED: dict[str, tuple[Callable[[], object], str]] = {
    "callbacks": (lambda: shop.note.apply_async(("x",), link=shop.note.s()), "callbacks"),
    "errbacks": (lambda: shop.note.apply_async(("x",), link_error=shop.note.s()), "errbacks"),
    "chain": (lambda: chain(shop.note.si("x"), shop.note.si("y")).delay(), "chain"),
    "group": (lambda: group(shop.note.si("x")).delay(), "group"),
    "time limit": (lambda: shop.note.apply_async(("x",), time_limit=3), "time limit"),
    "long": (lambda: shop.note.delay("x" * 300_000), "bytes"),
    "id": (lambda: shop.note.apply_async(("x",), task_id="i" * 129), "128 bytes"),
    "far": (lambda: shop.note.apply_async(("x",), countdown=10 * 365 * 86_400), "its eta is more than 1824 days ahead"),
    "nested header": (lambda: shop.note.apply_async(("x",), headers={"x": nested(150)}), "nested too deeply"),
    "infinite header": (lambda: shop.note.apply_async(("x",), headers={"x": inf}), "headers cannot be encoded as JSON"),
    "serializer": (lambda: shop.note.apply_async((1,), serializer="pickle"), "its serializer is pickle"),
}


@pytest.mark.parametrize("cause", UNSUPPORTED)
def test_calls_that_tickwheel_cannot_make_stay_with_celery_and_are_logged_once(
    deployment: Shop, caplog: pytest.LogCaptureFixture, cause: str
) -> None:
    route("shop.note", "tickwheel")
    call, reason = UNSUPPORTED[cause]
    with caplog.at_level(logging.WARNING, "tickwheel.celery"):
        call()
        call()
    assert waiting_at_celery(deployment) == 2
    lines = [record.getMessage() for record in caplog.records if record.name == "tickwheel.celery"]
    assert len(lines) == 1
    assert reason in lines[0]


def test_arguments_that_celery_cannot_serialize_raise_its_error(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    with pytest.raises(EncodeError):
        shop.note.delay({1, 2})
    assert deployment.tickwheel.queues() == []


def test_an_eta_becomes_the_due_time(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    later = shop.note.apply_async(("later",), countdown=3_600)
    at = shop.note.apply_async(("at",), eta=datetime(2030, 1, 1))  # noqa: DTZ001  # naive times are in the app's zone
    queue = deployment.tickwheel.queue("celery")
    assert abs(queue.get(later.id).due - datetime.now(UTC) - timedelta(hours=1)) < timedelta(seconds=10)
    assert queue.get(at.id).due == datetime(2030, 1, 1, tzinfo=UTC)


def test_the_id_of_a_call_is_its_task_id(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    id_ = str(uuid.uuid4())
    for _ in range(3):
        shop.note.apply_async(("x",), task_id=id_)
    assert deployment.tickwheel.queue("celery").counts()["pending"] == 1


def test_signal_receivers_see_published_calls_as_before(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    routing_keys: list[str] = []

    def add_header(headers: dict[str, Any], routing_key: str, **_: Any) -> None:
        headers["watched"] = "yes"
        routing_keys.append(routing_key)

    signals.before_task_publish.connect(add_header)
    try:
        sent = shop.note.delay("x")
    finally:
        signals.before_task_publish.disconnect(add_header)
    assert routing_keys == ["celery"]
    assert b'"watched":"yes"' in deployment.tickwheel.queue("celery").get(sent.id).payload


@pytest.mark.parametrize("cause", ["long", "far", "infinite header"])
def test_signal_receivers_see_a_call_that_stays_with_celery_once(deployment: Shop, cause: str) -> None:
    route("shop.note", "tickwheel")
    seen: list[str] = []

    def receive(sender: str, **_: Any) -> None:
        seen.append(sender)

    signals.before_task_publish.connect(receive)
    try:
        UNSUPPORTED[cause][0]()
    finally:
        signals.before_task_publish.disconnect(receive)
    assert (seen, waiting_at_celery(deployment)) == (["shop.note"], 1)


def test_a_call_creates_its_queue_again_after_the_queue_was_deleted(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    shop.note.delay("x")
    deployment.tickwheel.delete_queue("celery", purge=True)
    sent = shop.note.delay("y")
    assert deployment.tickwheel.queue("celery").get(sent.id).state == "pending"


def test_a_large_call_restores_the_limit_of_a_queue_that_a_small_call_has_created_again(deployment: Shop) -> None:
    route("shop.note", "tickwheel")
    shop.note.delay("x")
    deployment.tickwheel.delete_queue("celery", purge=True)
    shop.note.delay("small enough for a queue with the default settings")
    sent = shop.note.delay("y" * 40_000)
    assert deployment.tickwheel.queue("celery").get(sent.id).state == "pending"
    assert waiting_at_celery(deployment) == 0


def test_a_call_with_the_id_of_a_finished_call_is_not_sent_and_this_is_logged(
    deployment: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    route("shop.note", "tickwheel")
    shop.note.apply_async(("x",), task_id="one")
    [message] = deployment.tickwheel.queue("celery").dequeue()
    message.complete()
    with caplog.at_level(logging.INFO, "tickwheel.celery"):
        shop.note.apply_async(("other",), task_id="one")
    assert deployment.tickwheel.queue("celery").get("one").state == "completed"
    assert "call one was not sent: queue celery had a call with this id, now completed" in caplog.text


def test_while_tickwheel_is_unreachable_calls_follow_the_last_known_route(
    deployment: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.note.delay("known to be Celery's")
    # The route is cached for a second.
    known = shop.celery.amqp.send_task_message._routes._cache
    known["shop.note"] = replace(known["shop.note"], until=0.0)
    shop.tickwheel.move(url="redis://127.0.0.1:1", timeout=timedelta(milliseconds=50))
    try:
        for _ in range(3):
            shop.note.delay("x")
        shop.urgent.delay()
    finally:
        shop.tickwheel.move(url=deployment.url, timeout=None)
    assert (waiting_at_celery(deployment), waiting_at_celery(deployment, "urgent")) == (4, 1)
    assert caplog.text.count("cannot read the route of task shop.note") == 1


def test_an_eager_call_runs_in_its_process_and_is_sent_to_neither_system(
    deployment: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in ("shop.note", "shop.retried"):
        route(task, "tickwheel")
    monkeypatch.setattr(shop, "RECORD", deployment.record_path)
    monkeypatch.setitem(shop.celery.conf, "task_always_eager", True)
    assert shop.note.delay("x").get() == "noted x"
    assert shop.retried.delay(2).get() == "after 2"
    assert [line[0] for line in deployment.record] == ["here"] * 4
    assert deployment.broker.keys("*") == []
    assert deployment.tickwheel.queues() == []
