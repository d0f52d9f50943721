"""Runs plans that are not among the public operations, for administrative commands, through an open client."""

from typing import TypeVar

from tickwheel.client.blocking import Tickwheel
from tickwheel.client.settings import ClientSettings
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan

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

    def run(self, plan: Plan[T]) -> T:
        """Run a plan and return its result. Raises the errors of the plan, and Unavailable."""
        return self._tickwheel._run(plan)
