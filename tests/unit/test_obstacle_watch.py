"""The queues that the watch of a process of last resort reads after changes, and what it does after errors."""

import logging
from threading import Event
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from tickwheel.event_process import namespace_watch, obstacle_watch
from tickwheel.event_process.namespace_watch import NamespaceWatch
from tickwheel.event_process.obstacle_watch import QUEUES_MAX, ObstacleWatch, QueueChanges
from tickwheel.operations.driving.obstacles import Obstacle
from tickwheel.storage.keys import queue_key, queue_of_config_key
from tickwheel.storage.script_errors import ScriptError

pytestmark = pytest.mark.unit

ERRORS = [ScriptError("WRONGTYPE of another program"), RuntimeError("a bug"), OSError("no server")]


def config_key(queue: str) -> bytes:
    return queue_key("tw", 0, queue, "config").encode()


def test_the_name_of_a_queue_is_read_from_its_key() -> None:
    assert queue_of_config_key("tw", config_key("a.b-c_1")) == "a.b-c_1"
    for other in (b"", b"tw:{0}:q:a:counts", b"other:{0}:q:a:config", b"tw:{0}:q:a:b:config", b"\xff"):
        assert queue_of_config_key("tw", other) is None


def test_many_changes_of_a_queue_are_read_once() -> None:
    changes = QueueChanges("tw")
    assert not changes
    for queue in ("b", "a", "b"):
        changes.on_payload(config_key(queue))
    assert changes
    assert changes.take() == ["a", "b"]
    assert not changes
    assert changes.take() == []


def test_all_queues_are_read_after_a_notification_without_a_name_and_after_very_many() -> None:
    changes = QueueChanges("tw")
    changes.on_payload(b"")
    assert changes
    assert changes.take() is None
    for n in range(QUEUES_MAX + 1):
        changes.on_payload(config_key(f"q{n}"))
    assert changes.take() is None
    assert changes.take() == []


class NoServer:
    """Connections that fail as a test demands."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors

    def connect(self, shard: int, key: str) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        raise ConnectionError("no server")


def test_errors_do_not_end_the_watch_of_obstacles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstacle_watch, "Backoff", lambda longest: QuickBackoff())
    has_failed_on = Event()
    errors = [*ERRORS]

    class Failing(NoServer):
        def connect(self, shard: int, key: str) -> Any:
            if not self.errors:
                has_failed_on.set()
            return super().connect(shard, key)

    watch = ObstacleWatch(
        Failing(errors),  # type: ignore[arg-type]
        "tw",
        find=lambda: None,
        find_sink=lambda _: None,
        is_driving=lambda: True,
        on_obstacle=lambda: None,
    )
    watch.start()
    assert has_failed_on.wait(20)
    watch.close()


@pytest.mark.parametrize(
    ("obstacle", "level"),
    [
        (Obstacle("the user lacks a right"), logging.INFO),
        (Obstacle("queue 'mail' delivers to a sink", "mail"), logging.WARNING),
    ],
)
def test_an_obstacle_is_found_and_logged_although_the_user_may_no_longer_subscribe(
    obstacle: Obstacle, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, obstacle_watch._log.name)
    has_obstacle = Event()
    watch = ObstacleWatch(
        NoServer([NoPermissionError("NOPERM no channel")]),  # type: ignore[arg-type]
        "tw",
        find=lambda: obstacle,
        find_sink=lambda _: None,
        is_driving=lambda: True,
        on_obstacle=has_obstacle.set,
    )
    watch.start()
    assert has_obstacle.wait(20)
    watch.close()
    [record] = [record for record in caplog.records if "stops driving" in record.message]
    assert (record.levelno, record.message) == (level, f"this process stops driving: {obstacle.text}")


class QuickBackoff:
    def reset(self) -> None:
        pass

    def next(self) -> float:
        return 0.001


class FailingQueues:
    """Queues whose namespace cannot be checked, until all errors are raised."""

    def __init__(self) -> None:
        self.checks = 0
        self.errors: list[Exception] = [*ERRORS]
        self.has_checked = Event()

    def check_shards(self) -> bool:
        self.checks += 1
        if self.errors:
            raise self.errors.pop(0)
        self.has_checked.set()
        return False


def test_errors_do_not_end_the_watch_of_the_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_watch, "INTERVAL_S", 0.001)
    queues, has_lost = FailingQueues(), Event()
    watch = NamespaceWatch(queues, "tw", lambda _: has_lost.set(), lambda: True)  # type: ignore[arg-type]
    watch.start()
    assert has_lost.wait(20)
    assert queues.checks == len(ERRORS) + 1
    watch.stop()


def test_a_namespace_that_the_election_checks_is_checked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_watch, "INTERVAL_S", 0.001)
    queues, has_asked, must_check = FailingQueues(), Event(), Event()

    def must_check_now() -> bool:
        has_asked.set()
        return must_check.is_set()

    queues.errors.clear()
    watch = NamespaceWatch(queues, "tw", lambda _: None, must_check_now)  # type: ignore[arg-type]
    watch.start()
    assert has_asked.wait(20)
    has_asked.clear()
    assert has_asked.wait(20)
    assert queues.checks == 0
    must_check.set()
    assert queues.has_checked.wait(20)
    watch.stop()
