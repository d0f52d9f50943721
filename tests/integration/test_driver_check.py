"""The service checks for its clients whether event processes drive a namespace."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import pytest

from tests.integration.service_namespace import open_namespace
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.wait_until import eventually_in_task
from tickwheel import Tickwheel
from tickwheel.client import driver_watch
from tickwheel.errors import LimitExceeded, Unavailable
from tickwheel.plan import Pause
from tickwheel.service import driver_check
from tickwheel.service.call_limits import PLACE
from tickwheel.service.driver_check import CheckPace, DriverCheck
from tickwheel.service.namespaces import Namespace
from tickwheel.storage.fence import FENCE_BYTES
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

WARNING = "no event process drives namespace"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_watch, "RECONNECT_S", 0.05)
    monkeypatch.setattr(driver_check, "CONFIRM_S", 0.05)


def ask(target: str, token: str, namespace: str) -> str:
    """Return the answer of the service."""
    with grpc.insecure_channel(target) as channel:
        answer = generic_client(channel, token).call("CheckDrivers", namespace=namespace)
    return str(answer.get("warning", ""))


def check_in_loop(
    server: PrivateServer, name: str, check: Callable[[Namespace, list[object]], Awaitable[None]]
) -> None:
    """Run ``check`` with a namespace as the service opens it, and with the list of the plans that it has run."""

    async def run() -> None:
        async with open_namespace(server, name) as opened:
            plans: list[object] = []
            run_plan = opened.run

            async def recorded(plan: Any, effects: Any = None) -> Any:
                plans.append(plan)
                return await run_plan(plan, effects)

            opened.driver_check = DriverCheck(opened.context, recorded, CheckPace())
            await check(opened, plans)

    asyncio.run(run())


def test_many_callers_share_one_check_and_further_ones_get_its_answer(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    async def check(opened: Namespace, plans: list[object]) -> None:
        answers = await asyncio.gather(*(opened.driver_check.find_warning() for _ in range(50)))
        answers += [await opened.driver_check.find_warning() for _ in range(50)]
        [answer] = set(answers)
        assert answer.startswith(f"{WARNING} {namespace!r}")
        assert len(plans) == 1

    check_in_loop(tickwheel_server, namespace, check)


def test_a_check_goes_on_if_its_first_caller_has_ended(tickwheel_server: PrivateServer, namespace: str) -> None:
    async def check(opened: Namespace, plans: list[object]) -> None:
        first = asyncio.ensure_future(opened.driver_check.find_warning())
        await eventually_in_task(lambda: plans, "the check has begun")
        second = asyncio.ensure_future(opened.driver_check.find_warning())
        first.cancel()
        assert (await second).startswith(WARNING)
        assert len(plans) == 1

    check_in_loop(tickwheel_server, namespace, check)


def test_an_answer_is_checked_again_after_its_time(
    tickwheel_server: PrivateServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_check, "WARNING_S", 0.0)
    monkeypatch.setattr(driver_check, "_COMMANDS_PER_S", 1_000_000)

    async def check(opened: Namespace, plans: list[object]) -> None:
        for n in range(1, 4):
            assert await opened.driver_check.find_warning()
            await eventually_in_task(lambda: monotonic() >= opened.driver_check._valid_until, "its time")
            assert len(plans) == n

    check_in_loop(tickwheel_server, namespace, check)


def test_a_check_that_fails_and_one_of_a_deleted_namespace_find_nothing(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    async def fail(plan: Any) -> str:
        plan.close()
        raise Unavailable("the server does not answer", may_have_happened=False)

    async def check(opened: Namespace, plans: list[object]) -> None:
        assert await DriverCheck(opened.context, fail, CheckPace()).find_warning() == ""
        tickwheel_server.clear(namespace)
        assert await opened.driver_check.find_warning() == ""
        assert len(plans) == 1

    check_in_loop(tickwheel_server, namespace, check)


@pytest.mark.parametrize("is_claimed", [True, False], ids=["claimed again", "not claimed"])
def test_released_shards_are_checked_again_before_a_warning(
    tickwheel_server: PrivateServer, server: Any, namespace: str, *, is_claimed: bool
) -> None:
    def set_fence(number: bytes) -> None:
        for shard in range(opened_shards):
            server.hset(shard_key(namespace, shard, "clock"), mapping={"fence": number, "election": "lease"})

    def single(request: Any) -> Any:
        return (yield request)

    async def check(opened: Namespace, _: list[object]) -> None:
        pauses = 0

        async def run(plan: Any) -> str:
            nonlocal pauses
            try:
                request = next(plan)
                while True:
                    answer = None
                    if isinstance(request, Pause):
                        pauses += 1
                        if is_claimed:
                            set_fence(FENCE_BYTES * b"\1")
                    else:
                        answer = await opened.run(single(request))
                    request = plan.send(answer)
            except StopIteration as end:
                return str(end.value)

        assert (await DriverCheck(opened.context, run, CheckPace()).find_warning() == "") is is_claimed
        assert pauses == 1

    with Tickwheel(tickwheel_server.url, namespace=namespace) as client:
        opened_shards = client._context.shards
    set_fence(bytes(FENCE_BYTES))
    check_in_loop(tickwheel_server, namespace, check)


def test_checks_of_many_shards_wait_for_earlier_ones_of_their_caller_alone(
    tickwheel_server: PrivateServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_check, "WARNING_S", 0.0)
    monkeypatch.setattr(driver_check, "_COMMANDS_PER_S", 1_000_000)
    pace = CheckPace()
    with suppress(LimitExceeded):
        while True:
            pace.plan_check("token 'a'", 2_500)

    async def check(opened: Namespace, plans: list[object]) -> None:
        opened.driver_check._pace = pace
        PLACE.set(("token 'a'", None))
        with pytest.raises(LimitExceeded, match=r"token 'a' checks too many shards: .* about 500 in a second") as error:
            await opened.driver_check.find_warning()
        assert 0 < error.value.retry_after_ms <= 1_000
        assert not plans
        PLACE.set(("token 'b'", None))
        assert (await opened.driver_check.find_warning()).startswith(WARNING)

    check_in_loop(tickwheel_server, namespace, check)


def test_a_caller_whose_checks_wait_delays_no_other_caller_of_the_namespace(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    pace = CheckPace()
    # The next check of the caller waits for 4 s.
    pace.plan_check("token 'a'", 10_000)

    async def check(opened: Namespace, plans: list[object]) -> None:
        async def ask_as(caller: str) -> str:
            PLACE.set((caller, None))
            return await opened.driver_check.find_warning()

        opened.driver_check._pace = pace
        slow = [asyncio.create_task(ask_as("token 'a'")) for _ in range(3)]
        await eventually_in_task(lambda: opened.driver_check._waits, "the calls of the first caller wait")
        assert (await asyncio.create_task(ask_as("token 'b'"))).startswith(WARNING)
        assert [task.done() for task in slow] == [False] * 3
        assert len(plans) == 1
        # They count as one check, and get the answer of the other caller if it is still valid.
        assert pace.plan_check("token 'a'", 0) < 4.1
        opened.driver_check._valid_until = monotonic() + 60
        assert {answer[: len(WARNING)] for answer in await asyncio.gather(*slow)} == {WARNING}
        assert len(plans) == 1
        assert not opened.driver_check._waits

    check_in_loop(tickwheel_server, namespace, check)


def test_a_pace_remembers_only_callers_whose_checks_wait() -> None:
    pace = CheckPace()
    pace.plan_check("busy", 50_000)
    for n in range(3 * driver_check._CALLERS):
        assert pace.plan_check(f"idle {n}", 0) == 0
    assert len(pace._next_at) <= driver_check._CALLERS
    assert pace.plan_check("idle", 5) == 0
    with pytest.raises(LimitExceeded):
        pace.plan_check("busy", 5)


def test_the_service_does_not_warn_about_its_own_namespace_while_it_may_be_about_to_drive(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    async def check() -> None:
        async with open_namespace(tickwheel_server, namespace) as opened:
            assert await opened.driver_check.find_warning() == ""
            opened.driver_check._valid_until = 0.0
            assert (await opened.driver_check.find_warning()).startswith(WARNING)

    asyncio.run(check())


def test_a_namespace_with_the_clock_of_a_test_has_no_warning(service: ServiceThread, namespace: str) -> None:
    with Tickwheel(service.url, namespace=namespace):
        assert ask(service.target, "", namespace) == ""


@pytest.mark.parametrize("role", ["produce", "consume", "read"])
def test_every_token_of_the_namespace_may_ask(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, role: str
) -> None:
    rights = f'namespaces = ["{namespace}"]\nqueues = ["jobs"]'
    tokens = write_token_file(tmp_path, entry("tw_some", f'["{role}"]', rights))
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, drive=False),
        ServiceThread(tickwheel_server.url, tokens=tokens) as service,
    ):
        assert ask(service.target, "tw_some", namespace).startswith(WARNING)
