"""A child process that works for this program. It is restarted if it dies, and ends when this program ends."""

import logging
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from weakref import WeakSet

from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_fields import log_fields

_log = logging.getLogger("tickwheel")

_STOP_S = 10.0
# The first and the longest wait, in seconds, before a dead child is restarted.
RESTART_BACKOFF_S = (0.1, 10.0)


class ChildProcess:
    """Runs ``command`` until `stop`, with ``environment`` in addition to this program's environment.

    The child's standard input is a pipe that is closed when this program exits or is killed. The child must exit then.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        label: str = "the event process",
        stop_s: float = _STOP_S,
        descriptors: Sequence[int] = (),
    ) -> None:
        """``label`` names the child in the log. `stop` kills a child that has not ended after ``stop_s`` seconds. The
        child inherits the ``descriptors``, under their numbers.
        """
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
        self._process = self._start()
        _children.add(self)
        self._watcher = threading.Thread(target=self._watch, name="tickwheel-child", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        return self._process.pid

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
            self._process.kill()
        self._watcher.join()

    def _start(self) -> subprocess.Popen[bytes]:
        read_end, self._write_end = os.pipe()
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
                return
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
        """Start the child again, unless `stop` was called. Return the error if the system refuses the start."""
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
