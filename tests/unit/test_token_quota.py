"""What a token uses: calls that wait under rights that it has no more, whenever they come to wait."""

import asyncio
from typing import Any

import pytest

from tickwheel import TickwheelError, Unauthenticated, Unavailable
from tickwheel.service.token_quota import Usage

pytestmark = pytest.mark.unit

OLD, NEW = ("produce",), ("consume",)


async def waits(usage: Usage, rights: Any) -> None:
    async with usage.under_way(rights, None):
        await asyncio.Event().wait()


@pytest.mark.parametrize("waits_already", [True, False], ids=["while it waits", "before it waits"])
@pytest.mark.parametrize(("withdrawn", "kind"), [(True, Unauthenticated), (False, Unavailable)])
def test_a_call_ends_when_its_token_is_withdrawn_or_has_other_rights(
    waits_already: bool, withdrawn: bool, kind: type[TickwheelError]
) -> None:
    async def program() -> None:
        usage = Usage("shop")
        usage.allow(OLD, None, None, None)
        call = asyncio.create_task(waits(usage, OLD))
        if waits_already:
            await asyncio.sleep(0)
        if withdrawn:
            usage.withdraw()
        else:
            usage.allow(NEW, None, None, None)
        with pytest.raises(kind):
            await asyncio.wait_for(call, 20)

    asyncio.run(program())


def test_a_call_goes_on_when_its_token_has_other_limits() -> None:
    async def program() -> None:
        usage = Usage("shop")
        usage.allow(OLD, None, None, None)
        call = asyncio.create_task(waits(usage, OLD))
        await asyncio.sleep(0)
        usage.allow(OLD, 5, None, 7)
        await asyncio.sleep(0)
        assert not call.done()
        call.cancel()

    asyncio.run(program())
