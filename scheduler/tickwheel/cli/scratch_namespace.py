"""Deletes the temporary namespace of `tickwheel demo` or `tickwheel load`, and the lock files of its election."""

from collections.abc import Iterator
from pathlib import Path

from tickwheel.cli.target import Target
from tickwheel.client.admin import Admin
from tickwheel.election.lock_file import default_lock
from tickwheel.election.lock_folder import former_lock
from tickwheel.operations.removal.delete_namespace import delete_namespace


def delete_scratch(target: Target) -> None:
    """Delete the target's namespace. No process may be using it."""
    with target.open() as tickwheel:
        admin = Admin(tickwheel)
        admin.run(delete_namespace(admin.context))
    for lock in _election_locks(target):
        lock.unlink(missing_ok=True)


def _election_locks(target: Target) -> Iterator[Path]:
    """Yield the lock files by which event processes were elected for the shards of the deleted namespace."""
    lock = default_lock(target.url, target.namespace or "", target.data_dir)
    for path in filter(None, (lock, former_lock(lock))):
        yield from path.parent.glob(f"{path.name}.*")
