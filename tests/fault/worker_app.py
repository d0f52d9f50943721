"""The app for the worker tests: tasks that wait, hang, block the interpreter or kill their process.

Each task appends lines to the file that RECORD names: an action, and the id and attempt of its message. If the file
that EXIT_IF names exists, the import of the app ends the process with code 0. If DISABLE_LOG is set, the app disables
the logger of the worker, as a configuration of all loggers can do. The import of the app lasts as long as the file that
LOAD_WHILE names exists. Then it starts a thread that does not end if LEAVE_THREAD is set, and fails if FAIL_LOAD is
set.
"""

import asyncio
import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tickwheel.errors import TickwheelError
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks import Middleware, Outcome, Reject, Retry, RetryLater, Run, TaskApp, TaskQueue, current
from tickwheel.worker.consumer import Consumer
from tickwheel.worker.selectors import QueueSelector, Selection


class RecordingMiddleware(Middleware):
    """Records each of its calls."""

    def startup(self, app: TaskApp) -> None:
        write("startup")

    def shutdown(self, app: TaskApp) -> None:
        write("shutdown")

    def before_batch(self, queue: str, messages: Sequence[LeasedMessage]) -> None:
        write(f"batch {queue} {len(messages)}")

    def after_batch(self, queue: str, outcomes: Sequence[Outcome]) -> None:
        write(f"ran {queue} {len(outcomes)}")


class SlowMiddleware(Middleware):
    """Takes as many seconds as the arguments of the task demand."""

    def before_task(self, run: Run) -> None:
        time.sleep(run.arguments.get("before_s", 0))

    def after_task(self, run: Run, outcome: Outcome) -> None:
        time.sleep(run.arguments.get("after_s", 0))


RECORD = Path(os.environ.get("RECORD", "/dev/null"))
TIMEOUT = timedelta(seconds=float(os.environ.get("TIMEOUT", "30")))
app = TaskApp(timeout=TIMEOUT)
PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
WORK: dict[str, Any] = {"lease": timedelta(seconds=1), "backoff": timedelta(0)}
app.queue("work", batch=10, **WORK)
app.add_middleware(SlowMiddleware())
if os.environ.get("MIDDLEWARE"):
    app.add_middleware(RecordingMiddleware())
app.queue("other", weight=5, lease=timedelta(seconds=1))


def write(line: str) -> None:
    """Append a whole line to the record, so that the line survives a crash of the process."""
    with RECORD.open("a") as file:
        file.write(f"{line}\n")


if Path(os.environ.get("EXIT_IF", "/no-such-file")).exists():
    write("import")
    os._exit(0)


if os.environ.get("DISABLE_LOG"):
    logging.getLogger("tickwheel.worker").disabled = True


if (loading := Path(os.environ.get("LOAD_WHILE", "/no-such-file"))).exists():
    write("loading")
    while loading.exists():
        time.sleep(0.01)
    if os.environ.get("LEAVE_THREAD"):
        threading.Thread(target=threading.Event().wait).start()
    if os.environ.get("FAIL_LOAD"):
        app.queue("schedules")


class LastQueueSelector(QueueSelector[TaskQueue]):
    """Checks all queues, and chooses the last."""

    def select_queue(self) -> Selection[TaskQueue]:
        for queue in self.queues:  # noqa: UP028  # `yield from` a tuple fails on send()
            yield queue
        return self.queues[-1]


def record(action: str) -> None:
    """Append an action with the id and attempt of the current message."""
    message = current().message
    write(f"{action} {message.id} {message.attempt}")


@app.task(queue="work")
def double(n: int) -> int:
    record("double")
    return 2 * n


@app.task(queue="work")
async def double_async(n: int) -> int:
    await asyncio.sleep(0)
    record("double_async")
    log_line.function()
    return 2 * n


@app.task(queue="work")
def log_line() -> None:
    logging.getLogger("courier").info("a line of %s", "the application")


def close_app_and_send(n: int) -> None:
    """Closes the app as a function of a library does, which programs call, too."""
    with app:
        double.now(n)
    app.close()


@app.task(queue="work")
def close_app(n: int) -> None:
    close_app_and_send(n)


@app.task(queue="work")
async def close_app_async(n: int) -> None:
    async with app:
        await double.anow(n)
    await app.aclose()


@app.task(queue="work")
def close_app_in_own_loop(n: int) -> None:
    async def send() -> None:
        async with app:
            client = await app._clients.current.client_async()
            await double.anow(n)
        # Nothing else could close the client of this loop.
        try:
            await client.queues()
        except TickwheelError:
            record("closed")

    asyncio.run(send())


@app.task(queue="work")
def move_app(n: int) -> None:
    """Sends a task to another namespace."""
    where = app.where["namespace"]
    app.move(namespace=f"{where}-other")
    double.now(n)
    app.move(namespace=where)


@app.task(queue="work")
def move_and_close_app(n: int) -> None:
    """Closes the app while its client is in another namespace, and then uses the client, as another thread may do."""
    where = app.where["namespace"]
    app.move(namespace=f"{where}-other")
    client = app.tickwheel
    close_app_and_send(n)
    client.queues()
    app.move(namespace=where)
    # The worker uses this client.
    client = app.tickwheel
    app.close()
    client.queues()


@app.task(queue="work")
def fail_in_thread(text: str) -> None:
    """Starts a thread that ends with an uncaught exception."""

    def fail() -> None:
        raise ValueError(text)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    record("joined")


def run_until_exists(path: str) -> None:
    record("began")
    while not Path(path).exists():
        time.sleep(0.01)
    record("ended")


@app.task(queue="work")
def wait_for(path: str) -> None:
    """Runs until a file exists."""
    run_until_exists(path)


