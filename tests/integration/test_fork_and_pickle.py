"""Clients and messages in other processes: a fork opens its own client, and pickled messages carry no client."""

import asyncio
import copy
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.blocking_aio import aio_sandbox
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, TickwheelError
from tickwheel.runtime.child_process import ChildProcess
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.integration


def test_a_pickled_message_is_completed_by_a_client_of_the_other_process(
    tickwheel_server: PrivateServer,
) -> None:
    with sandbox(tickwheel_server) as (tickwheel, _):
        queue = tickwheel.create_queue("q")
        queue.enqueue_many(NewMessage(bytes(2_000), id=id, metadata={"a": "b"}) for id in ("a", "b"))
        messages = queue.dequeue(2)
        copies = pickle.loads(pickle.dumps(messages))
        for message, twin in zip(messages, copies, strict=True):
            for name in ("id", "payload", "metadata", "token", "due", "deadline", "lease_until", "attempt", "version"):
                assert getattr(twin, name) == getattr(message, name)
            with pytest.raises(TickwheelError, match=r"finish it here by queue\.complete_many"):
                twin.complete()
        queue.complete_many(copies)
        assert queue.counts()["completed"] == 2


def test_a_copy_of_a_message_can_be_settled(tickwheel_server: PrivateServer) -> None:
    with sandbox(tickwheel_server) as (tickwheel, _):
        queue = tickwheel.create_queue("q")
        queue.enqueue_many([NewMessage(), NewMessage()])
        first, second = queue.dequeue(2)
        copy.copy(first).complete()
        copy.deepcopy(second).complete()
        assert queue.counts()["completed"] == 2


def in_a_fork(work: Callable[[], object]) -> str:
    """Run a function in a forked process; raise its Tickwheel error or return its result."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            report = repr(work())
        except TickwheelError as error:
            report = str(error)
        except BaseException as error:
            report = f"not ours: {error!r}"
        os.write(write, report.encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        report = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return report


def test_a_forked_process_cannot_use_the_client_and_takes_nothing_from_its_parent(
    tickwheel_server: PrivateServer,
) -> None:
    with sandbox(tickwheel_server) as (tickwheel, _):
        queue = tickwheel.create_queue("q")
        queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(4))
        [first] = queue.dequeue()
        queue.cancel("m3")
        for call in (lambda: queue.dequeue(), lambda: queue.cancel("m2"), first.complete, queue.counts):
            assert f"was opened by process {os.getpid()}, from which this process" in in_a_fork(call)

        def elsewhere() -> list[str]:
            with Tickwheel(tickwheel_server.url, namespace=tickwheel._context.namespace, clock="_clock_test") as own:
                return [message.id for message in own.queue("q").dequeue()]

        assert in_a_fork(elsewhere) == "['m1']"
        assert in_a_fork(tickwheel.close) == "None"
        first.complete()
        assert [message.id for message in queue.dequeue()] == ["m2"]
        assert queue.counts() == {**dict.fromkeys(queue.counts(), 0), "running": 2, "completed": 1, "cancelled": 1}


def test_a_task_app_that_its_parent_has_used_opens_clients_of_its_own_in_forked_processes(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    with TaskApp(tickwheel_server.url, namespace=namespace) as app:

        @app.task(name="send", queue="mail")
        def send(user: int) -> None: ...

        async def send_async(user: int) -> bool:
            return (await send.anow(user)).created

        assert send.now(1).created
        assert in_a_fork(lambda: send.now(2).created) == "True"
        assert in_a_fork(lambda: asyncio.run(send_async(3))) == "True"
        assert in_a_fork(app.close) == "None"
        assert send.now(4).created
        assert app.tickwheel.queue("mail").counts()["pending"] == 4


def test_a_forked_process_cannot_use_an_asyncio_client(tickwheel_server: PrivateServer) -> None:
    with aio_sandbox(tickwheel_server) as (tickwheel, _):
        queue = tickwheel.create_queue("q")
        theirs = queue._awaited  # type: ignore[attr-defined]
        report = in_a_fork(lambda: asyncio.run(theirs.counts()))
        assert f"was opened by process {os.getpid()}, from which this process" in report
        assert queue.enqueue().created


def test_a_forked_process_that_closes_or_ends_does_not_affect_the_event_process(tmp_path: Path) -> None:
    with Tickwheel(data_dir=tmp_path) as tickwheel:
        child = tickwheel._processes._child
        assert isinstance(child, ChildProcess)
        pid = child.pid
        assert in_a_fork(tickwheel.close) == "None"
        assert (child.pid, child._process.poll()) == (pid, None)
        assert tickwheel.queue("q").enqueue().created


def test_the_event_process_ends_with_its_parent_though_a_forked_process_continues(tmp_path: Path) -> None:
    program = """
import os, sys, time, signal, tickwheel
tw = tickwheel.Tickwheel(data_dir=sys.argv[1])
fork = os.fork()
if fork == 0:
    signal.pause()
print(tw._processes._child.pid, fork, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        event_process, fork = (int(pid) for pid in parent.stdout.readline().split())
        parent.kill()
    try:
        eventually(lambda: not Path(f"/proc/{event_process}").exists(), "the event process has ended")
        assert Path(f"/proc/{fork}").exists()
    finally:
        os.kill(fork, signal.SIGKILL)
