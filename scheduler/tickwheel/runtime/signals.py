"""Signals that a separate thread handles, waits that a signal ends, and the names of signals.

Python runs a signal handler in the main thread, between two bytecode instructions. This has two problems. A handler
that takes a lock, as `Event.set` does, blocks indefinitely if the interrupted main thread holds this lock. And while
the main thread waits for a lock, no handler runs if the kernel delivers the signal to another thread, as it often does
to a process that was stopped and continued (SIGSTOP, SIGCONT).

So the interpreter writes the number of each signal to a pipe, from the thread that receives the signal
(`signal.set_wakeup_fd`), and a separate thread reads the pipe. If an event loop with its own signal handlers has
replaced the descriptor, the signal handler writes the number.

A forked child has no such thread. So it handles these signals as a new Python program does: SIGINT raises
KeyboardInterrupt, and the others usually end the child.
"""

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

# The handler adds this bit to the number of the signal. Numbers are at most 64.
_FROM_HANDLER = 128
# The longest time between two reports of the same signal.
_LONGEST_DELAY_S = 0.1
# When a Ctrl-C is repeated that had no effect. Finalizers take less time.
_REPEAT_S = 0.1
# How often the main thread checks for signals while it waits.
_CHECK_S = 0.5


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``. If Python knows no name, return ``signal`` and the number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        # The signals between SIGRTMIN and SIGRTMAX, and those that the C library uses itself, have no name.
        return f"signal {number}"


def wait_interruptibly(event: threading.Event, seconds: float) -> None:
    """Wait until the event is set, for at most ``seconds``. If the main thread waits, signals are handled meanwhile.

    Python checks for signals before it waits for a lock. It does not notice a signal that arrives between the two, or
    that the kernel delivers to another thread. So the wait is divided into short ones, as the library of gRPC does it.
    """
    if threading.current_thread() is not threading.main_thread():
        event.wait(seconds)
        return
    ends = time.monotonic() + seconds
    while not event.wait(min(seconds, _CHECK_S)) and (seconds := ends - time.monotonic()) > 0:
        pass


def interrupt_again() -> None:
    """Send SIGINT to this process again, because KeyboardInterrupt was raised in a finalizer.

    Python ignores all exceptions of finalizers. So the user would have to press Ctrl-C once more. Does nothing while
    the interpreter ends.
    """
    if not threading.main_thread().is_alive():
        return
    timer = threading.Timer(_REPEAT_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


def ignore_sigusr1() -> None:
    """Ignore SIGUSR1, also in the processes that this one starts. Must be called in the main thread.

    Event processes have a use for the signal (docs/operations.md), and an operator may send it to all processes of a
    unit, also to those that still start.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def handle_in_thread(actions: Mapping[signal.Signals, Callable[[], object]]) -> None:
    """Call the action of a signal in a thread, for each of these signals. Must be called once, in the main thread.

    From the interpreter's exit on, the signals are ignored.
    """
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    process_id = os.getpid()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process_id:
            # A forked child whose own handler calls this one. The pipe belongs to the parent.
            signal.signal(number, _default_handler(number))
            signal.raise_signal(number)
            return
        # If an event loop with its own signal handlers has replaced the descriptor, the interpreter has not written.
        current = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        report = number
        if current not in (-1, write_fd):
            signal.set_wakeup_fd(current)
            report |= _FROM_HANDLER
        if current != write_fd:
            with suppress(BlockingIOError):
                os.write(write_fd, bytes((report,)))

    def handle_signals() -> None:
        reports = _Reports()
        while True:
            for report in os.read(read_fd, 4_096):
                number = report & ~_FROM_HANDLER
                # The interpreter writes the numbers of all signals that have a handler.
                if number in actions and reports.is_first(number, report != number):
                    actions[signal.Signals(number)]()

    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in actions:
        signal.signal(number, on_signal)
    threading.Thread(target=handle_signals, name="tickwheel-signals", daemon=True).start()
    _reset_in_forked_children(set(actions), on_signal)
    # At its end, the interpreter restores the default handlers, with which another signal would decide the exit code.
    atexit.register(_ignore, set(actions))


class _Reports:
    """Finds the second of two reports of a signal. Only one of the interpreter and the handler usually reports it.

    Both report a signal that arrives while the handler has replaced the descriptor of an event loop, for microseconds.
    """

    def __init__(self) -> None:
        self._reported_at: dict[tuple[int, bool], float] = {}

    def is_first(self, number: int, from_handler: bool) -> bool:
        now = time.monotonic()
        reported_at = self._reported_at.pop((number, not from_handler), None)
        if reported_at is not None and now < reported_at + _LONGEST_DELAY_S:
            return False
        self._reported_at[number, from_handler] = now
        return True


def _ignore(numbers: set[signal.Signals]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _default_handler(number: int) -> Any:
    """Return the handler of a signal in a new Python program."""
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _reset_in_forked_children(numbers: set[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> None:
    """Restore the default handling of these signals in each process forked from this one, unless code has changed it.

    A forked child shares the pipe. If a signal arrived before the reset, the child would write to the pipe, and this
    process would handle the signal. So the signals are blocked during the fork.
    """
    before = threading.local()

    def block() -> None:
        # A handler may run during the second call, and may raise an error.
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def reset() -> None:
        try:
            signal.set_wakeup_fd(-1)
            for number in numbers:
                if signal.getsignal(number) is handler:
                    signal.signal(number, _default_handler(number))
        finally:
            unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=reset)
