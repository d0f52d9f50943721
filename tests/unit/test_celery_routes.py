"""Routes of an application that migrates from Celery: chosen by the id, monotone in the share, read once a second."""

import itertools
import threading

import pytest

from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, NamespaceGone, Unavailable
from tickwheel.tasks.celery_routes import DEFAULT_ROUTE, Route, Routes

pytestmark = pytest.mark.unit

IDS = [f"id-{n}" for n in range(20_000)]


def moved(route: Route) -> set[str]:
    return {id_ for id_ in IDS if route.target(id_) == "tickwheel"}


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_a_share_moves_that_part_of_the_calls(share: float) -> None:
    assert len(moved(Route("tickwheel", share))) / len(IDS) == pytest.approx(share, abs=0.012)


def test_a_larger_share_only_moves_more_calls() -> None:
    shares = [moved(Route("tickwheel", n / 10)) for n in range(11)]
    assert all(less < more for less, more in itertools.pairwise(shares))
    assert (shares[0], shares[10]) == (set(), set(IDS))


def test_a_share_of_celery_leaves_the_rest_to_tickwheel() -> None:
    assert moved(Route("celery", 0.75)) == moved(Route("tickwheel", 0.25))
    assert moved(Route("celery")) == set()


def test_the_target_of_a_call_is_the_same_in_all_programs_and_versions() -> None:
    assert [Route("tickwheel", 0.5).target(f"call-{n}") for n in range(6)] == [
        "tickwheel", "celery", "celery", "tickwheel", "tickwheel", "tickwheel",
    ]  # fmt: skip


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "1", True, None])
def test_a_share_is_from_0_to_1(share: object) -> None:
    with pytest.raises(InvalidArgument, match="share must be a number from 0 to 1"):
        Route("celery", share)  # type: ignore[arg-type]  # the value under test has a wrong type


def test_a_route_is_read_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("tickwheel.tasks.celery_routes.time.monotonic", lambda: now)
    texts = {"route:a": '{"to": "tickwheel", "share": 1.0}'}
    reads: list[str] = []

    def setting(name: str, is_known: bool) -> str | None:
        reads.append(name)
        return texts.get(name)

    known = Routes(setting)
    assert [known.get("a"), known.get("a"), known.get("b")] == [Route("tickwheel"), Route("tickwheel"), DEFAULT_ROUTE]
    assert reads == ["route:a", "route:b"]
    del texts["route:a"]
    assert known.get("a") == Route("tickwheel")
    now += 1
    assert known.get("a") == DEFAULT_ROUTE


@pytest.mark.parametrize("failure", ["unreachable", "damaged", "nested"])
def test_a_route_that_cannot_be_read_keeps_its_last_value(monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    now = 100.0
    monkeypatch.setattr("tickwheel.tasks.celery_routes.time.monotonic", lambda: now)
    stored: list[str] = ['{"to": "tickwheel"}']

    def setting(name: str, is_known: bool) -> str | None:
        if not stored:
            raise Unavailable("no server")
        return stored[0]

    known = Routes(setting)
    assert known.get("a") == Route("tickwheel")
    stored[:] = {"unreachable": [], "damaged": ["{"], "nested": ['{"a":' * 5_000]}[failure]
    now += 2
    assert known.get("a") == Route("tickwheel")
    assert known.get("b") == DEFAULT_ROUTE
    stored[:] = ['{"to": "celery"}']
    now += 4
    assert known.get("a") == Route("tickwheel")
    now += 2
    # Another thread reads the route, so an unreachable server does not block the caller.
    eventually(lambda: known.get("a") == Route("celery"), "the new route is read")


def test_the_routes_of_a_lost_namespace_keep_their_last_values_and_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr("tickwheel.tasks.celery_routes.time.monotonic", lambda: now)
    reads: list[str] = []

    def setting(name: str, is_known: bool) -> str:
        reads.append(name)
        if len(reads) > 1:
            raise NamespaceGone("the namespace no longer exists")
        return '{"to": "tickwheel"}'

    known = Routes(setting)
    for count in range(1, 4):
        assert known.get("a") == Route("tickwheel")
        eventually(lambda: len(reads) == count, "the route is read")  # noqa: B023
        now += 6
    assert known.get("b") == DEFAULT_ROUTE
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [warning.partition(";")[0] for warning in warnings] == [
        "cannot read the route of task a", "cannot read the route of task b",
    ]  # fmt: skip
    assert "using the last, Route(to='tickwheel'" in warnings[0]
    assert "no route was read before, so its calls go to Celery" in warnings[1]


def test_while_one_thread_reads_the_routes_the_others_use_the_last_value(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("tickwheel.tasks.celery_routes.time.monotonic", lambda: now)
    resume, reading = threading.Event(), threading.Event()
    texts = ['{"to": "tickwheel"}', '{"to": "celery"}']

    def setting(name: str, is_known: bool) -> str | None:
        if len(texts) == 1:
            reading.set()
            resume.wait(20)
        return texts.pop(0)

    known = Routes(setting)
    known.get("a")
    now += 2
    reader = threading.Thread(target=known.get, args=["a"])
    reader.start()
    assert reading.wait(20)
    assert known.get("a") == Route("tickwheel")
    resume.set()
    reader.join(20)
    assert known.get("a") == Route("celery")
