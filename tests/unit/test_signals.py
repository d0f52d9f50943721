"""Signals that arrive at any point of the main thread's work."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import tickwheel
from tickwheel.runtime.signals import signal_name

pytestmark = pytest.mark.unit

# The main thread only uses the event. A handler in the main thread that set the event would deadlock.
PROGRAM = """
import signal, threading
from tickwheel.runtime.signals import handle_in_thread

received, event = 0, threading.Event()

def count():
    global received
    received += 1
    event.set()

handle_in_thread({signal.SIGTERM: count})
print("ready", flush=True)
while received < 200:
    event.wait(0.0001)
    event.clear()
"""


def test_every_signal_has_a_name() -> None:
    assert (signal_name(9), signal_name(32), signal_name(40)) == ("SIGKILL", "signal 32", "signal 40")
    assert all(signal_name(number) for number in range(1, 65))


def test_a_signal_handler_never_waits_for_the_code_that_it_interrupted() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        assert process.returncode in (0, -signal.SIGTERM)


FINALIZER_PROGRAM = """
import signal, threading
from tickwheel.runtime.log_format import print_uncaught

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

print_uncaught(json=False)
Interrupted()
threading.Event().wait()
"""

# The signal arrives in a thread, so the kernel does not end the wait of the main thread.
BLOCKED_PROGRAM = """
import signal, sys, threading
from tickwheel.runtime.signals import wait_interruptibly

event, main = threading.Event(), threading.get_ident()

