"""Values that the shell completes: states, and the names of the queues on a server.

An error must not disturb the command line that the user is typing, so completion then offers nothing.
"""

import logging
from dataclasses import replace
from datetime import timedelta

import typer

from tickwheel.cli.target import Target
from tickwheel.errors import TickwheelError
from tickwheel.operations.removal.purge import PURGE_STATES
from tickwheel.storage.record import State

# A person waits for the completion of a word.
_TIMEOUT = timedelta(seconds=1)
_NAMES = ("url", "namespace")


def complete_state(incomplete: str) -> list[str]:
    """Return the states of messages that begin with the text."""
    return [state.label for state in State if state.label.startswith(incomplete)]


def complete_purged_state(incomplete: str) -> list[str]:
    """Return the states of messages that a purge can remove, and that begin with the text."""
    return [state for state in PURGE_STATES if state.startswith(incomplete)]


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of queues that begin with the text, if the command line or the environment has a URL.

    Without a URL, the answer is empty: an embedded server would have to be started for it.
    """
    target = Target.from_environment()
    for level in (context.find_root(), context):
        options = {name: level.params.get(name) for name in _NAMES}
        target = Target(options["url"], None, options["namespace"]).merged_with(target)
    if target.url is None:
        return []
    logging.getLogger("tickwheel").addHandler(logging.NullHandler())
    try:
        with replace(target, timeout=_TIMEOUT).open() as tickwheel:
            return [queue.name for queue in tickwheel.queues() if queue.name.startswith(incomplete)]
    except (TickwheelError, OSError):
        return []
