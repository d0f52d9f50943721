"""Calls and revocations of a Celery app, without a server: priorities, ids, and the log of calls that stay."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from kombu.entity import Exchange, Queue

from tickwheel import InvalidArgument
from tickwheel.celery.control import Revoker
from tickwheel.celery.sender import Sender, _NotRoutable, migrate
from tickwheel.tasks import TaskApp
from tickwheel.tasks.celery_routes import Route

pytestmark = pytest.mark.unit
UNREACHABLE = "redis://127.0.0.1:1"


@pytest.fixture
def celery() -> Any:
    return Celery("shop", broker="memory://", set_as_current=False)


@pytest.mark.parametrize(
    ("url", "lowest_first"),
    [
        ("redis://a;redis://b", True),
        (["redis://a", "redis://b"], True),
        (["amqp://a", "amqp://b"], False),
        (None, False),
    ],
)
def test_priorities_have_the_meaning_of_the_first_broker(celery: Any, url: Any, lowest_first: bool) -> None:
    celery.conf.broker_write_url = url
    assert Sender(celery, TaskApp(UNREACHABLE), {}, (), print)._lowest_first is lowest_first


def offline_sender(celery: Any, to: str) -> tuple[Sender, list[Any]]:
    """Return a sender that needs no server for calls that stay with Celery, and the list of the calls that stay."""
    sent: list[Any] = []
    sender = Sender(celery, TaskApp(UNREACHABLE), {}, (), lambda producer, name, message, **_: sent.append(message))
    sender._routes = SimpleNamespace(get=lambda name: Route(to))  # type: ignore[assignment]
    return sender, sent


@pytest.mark.parametrize("to", ["celery", "tickwheel"])
def test_a_call_whose_id_is_no_text_stays_with_celery(celery: Any, to: str) -> None:
    sender, sent = offline_sender(celery, to)
    sender(None, "note", celery.amqp.as_task_v2(UUID(int=7), "note"), queue="celery")
    assert [message.headers["id"] for message in sent] == [UUID(int=7)]


def test_calls_of_the_first_protocol_stay_and_are_logged_once(celery: Any, caplog: pytest.LogCaptureFixture) -> None:
    sender, sent = offline_sender(celery, "tickwheel")
    for id_ in ("one", "two"):
        sender(None, "note", celery.amqp.as_task_v1(id_, "note"), queue="celery")
    assert (len(sent), caplog.text.count("remove the setting task_protocol=1")) == (2, 1)


@pytest.mark.parametrize(
    ("options", "stays"),
    [
        ({"exchange": "mail", "routing_key": "mail"}, True),
        ({"exchange": "mail", "routing_key": "other", "queue": "mail"}, True),
        # Routes can name these with their queue.
        ({"exchange": "mail", "routing_key": "mail", "queue": "mail"}, False),
        # With a direct exchange, Celery ignores one without the other.
        ({"exchange": "other", "queue": "mail"}, False),
        ({"routing_key": "other"}, False),
        ({"routing_key": "feed.import", "queue": "feed"}, True),
        ({"exchange": "other", "queue": "feed"}, True),
        ({"exchange": "feed", "queue": "feed"}, False),
        ({"queue": "feed"}, False),
    ],
)
def test_a_call_that_celery_would_send_to_an_exchange_stays(celery: Any, options: Any, stays: bool) -> None:
    feed = Queue("feed", Exchange("feed", type="topic"), "feed.#")
    celery.conf.task_queues = [*(Queue(name, Exchange(name), name) for name in ("mail", "celery")), feed]
    sender, _ = offline_sender(celery, "tickwheel")
    routed = celery.amqp.router.route(dict(options), "note")
    if stays:
        with pytest.raises(_NotRoutable, match="it names an exchange or a routing key"):
            sender._queue_of(routed)
    else:
        assert sender._queue_of(routed) == options.get("queue", "celery")


@pytest.mark.parametrize(
    ("arguments", "options", "problem"),
    [
        (("app", "celery"), {}, "needs a Celery app and then a TaskApp"),
        (("celery", "celery"), {}, "needs a Celery app and then a TaskApp"),
        (("celery", "app"), {"queues": {"a": "b c"}}, "the queue for Celery's queue 'a' must have 1 to 64 letters"),
    ],
)
def test_wrong_arguments_of_migrate_are_refused(celery: Any, arguments: Any, options: Any, problem: str) -> None:
    values = {"celery": celery, "app": TaskApp(UNREACHABLE)}
    with pytest.raises(InvalidArgument, match=problem):
        migrate(*(values[name] for name in arguments), **options)


def test_calls_that_stay_for_reasons_that_differ_in_numbers_are_logged_once(
    celery: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sender, sent = offline_sender(celery, "tickwheel")
    for length in (300_000, 400_000):
        sender(None, "note", celery.amqp.as_task_v2("one", "note", ("x" * length,)), queue="celery")
    assert (len(sent), caplog.text.count("a call of note stays with Celery: it has")) == (2, 1)


def test_the_first_call_of_a_task_that_stays_checks_once_that_celery_runs_it(
    celery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited() -> None: ...

    celery.task(name="limited", rate_limit="2/s")(limited)
    celery.finalize()
    checked: list[str] = []
    for to in ("celery", "tickwheel"):
        sender, sent = offline_sender(celery, to)
        calls = SimpleNamespace(check=lambda task, stay: checked.append(f"{task}: {stay.reason}"))
        monkeypatch.setattr(sender, "_unanswered_calls", calls)
        for _ in range(3):
            sender(None, "limited", celery.amqp.as_task_v2("one", "limited"), queue="celery")
        assert len(sent) == 3
        assert checked == ([] if to == "celery" else ["limited: it has the rate_limit 2/s"])


@pytest.mark.parametrize("options", [{"time_limit": 691_200}, {"queue": "a:b"}], ids=["time limit", "queue"])
def test_a_task_that_does_not_move_stays_with_celery_in_any_queue(
    celery: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    def nothing() -> None: ...

    celery.task(name="staying", shared=False, **options)(nothing)
    celery.finalize()
    sender, sent = offline_sender(celery, "tickwheel")
    monkeypatch.setattr(sender, "_unanswered_calls", SimpleNamespace(check=lambda task, stay: None))
    for queue in ("celery", "a:b"):
        sender(None, "staying", celery.amqp.as_task_v2("one", "staying"), queue=queue)
    assert len(sent) == 2


def test_a_queue_that_only_calls_name_is_logged_once_with_the_option_that_serves_it(
    celery: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nothing() -> None: ...

    celery.conf.task_routes = ({"rout*": {"queue": "routed"}}, lambda name, args, *more, **options: args[0])
    celery.task(name="own", shared=False, queue="attribute")(nothing)
    sender, _ = offline_sender(celery, "tickwheel")
    sender._app.queue("declared")
    enqueued: list[str] = []
    monkeypatch.setattr(sender, "_enqueue_once", lambda queue, *_: enqueued.append(queue))
    for name, queue in (
        ("own", "celery"),
        ("own", "attribute"),
        ("own", "declared"),
        ("routed", "routed"),
        ("own", "urgent"),
        ("unknown", "urgent"),
    ):
        # As a call with this queue does.
        assert celery.amqp.queues[queue].name == queue
        sender(None, name, celery.amqp.as_task_v2("one", name), queue=queue)
    assert len(enqueued) == 6
    [warning] = [record.getMessage() for record in caplog.records]
    assert "calls of own go to the queue urgent, which no declaration and no route" in warning
    assert "start a worker with --queue urgent" in warning


def test_an_unknown_signal_is_refused_before_anything_is_revoked(celery: Any) -> None:
    with pytest.raises(AttributeError, match="NOSUCH"):
        Revoker(celery, TaskApp(UNREACHABLE), {}).revoke("one", True, "NOSUCH")
