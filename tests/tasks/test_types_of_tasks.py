"""The types of tasks and their calls, as mypy sees them. `make lint` checks this file, too."""

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, assert_type

from tickwheel.tasks import EnqueuedCall, Task, TaskApp, TaskHandle

ROOT = Path(__file__).resolve().parents[2]
app = TaskApp("redis://localhost:1")


@app.task
async def plain_async(user: int) -> str:
    return f"user {user}"


@app.task(queue="mail")
async def async_with_settings(user: int) -> list[int]:
    return [user]


@app.task
async def without_value() -> None: ...


@app.task
def plain_sync(user: int) -> str:
    return f"user {user}"


@app.task(queue="mail")
def sync_with_settings(user: int) -> int:
    return user


def calls_and_their_results(at: datetime) -> None:
    assert_type(plain_async.now(1).result(wait=3), str)
    assert_type(plain_async.later(1, 1).result(), str)
    assert_type(plain_async.at(at, 1).result(), str)
    assert_type(async_with_settings.now(1), EnqueuedCall[list[int]])
    assert_type(async_with_settings.with_options(id="1").now(1).result(), list[int])
    assert_type(async_with_settings.handle("1"), TaskHandle[list[int]])
    assert_type(async_with_settings.handle("1").result(), list[int])
    assert_type(without_value.now(), EnqueuedCall[None])
    assert_type(plain_sync.now(1).result(), str)
    assert_type(plain_sync.later(1, 1), EnqueuedCall[str])
    assert_type(plain_sync.at(at, 1), EnqueuedCall[str])
    assert_type(sync_with_settings.now(1).result(), int)
    assert_type(sync_with_settings.handle("1"), TaskHandle[int])


async def calls_with_asyncio(at: datetime) -> None:
    assert_type(await plain_async(1), str)
    assert_type(await plain_async.now(1).aresult(), str)
    assert_type(await (await plain_async.anow(1)).aresult(), str)
    assert_type(await async_with_settings.alater(1, 1), EnqueuedCall[list[int]])
    assert_type(await async_with_settings.aat(at, 1), EnqueuedCall[list[int]])
    assert_type(await async_with_settings.handle("1").aresult(), list[int])
    assert_type(plain_sync(1), str)
    assert_type(await plain_sync.anow(1), EnqueuedCall[str])
    assert_type(await sync_with_settings.alater(1, 1), EnqueuedCall[int])
    assert_type(await sync_with_settings.aat(at, 1), EnqueuedCall[int])


def any_task(task: Task[..., Any]) -> None:
    assert_type(task.now(1), EnqueuedCall[Any])


def wrong_arguments() -> None:
    plain_async.now("1")  # type: ignore[call-overload]
    plain_sync.later(1, "1")  # type: ignore[arg-type]


def test_mypy_knows_the_awaited_type_of_an_async_task(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), __file__]

    mypy = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert mypy.returncode == 0, mypy.stdout + mypy.stderr
