"""The child processes of a process."""

from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> set[int]:
    """Return the process ids of the children of all threads of a process: each thread has its own children."""
    return {int(child) for thread in Path(f"/proc/{pid}/task").iterdir() for child in _children_of_thread(thread)}


def _children_of_thread(thread: Path) -> list[str]:
    with suppress(FileNotFoundError):  # the thread has ended
        return (thread / "children").read_text().split()
    return []
