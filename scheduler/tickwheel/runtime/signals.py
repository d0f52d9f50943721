"""Signals that a separate thread handles, and the names of signals.

Python runs a signal handler in the main thread, between two bytecode instructions. This has two problems. A handler
that takes a lock, as `Event.set` does, blocks indefinitely if the interrupted main thread holds this lock. And while
the main thread waits for a lock, no handler runs if the kernel delivers the signal to another thread, as it often does
to a process that was stopped and continued (SIGSTOP, SIGCONT).

So the interpreter writes the number of each signal to a pipe, from the thread that receives the signal
(`signal.set_wakeup_fd`), and a separate thread reads the pipe.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``. If Python knows no name, return ``signal`` and the number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        # The signals between SIGRTMIN and SIGRTMAX, and those that the C library uses itself, have no name.
        return f"signal {number}"


def handle_in_thread(actions: Mapping[signal.Signals, Callable[[], object]]) -> None:
    """Call the action of a signal in a thread, for each of these signals. Must be called once, in the main thread."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    process_id = os.getpid()

    def on_signal(number: int, frame: FrameType | None) -> None:
        # A forked child shares the pipe, and must not write to it.
        if os.getpid() != process_id:
            return
        # If an event loop with its own signal handlers has replaced the descriptor, the interpreter has not written.
        current = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        if current != write_fd:
            with suppress(BlockingIOError):
                os.write(write_fd, bytes((number,)))
            if current != -1:
                signal.set_wakeup_fd(current)

    def handle_signals() -> None:
        while True:
            for number in os.read(read_fd, 4_096):
                # The interpreter writes the numbers of all signals that have a handler.
                if number in actions:
                    actions[signal.Signals(number)]()

    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in actions:
        signal.signal(number, on_signal)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    threading.Thread(target=handle_signals, name="tickwheel-signals", daemon=True).start()
