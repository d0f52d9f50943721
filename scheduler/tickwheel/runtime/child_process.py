"""A child process that works for this program. It is restarted if it dies, and ends when this program ends."""

import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from weakref import WeakSet

from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_fields import log_fields

_log = logging.getLogger("tickwheel")

_STOP_S = 10.0
# The first and the longest wait, in seconds, before a dead child is restarted.
RESTART_BACKOFF_S = (0.1, 10.0)
# After a child has run for longer than this, in seconds, the waits start again from the first one.
LONG_LIFE_S = 30.0


class ChildProcess:
    """Runs ``command`` until `stop`, with ``environment`` in addition to this program's environment.

    The child's standard input is a pipe that is closed when this program exits or is killed. The child must exit then.
    A byte in the pipe has the meaning that the child gives it (`send`).
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        label: str = "the event process",
        stop_s: float = _STOP_S,
        descriptors: Sequence[int] = (),
        on_end: Callable[[int], bool] | None = None,
    ) -> None:
        """``label`` names the child in the log. `stop` kills a child that has not ended after ``stop_s`` seconds. The
        child inherits the ``descriptors``, under their numbers.

        If the child ends without `stop`, ``on_end`` is called in another thread, with the exit code. The child is
        restarted unless ``on_end`` returns True, or `send_last` was called.

        Raises OSError or RuntimeError if the host has no resources for the child. Then no child is left.
        """
        self._on_end = on_end
        self._descriptors = descriptors
        self._label = label
        self._stop_s = stop_s
        self._command = list(command)
        self._environment = os.environ | dict(environment or {})
        self._pid = os.getpid()
        self._stopping = threading.Event()
        self._restarting = threading.Lock()
        # This program's end of the pipe that is the child's standard input.
        self._write_end: int | None = None
        self._started = 0.0
        self._has_sent_last = False
        # Before the start: a process that is forked during the start must close the pipe, too.
        _children.add(self)
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, name="tickwheel-child", daemon=True)
        try:
            self._watcher.start()
        except RuntimeError:
            # Nobody would reap the child or start it again.
            self._close_input()
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, data: bytes) -> None:
        """Write to the standard input of the child. Does nothing if the child has ended."""
        with self._restarting, suppress(BrokenPipeError):
            if self._write_end is not None:
                os.write(self._write_end, data)

    def send_last(self, data: bytes) -> None:
        """Write to the standard input of the child, and do not restart the child when it ends. `stop` must follow."""
        self._has_sent_last = True
        self._stopping.set()
        # A restart that has begun ends first, so that the new process gets the data.
        self.send(data)

    def kill(self) -> None:
        """Kill the child, and do not restart it. `stop` must still be called, or must be in progress."""
        self._stopping.set()
        with self._restarting:
            self._process.kill()

    def stop(self) -> None:
        """Stop the child and wait until it has ended. Does nothing in a process forked from this program."""
        if os.getpid() != self._pid:
            return
        self._stopping.set()
        # A restart that has begun ends first, so that this stops the new process.
        with self._restarting:
            self._close_input()
        try:
            self._process.wait(self._stop_s)
        except subprocess.TimeoutExpired:
            _log.warning("%s did not end within %g s: it is killed", self._label, self._stop_s)
            self._process.kill()
        self._watcher.join()

    def _start(self) -> subprocess.Popen[bytes]:
        read_end, self._write_end = os.pipe()
        self._started = time.monotonic()
        try:
            return subprocess.Popen(
                self._command,
                stdin=read_end,
                start_new_session=True,
                env=self._environment,
                pass_fds=self._descriptors,
            )
        except OSError:
            self._close_input()
            raise
        finally:
            os.close(read_end)

    def _close_input(self) -> None:
        write_end, self._write_end = self._write_end, None
        if write_end is not None:
            os.close(write_end)

    def _watch(self) -> None:
        backoff = Backoff(*RESTART_BACKOFF_S)
        while True:
            code = self._process.wait()
            if self._stopping.is_set():
                if self._has_sent_last and self._on_end is not None:
                    self._on_end(code)
                return
            if self._on_end is not None and self._on_end(code):
                return
            if time.monotonic() - self._started > LONG_LIFE_S:
                backoff.reset()
            pause = backoff.next()
            _log.error(
                "%s ended with code %d; restarting it in %.1f s",
                *(self._label, code, pause),
                extra=log_fields("child ended", what=self._label, code=code, again_s=pause),
            )
            while not self._stopping.wait(pause) and (error := self._restart()) is not None:
                pause = backoff.next()
                _log.error(
                    "cannot start %s: %s; retrying in %.1f s",
                    *(self._label, error, pause),
                    extra=log_fields("child not started", what=self._label, reason=str(error), again_s=pause),
                )

    def _restart(self) -> OSError | None:
        """Start the child again, unless it must not run again. Return the error if the system refuses the start."""
        with self._restarting:
            if not self._stopping.is_set():
                self._close_input()
                try:
                    self._process = self._start()
                except OSError as error:
                    return error
        return None


# A process forked from this one must close its copies of the pipes. Otherwise the pipes would stay open after the end
# of this program, and the children would not exit.
_children: WeakSet[ChildProcess] = WeakSet()


def _after_fork_in_child() -> None:
    for child in list(_children):
        child._close_input()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
