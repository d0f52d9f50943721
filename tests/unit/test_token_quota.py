"""The quota of a token: waiting calls end if the token loses their rights, before or after they start to wait."""

import asyncio
from typing import Any

import pytest

from tickwheel import LimitExceeded, TickwheelError, Unauthenticated, Unavailable
from tickwheel.service.token_quota import TokenQuota

pytestmark = pytest.mark.unit

OLD, NEW = ("produce",), ("consume",)


async def waits(quota: TokenQuota, rights: Any) -> None:
    async with quota.track_call(rights, None):
        await asyncio.Event().wait()


@pytest.mark.parametrize("waits_already", [True, False], ids=["while it waits", "before it waits"])
@pytest.mark.parametrize(("withdrawn", "kind"), [(True, Unauthenticated), (False, Unavailable)])
def test_a_call_ends_when_its_token_is_withdrawn_or_has_other_rights(
    waits_already: bool, withdrawn: bool, kind: type[TickwheelError]
) -> None:
    async def program() -> None:
        quota = TokenQuota("shop")
        quota.update_limits(OLD, None, None, None)
        call = asyncio.create_task(waits(quota, OLD))
        if waits_already:
            await asyncio.sleep(0)
        if withdrawn:
            quota.revoke()
        else:
            quota.update_limits(NEW, None, None, None)
        with pytest.raises(kind):
            await asyncio.wait_for(call, 20)

    asyncio.run(program())


def test_a_call_that_has_ended_is_charged_even_if_the_token_is_over_its_rate() -> None:
    quota = TokenQuota("shop")
    quota.charge(5)
    quota.update_limits(OLD, 10, 10, None)
    for _ in range(3):
        quota.charge(100)
    with pytest.raises(LimitExceeded) as refused:
        quota.take(1)
    assert 20_000 < refused.value.retry_after_ms <= 29_000


def test_a_call_continues_when_only_the_limits_of_its_token_change() -> None:
    async def program() -> None:
        quota = TokenQuota("shop")
        quota.update_limits(OLD, None, None, None)
        call = asyncio.create_task(waits(quota, OLD))
        await asyncio.sleep(0)
        quota.update_limits(OLD, 5, None, 7)
        await asyncio.sleep(0)
        assert not call.done()
        call.cancel()

    asyncio.run(program())