def interrupt():
    while sys._current_frames()[main].f_code.co_name != "wait":
        pass
    signal.raise_signal(signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
wait_interruptibly(event, 3_600)
"""


@pytest.mark.parametrize("program", [FINALIZER_PROGRAM, BLOCKED_PROGRAM], ids=["finalizer", "another thread"])
def test_ctrl_c_is_never_without_effect(program: str) -> None:
    # Python ends a program with the signal itself if nothing handles KeyboardInterrupt.
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, timeout=60, check=False)
    assert ended.returncode == -signal.SIGINT


# The interpreter deletes the object after it has restored the default signal handlers.
ENDING_PROGRAM = """
import builtins, os, signal, sys
from tickwheel.runtime.signals import handle_in_thread

class Last:
    def __del__(self, write=os.write, read=os.read):
        write(1, b"ending\\n")
        read(0, 1)

handle_in_thread({signal.SIGTERM: lambda: None, signal.SIGINT: lambda: None})
builtins.last = Last()
sys.exit(3)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_interpreter_ends_does_not_change_the_exit_code(number: signal.Signals) -> None:
    command = [sys.executable, "-c", ENDING_PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ending\n"
        process.send_signal(number)
        process.stdin.close()
        assert process.wait(30) == 3


# The main thread waits without a time limit. Other threads are ready to run, so they can receive the signals. If
# only the handler writes, the main thread must wake up from time to time, because no handler runs in another thread.
WAITING_PROGRAM = """
import os, signal, sys, threading, time
from tickwheel.runtime.signals import handle_in_thread

def spin():
    while True:
        time.sleep(0.001)

def answer(text):
    return lambda: os.write(1, text)

handle_in_thread({signal.SIGTERM: answer(b"T"), signal.SIGINT: answer(b"I"), signal.SIGUSR1: answer(b"U")})
for _ in range(3):
    threading.Thread(target=spin, daemon=True).start()
limit = None
PREPARE
os.write(1, b"R")
while True:
    threading.Event().wait(limit)
"""
ANSWERS = {signal.SIGTERM: b"T", signal.SIGINT: b"I", signal.SIGUSR1: b"U"}
# What a program may have done to its signals before it waits.
PREPARATIONS = {
    "nothing": "",
    "another wakeup descriptor": (
        "limit, other = 0.1, os.pipe()[1]; os.set_blocking(other, False); signal.set_wakeup_fd(other)"
    ),
    "no wakeup descriptor": "limit = 0.1; signal.set_wakeup_fd(-1)",
    "a forked child": "if os.fork() == 0: os.kill(os.getpid(), signal.SIGUSR1); os._exit(0)\nos.wait()",
}


@pytest.mark.parametrize("number", ANSWERS)
def test_a_process_that_was_stopped_and_continued_handles_its_signals(number: signal.Signals) -> None:
    with _waiting_program("nothing") as process:
        for _ in range(20):
            os.kill(process.pid, signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            os.kill(process.pid, number)
            os.kill(process.pid, signal.SIGCONT)
            assert _next_byte(process) == ANSWERS[number]


# The modules that set handlers of the main thread: for an alarm, in an event loop that the handler wakes, or in a
# program whose main thread never waits for a lock, or only imports modules.
MAIN_THREAD = {
    "cli/commands/demo.py",
    "cli/commands/load.py",
    "cli/commands/serve.py",
    "cli/imports.py",
    "cli/service_process.py",
    "runtime/signals.py",
    "worker/time_limit.py",
}


def test_only_known_modules_handle_signals_in_the_main_thread() -> None:
    sources = Path(tickwheel.__file__).parent
    found = {
        str(path.relative_to(sources))
        for path in sources.rglob("*.py")
        if re.search(r"signal\.signal\(|\.add_signal_handler\(", path.read_text())
    }
    assert found == MAIN_THREAD, "use tickwheel.runtime.signals.handle_in_thread"


@pytest.mark.parametrize("preparation", ["another wakeup descriptor", "no wakeup descriptor", "a forked child"])
def test_each_signal_is_handled_once_even_if_the_wakeup_descriptor_was_replaced(preparation: str) -> None:
    with _waiting_program(preparation) as process:
        for number in [*ANSWERS] * 3:
            os.kill(process.pid, number)
            assert _next_byte(process) == ANSWERS[number]


@contextmanager
def _waiting_program(preparation: str) -> Iterator["subprocess.Popen[bytes]"]:
    program = WAITING_PROGRAM.replace("PREPARE", PREPARATIONS[preparation])
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            assert _next_byte(process) == b"R"
            yield process
        finally:
            process.kill()


def _next_byte(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0], "the program did not answer in 60 s"
    return process.stdout.read(1)


# The child of each of these programs inherits the handlers of the program.
PARENT = """
import multiprocessing, signal, sys, threading
from tickwheel.runtime.signals import handle_in_thread

handle_in_thread({signal.SIGTERM: lambda: print("handled", flush=True), signal.SIGINT: lambda: None})
forking = multiprocessing.get_context("fork")
ready = forking.Event()

def wait():
    ready.set()
    threading.Event().wait()

def end_a_child():
    child = forking.Process(target=wait)
    child.start()
    ready.wait()
    child.terminate()
    child.join()
    print(child.exitcode)
"""
CHILDREN = {
    "process": "end_a_child()",
    "pool": """
with forking.Pool(2) as pool:
    pool.apply_async(wait)
    ready.wait()
print(-signal.SIGTERM)
""",
    # The signal often arrives before the child has executed anything.
    "process that was just started": """
codes = set()
for _ in range(50):
    child = forking.Process(target=wait)
    child.start()
    child.terminate()
    child.join()
    codes.add(child.exitcode)
print(*codes)
""",
    # A library may set a handler that calls the earlier one.
    "process with a handler that calls the earlier one": """
earlier = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda number, frame: earlier(number, frame))
end_a_child()
""",
    "process of another thread": """
thread = threading.Thread(target=end_a_child)
thread.start()
thread.join()
""",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_a_forked_child_ends_at_a_signal_that_its_parent_handles(child: str) -> None:
    command = [sys.executable, "-c", PARENT + CHILDREN[child]]
    # The program leads a process group, so that its children end with it.
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.communicate(timeout=30)[0] == b"-15\n"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