@app.task(queue="work")
def wait_for_stop() -> None:
    """Runs until the process stops: no other task of its batch begins afterwards."""
    record("began")
    [consumer] = [found for found in gc.get_objects() if isinstance(found, Consumer)]
    consumer._stopping.wait(20)


@app.task(queue="work")
async def await_for(path: str) -> None:
    """Runs until a file exists, and lets other tasks run."""
    record("began")
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    record("ended")


@app.task(queue="work")
def wait_until_lost() -> None:
    """Runs until its lease is lost."""
    record("began")
    while not current().is_lost():
        time.sleep(0.01)
    record("lost")


@app.task(queue="work")
def block_interpreter(seconds: float) -> None:
    """Holds the GIL: no other thread of the process runs in the meantime."""
    record("began")
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    record("ended")


@app.task(queue="work", time_limit=timedelta(milliseconds=300), max_attempts=1)
def hang() -> None:
    record("began")
    while True:
        try:
            time.sleep(0.05)
        except Exception:  # noqa: S112  # like careless code
            continue


@app.task(queue="work", time_limit=timedelta(milliseconds=300), max_attempts=1)
async def hang_async() -> None:
    record("began")
    await asyncio.sleep(3_600)


@app.task(queue="work", time_limit=timedelta(milliseconds=300), max_attempts=1)
def hang_outside() -> None:
    """Hangs in C code, which no Python exception interrupts."""
    record("began")
    while True:
        ctypes.PyDLL(None).usleep(900_000)


@app.task(queue="work", time_limit=timedelta(milliseconds=300), max_attempts=1)
def ignore_time_limit() -> None:
    """Stays in C code without the GIL, so that other threads continue, for longer than the worker waits."""
    record("began")
    ctypes.CDLL(None).sleep(300)


@app.task(queue="work", time_limit=timedelta(seconds=2), max_attempts=1)
def take_time(seconds: float, before_s: float = 0, after_s: float = 0) -> None:
    """Runs for some seconds. The middleware takes more."""
    time.sleep(seconds)


@app.task(queue="work", time_limit=timedelta(seconds=2), max_attempts=1)
def take_time_twice(seconds: float) -> Awaitable[None]:
    """Runs for some seconds, and returns an awaitable that takes as long."""
    time.sleep(seconds)
    return asyncio.sleep(seconds)


@app.task(queue="work", max_attempts=3)
def poison() -> None:
    record("poison")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="work", max_attempts=2, retry=Retry(timedelta(0), timedelta(0)))
def boom(text: str) -> None:
    record("boom")
    raise ValueError(text)


class Mute(Exception):
    """An exception whose `str()` fails."""

    def __str__(self) -> str:
        raise KeyError("text")


@dataclass
class Picky:
    """An argument type that refuses negative numbers."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise KeyError(self.n)


@app.task(queue="work", max_attempts=1)
def leave() -> None:
    sys.exit("as a command does")


@app.task(queue="work", max_attempts=1)
async def leave_async() -> None:
    sys.exit("as a command does")


@app.task(queue="work", max_attempts=1)
def cancel_itself() -> None:
    raise asyncio.CancelledError


@app.task(queue="work", max_attempts=1)
def mute() -> None:
    raise Mute


@app.task(queue="work", max_attempts=1)
def garble() -> None:
    raise ValueError("\udcff")


@app.task(queue="work", max_attempts=1)
def pick(of: Picky) -> None: ...


@app.task(queue="work")
def read_input() -> str:
    """Returns the input of a program that the task starts."""
    return subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout.decode()


def leave_a_child() -> None:
    child = os.fork()
    if child == 0:
        time.sleep(300)
        os._exit(0)
    write(f"child {child}")


@app.task(queue="work", max_attempts=1)
def leave_a_child_and_die() -> None:
    leave_a_child()
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="work", max_attempts=1)
def leave_a_child_and_exit() -> None:
    """Ends the process as if no error had occurred."""
    leave_a_child()
    os._exit(0)


def wait_for_ever() -> None:
    threading.Event().wait()


@app.task(queue="work")
def break_pool() -> str:
    """Kills one of the processes of a pool. The pool then terminates the others."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        calls = [pool.submit(wait_for_ever) for _ in range(2)]
        os.kill(next(iter(pool._processes)), signal.SIGKILL)
    return type(calls[1].exception()).__name__


@app.task(queue="work")
def interrupt_program() -> int:
    """Interrupts a program as the terminal does. Returns its exit code."""
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], **PIPES) as program:
        assert program.stdout is not None
        program.stdout.readline()
        program.send_signal(signal.SIGINT)
        return program.wait(20)


@app.task(queue="work", max_attempts=1)
def close_all_files() -> None:
    """Closes all file descriptors, like a program that becomes a daemon."""
    write("closing")
    os.closerange(0, 1_000)


@app.task(queue="work")
def reject(text: str) -> None:
    raise Reject(text)


@app.task(queue="work")
def try_later() -> str:
    if current().message.attempt == 1:
        raise RetryLater(timedelta(milliseconds=1))
    return "done"


@app.task(queue="work")
def grow(mib: int) -> int:
    """Allocates memory and keeps it."""
    _kept.append(bytearray(os.urandom(1024) * 1024 * mib))
    return os.getpid()


_kept: list[bytearray] = []


@app.task(queue="work")
def leave_a_thread() -> int:
    """Starts a thread that prevents the end of the interpreter."""
    threading.Thread(target=wait_for_ever).start()
    return os.getpid()


class FailingSelector(QueueSelector[TaskQueue]):
    """Fails once a thread prevents the end of the interpreter."""

    def select_queue(self) -> Selection[TaskQueue]:
        if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
            raise RuntimeError("no queue")
        for queue in self.queues:
            if (yield queue):
                return queue
        return self.queues[0]
