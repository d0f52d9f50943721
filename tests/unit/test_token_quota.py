"""What a token uses: calls that wait under rights that it has no more, whenever they come to wait."""

import asyncio
from typing import Any

import pytest

from tickwheel import TickwheelError, Unauthenticated, Unavailable
from tickwheel.service.token_quota import TokenQuota

pytestmark = pytest.mark.unit

OLD, NEW = ("produce",), ("consume",)


async def waits(usage: TokenQuota, rights: Any) -> None:
    async with usage.track_call(rights, None):
        await asyncio.Event().wait()


@pytest.mark.parametrize("waits_already", [True, False], ids=["while it waits", "before it waits"])
@pytest.mark.parametrize(("withdrawn", "kind"), [(True, Unauthenticated), (False, Unavailable)])
def test_a_call_ends_when_its_token_is_withdrawn_or_has_other_rights(
    waits_already: bool, withdrawn: bool, kind: type[TickwheelError]
) -> None:
    async def program() -> None:
        usage = TokenQuota("shop")
        usage.update_limits(OLD, None, None, None)
        call = asyncio.create_task(waits(usage, OLD))
        if waits_already:
            await asyncio.sleep(0)
        if withdrawn:
            usage.revoke()
        else:
            usage.update_limits(NEW, None, None, None)
        with pytest.raises(kind):
            await asyncio.wait_for(call, 20)

    asyncio.run(program())


def test_a_call_continues_when_only_the_limits_of_its_token_change() -> None:
    async def program() -> None:
        usage = TokenQuota("shop")
        usage.update_limits(OLD, None, None, None)
        call = asyncio.create_task(waits(usage, OLD))
        await asyncio.sleep(0)
        usage.update_limits(OLD, 5, None, 7)
        await asyncio.sleep(0)
        assert not call.done()
        call.cancel()

    asyncio.run(program())
