"""What demo and load made for themselves on a server, deleted: a namespace, and the lock files of its election."""

from collections.abc import Iterator
from pathlib import Path

from tickwheel.cli.target import Place
from tickwheel.operations.delete_namespace import delete_namespace
from tickwheel.redis.url import default_lock


def delete_scratch(place: Place) -> None:
    """The namespace of a place. Nobody may be at work in it."""
    with place.open() as tickwheel:
        tickwheel._run(delete_namespace(tickwheel._core))
    for lock in _election_locks(place):
        lock.unlink()


def _election_locks(place: Place) -> Iterator[Path]:
    """The lock files by which an event process was elected for the shards of a namespace that is no more."""
    namespace = place.namespace or ""
    lock = (
        default_lock(place.url, namespace)
        if place.url
        else Path(place.data_dir or "") / f"event-process-{namespace}.lock"
    )
    return lock.parent.glob(f"{lock.name}.*")
