"""Why a worker process has ended: the text that is stored with the messages of its tasks, and the line of the log."""

from typing import Final

from tickwheel.runtime.signals import signal_name

# How a reason begins that is about the process of a task.
ITS_PROCESS: Final = "its worker process "


def exit_reason(code: int) -> str:
    """Return the reason, for the messages of the process. A code below 0 is the number of a signal."""
    return ITS_PROCESS + (f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}")


def describe_exit(pid: int, reason: str) -> str:
    """Return the reason as a sentence about the process, for the log."""
    own = reason.removeprefix(ITS_PROCESS)
    return f"worker process {pid} {own}" if own != reason else f"worker process {pid}: {reason}"


def describe_others(count: int) -> str:
    """Return the end of the line about a first process that ended before it had started: ``count`` others wait."""
    if not count:
        return ""
    others = f"the {count} other processes wait" if count > 1 else "the other process waits"
    return f"; {others} until it has started"
