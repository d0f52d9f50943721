"""An asyncio client opens once, in one event loop; a cancelled opening is undone completely."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration.blocking_aio import aio_sandbox
from tests.integration.embedded.programs import is_server_alive
from tests.integration.test_event_loops import ANOTHER_LOOP, in_another_loop
from tests.integration.test_fork_and_pickle import in_a_fork
from tests.support.wait_until import eventually
from tickwheel import TickwheelError, aio
from tickwheel.embedded.valkey_process import ValkeyProcess
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


def event_processes(data_dir: Path) -> list[str]:
    """Return the processes that were started to drive the wheel of the directory."""
    names = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"tickwheel.event_process" in words and str(data_dir).encode() in words:
            names.append(file.parent.name)
    return names


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def no_server(data_dir: Path) -> bool:
    return not (data_dir / "server.lock").exists() or not is_server_alive(data_dir)


def test_opening_an_open_client_does_nothing(data_dir: Path) -> None:
    async def main() -> None:
        tw = await aio.Tickwheel(data_dir=data_dir).open()
        connections = tw._io
        async with tw as again:
            assert again is tw
            assert tw._io is connections
            assert len(event_processes(data_dir)) == 1
        assert event_processes(data_dir) == []

    asyncio.run(main())
    assert not is_server_alive(data_dir)


def test_tasks_that_open_a_client_at_once_open_it_once(data_dir: Path) -> None:
    async def main() -> None:
        tw = aio.Tickwheel(data_dir=data_dir)
        assert await asyncio.gather(*(tw.open() for _ in range(3))) == [tw] * 3
        assert len(event_processes(data_dir)) == 1
        await tw.queue("q").enqueue()
        await tw.close()
        assert event_processes(data_dir) == []

    asyncio.run(main())
    assert not is_server_alive(data_dir)


def test_a_task_waiting_for_an_opening_that_is_cancelled_opens_the_client(tickwheel_server: PrivateServer) -> None:
    async def main() -> None:
        tw = aio.Tickwheel(tickwheel_server.url, namespace="opening")
        first, second = asyncio.create_task(tw.open()), asyncio.create_task(tw.open())
        await asyncio.sleep(0)
        first.cancel()
        assert await second is tw
        assert first.cancelled()
        assert await tw.queues() == []
        await tw.close()

    asyncio.run(main())
    tickwheel_server.clear("opening")


def test_a_client_that_is_open_is_not_opened_in_another_loop(tickwheel_server: PrivateServer) -> None:
    async def main() -> None:
        async with aio.Tickwheel(tickwheel_server.url, namespace="opening") as tw:
            with pytest.raises(TickwheelError, match=f"{ANOTHER_LOOP}.*open a separate client"):
                raise await in_another_loop(tw.open)
            assert await tw.queues() == []

    asyncio.run(main())
    tickwheel_server.clear("opening")


def test_a_client_that_is_being_opened_is_not_opened_in_another_loop(data_dir: Path) -> None:
    async def main() -> None:
        tw = aio.Tickwheel(data_dir=data_dir)
        opening = asyncio.create_task(tw.open())
        await asyncio.sleep(0)
        refused = await in_another_loop(tw.open)
        await opening
        await tw.close()
        with pytest.raises(TickwheelError, match=ANOTHER_LOOP):
            raise refused

    asyncio.run(main())
    assert not is_server_alive(data_dir)


def test_a_closed_client_opens_again_in_any_loop(tickwheel_server: PrivateServer) -> None:
    tw = aio.Tickwheel(tickwheel_server.url, namespace="opening")

    async def used() -> None:
        # Tasks that wait for each other bind a lock to their loop.
        await asyncio.gather(*(tw.open() for _ in range(3)))
        await tw.queue("q").enqueue()
        await asyncio.gather(*(tw.close() for _ in range(3)))

    async def twice() -> None:
        await used()
        await used()

    asyncio.run(twice())
    asyncio.run(twice())
    tickwheel_server.clear("opening")


def test_a_forked_process_opens_the_client_that_it_inherited(tickwheel_server: PrivateServer) -> None:
    with aio_sandbox(tickwheel_server) as (opened, _):
        theirs: aio.Tickwheel = opened._awaited  # type: ignore[attr-defined]

        async def used() -> list[aio.Queue]:
            async with theirs as tw:
                return await tw.queues()

        assert in_a_fork(lambda: asyncio.run(used())) == "[]"
        assert opened.queues() == []


def test_a_cancelled_close_leaves_no_server(data_dir: Path) -> None:
    async def main() -> None:
        tw = await aio.Tickwheel(data_dir=data_dir).open()
        await tw.queue("q").dequeue(wait=timedelta(milliseconds=1))
        closing = asyncio.create_task(tw.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        assert event_processes(data_dir) == []
        assert no_server(data_dir)

    asyncio.run(main())


@pytest.mark.parametrize("ms", [0, 1, 5, 10, 20, 35, 50, 75, 100, 150])
def test_an_opening_that_times_out_leaves_no_server(data_dir: Path, ms: int) -> None:
    async def main() -> None:
        try:
            async with asyncio.timeout(ms / 1000), aio.Tickwheel(data_dir=data_dir):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            assert event_processes(data_dir) == []
            assert no_server(data_dir)

    try:
        asyncio.run(main())
        # No thread of the client continues after its loop has ended.
        assert no_server(data_dir)
    finally:
        ValkeyProcess(data_dir, data_dir).kill()


def test_a_program_that_ends_while_it_opens_leaves_no_server(data_dir: Path) -> None:
    async def main() -> None:
        opening = asyncio.create_task(aio.Tickwheel(data_dir=data_dir).open())
        await asyncio.sleep(0)
        assert not opening.done()

    try:
        asyncio.run(main())
        eventually(lambda: no_server(data_dir), "the server has ended")
    finally:
        ValkeyProcess(data_dir, data_dir).kill()
