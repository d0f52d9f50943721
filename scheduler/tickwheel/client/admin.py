"""Runs plans that are not among the public operations, for administrative commands."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from tickwheel.client import connect
from tickwheel.client.backend import Backend
from tickwheel.client.blocking import Tickwheel
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Effects, Plan

T = TypeVar("T")


class Admin:
    """Runs any plan through an open client."""

    def __init__(self, tickwheel: Tickwheel) -> None:
        self._tickwheel = tickwheel

    @property
    def context(self) -> NamespaceContext:
        """The namespace of the client: its name, its shards, and the caches that plans share."""
        return self._tickwheel._context

    @property
    def settings(self) -> ClientSettings:
        """The settings with which the client was opened."""
        return self._tickwheel._client_settings

    @property
    def backend(self) -> Backend:
        """The operations of the client, as plans."""
        return self._tickwheel._backend

    def join_calls(self) -> None:
        """From now on, let all calls of the client count as one call.

        Once one of them has changed data, ``may_have_happened`` is true for each Unavailable.
        """
        self._tickwheel._effects = Effects()

    def run(self, plan: Plan[T]) -> T:
        """Run a plan and return its result. Raises the errors of the plan, and Unavailable."""
        return self._tickwheel._run(plan)


@contextmanager
def unopened_backend(settings: ClientSettings) -> Iterator[tuple[Backend, Callable[[Plan[Any]], Any]]]:
    """Yield a backend whose namespace is not opened, and the function that runs its plans. They count as one call.

    A namespace that is being deleted cannot be opened.
    """
    context = NamespaceContext(settings.namespace)
    processes = LocalProcesses(settings)
    server_url = processes.open()
    try:
        io = connect.blocking_executor(settings, context, processes, server_url)
        try:
            yield connect.select_backend(settings, context), partial(io.run, effects=Effects())
        finally:
            io.close()
    finally:
        processes.close()
