"""The embedded server and its program are killed: acknowledged messages still exist after a restart."""

import os
import random
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.doctor import audit
from tickwheel.embedded import EmbeddedServer

pytestmark = pytest.mark.fault

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.fault.enqueuer"]


def test_acknowledged_data_outlives_program_and_server(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(3), set[str]()
    data, record = tmp_path / "data", tmp_path / "record.txt"
    for crash in range(4):
        with record.open("wb") as written:
            program = subprocess.Popen([*PROGRAM, str(data), str(crash * 100_000)], cwd=ROOT, stdout=written)
        wanted = chance.randrange(100, 10_000)
        eventually(lambda: record.stat().st_size > wanted, "the program has enqueued messages")  # noqa: B023
        # Kill the server or the program first, in both cases during a call.
        if chance.randrange(2):
            kill_server(data)
        program.kill()
        program.wait(20)
        # A program whose server was killed may have started another server. Kill this server, too.
        kill_server(data)
        # The last line may be incomplete.
        complete, _, _ = record.read_text().rpartition("\n")
        acknowledged |= set(complete.split())

    with Tickwheel(data_dir=data, drive=False) as tickwheel:
        messages = {message.id: message for message in tickwheel.queue("work").messages()}
        assert tickwheel._run(audit(tickwheel._context)) == []
    assert len(acknowledged) > 50
    assert acknowledged <= messages.keys()
    assert all(len(message.payload) in (0, 1_500, 3_000) for message in messages.values())


def test_clients_continue_after_their_server_is_killed(tmp_path: Path) -> None:
    with Tickwheel(data_dir=tmp_path) as tickwheel:
        work = tickwheel.create_queue("work", lease=timedelta(minutes=10))
        done: list[str] = []
        errors: list[BaseException] = []
        stopping = threading.Event()

        def enqueue_and_complete(name: str) -> None:
            try:
                for n in range(100_000):
                    if stopping.is_set():
                        break
                    work.enqueue(b"x", id=f"{name}-{n}", delay=timedelta(milliseconds=n % 2 * 5))
                    for message in work.dequeue(limit=2):
                        message.complete()
                        done.append(message.id)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=enqueue_and_complete, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            before = len(done)
            eventually(lambda: len(done) > before + 30, "messages are completed")  # noqa: B023
            kill_server(tmp_path)
        before = len(done)
        eventually(lambda: len(done) > before + 30, "messages are completed after the last crash")
        stopping.set()
        for thread in threads:
            thread.join(30)
        assert errors == []
        while message := work.dequeue(wait=timedelta(milliseconds=500)):
            message[0].complete()
            done.append(message[0].id)
        assert len(done) == len(set(done)) == work.counts()["completed"]
        assert set(work.counts().items()) <= {("completed", len(done)), *((state, 0) for state in work.counts())}
        assert tickwheel._run(audit(tickwheel._context)) == []


def kill_server(data: Path) -> None:
    """Kill the embedded server if one runs."""
    pid = EmbeddedServer(data).pid
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
