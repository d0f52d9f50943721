"""The target of a command: its server and namespace, from the options and the environment. Opens a client for it.

A command with --app works on the server and in the namespace of a `TaskApp`, as a worker of the app does.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from tickwheel import Tickwheel
from tickwheel.cli.output import print_status
from tickwheel.cli.parameter_types import parse_duration
from tickwheel.client.admin import Admin
from tickwheel.client.settings import ClientSettings, WhereOptions
from tickwheel.errors import InvalidArgument
from tickwheel.rpc.url import is_grpc_url
from tickwheel.runtime.extras import describe_install

if TYPE_CHECKING:
    from tickwheel.tasks.app import TaskApp

# Short, because a person waits for the command. A program that must retry for longer can use the client.
TIMEOUT = timedelta(seconds=5)
# The commands that create a missing namespace: they add messages or queues, drive the wheel, or serve. For all other
# commands, a missing namespace is an error (exit code 4), because the creation fixes the shards and the history of a
# namespace.
# `demo` and `load` create namespaces of their own, and a worker opens the namespace of its application.
CREATING_COMMANDS = frozenset({"bench", "dev", "enqueue", "events", "import celery", "queue create", "serve"})
# The arguments of a client that a command sets itself.
_SET_BY_COMMANDS = ("url", "namespace", "data_dir", "drive", "timeout")


@dataclass(frozen=True, slots=True)
class Target:
    """Server, namespace, timeout and output format of a command. None means not set."""

    url: str | None = field(default=None, repr=False)
    data_dir: Path | None = None
    namespace: str | None = None
    timeout: timedelta | None = None
    json: bool = False
    command: str = ""
    """The command's name with the name of its group, for example ``queue create``."""
    url_is_from_environment: bool = False
    namespace_is_from_environment: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read TICKWHEEL_URL, TICKWHEEL_DATA_DIR, TICKWHEEL_NAMESPACE and TICKWHEEL_TIMEOUT. Raises InvalidArgument."""
        data_dir, timeout = environment.get("TICKWHEEL_DATA_DIR"), environment.get("TICKWHEEL_TIMEOUT")
        return cls(
            environment.get("TICKWHEEL_URL") or None,
            Path(data_dir) if data_dir else None,
            environment.get("TICKWHEEL_NAMESPACE") or None,
            _parse_timeout(timeout) if timeout else None,
            url_is_from_environment=True,
            namespace_is_from_environment=True,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables from which `from_environment` makes a target for the same namespace.

        Child processes receive the variables instead of arguments, because every user of the host can read the
        arguments of a process.
        """
        return {
            "TICKWHEEL_URL": self.url or "",
            "TICKWHEEL_DATA_DIR": "" if self.data_dir is None else str(self.data_dir),
            "TICKWHEEL_NAMESPACE": self.namespace or "",
            "TICKWHEEL_TIMEOUT": "" if self.timeout is None else f"{round(self.timeout.total_seconds() * 1_000)}ms",
        }

    def merged_with(self, other: "Target") -> "Target":
        """Return this target, with the values of ``other`` for the values that are not set in this target.

        If this target has a URL or a data directory, ``other`` supplies neither, because each of them alone determines
        the server.
        """
        server = self if self.url is not None or self.data_dir is not None else other
        named = self if self.namespace is not None else other
        return replace(
            server,
            namespace=named.namespace,
            namespace_is_from_environment=named.namespace_is_from_environment,
            timeout=self.timeout if self.timeout is not None else other.timeout,
            json=self.json or other.json,
        )

    def app_overrides(self) -> dict[str, str]:
        """Return the arguments of an app's client that the options of the command line replace.

        The app's own arguments take precedence over environment variables, which the app reads itself if it has none.
        """
        overrides: dict[str, str] = {}
        if not self.url_is_from_environment:
            overrides = {"url": self.url or "", "data_dir": "" if self.data_dir is None else str(self.data_dir)}
        if not self.namespace_is_from_environment:
            overrides["namespace"] = self.namespace or ""
        return {option: value for option, value in overrides.items() if value}

    def require_redis(self, command: str) -> Self:
        """Return the target, for a command that needs Redis itself. Raises InvalidArgument for a gRPC service."""
        if self.url is not None and is_grpc_url(self.url):
            raise InvalidArgument(
                f"{command} works on the Redis or Valkey server itself: set --url to that server, not to grpc://"
            )
        return self

    def open(
        self,
        *,
        drive: bool = False,
        durability: str | None = None,
        existing: bool = False,
        **namespace: Any,
    ) -> Tickwheel:
        """Open a client of the namespace, whose calls count as one. Only CREATING_COMMANDS create a missing namespace,
        and not with ``existing``.

        With ``drive`` and an embedded server, its event process runs while the client is open, so that timers fire.

        ``namespace`` holds settings of a new namespace. `Tickwheel` checks them against an existing one.
        """
        tickwheel = Tickwheel(
            self.url,
            namespace=self.namespace or "tw",
            data_dir=self.data_dir,
            durability=durability,
            existing=existing or self.command not in CREATING_COMMANDS,
            drive=None if drive else False,
            timeout=TIMEOUT if self.timeout is None else self.timeout,
            **namespace,
        )
        Admin(tickwheel).join_calls()
        return tickwheel


@dataclass(frozen=True, slots=True)
class AppTarget:
    """An app, and the target of a command with this app. ``options`` are further arguments of the app's client."""

    app: "TaskApp"
    target: Target
    options: dict[str, Any] = field(repr=False)

    def open(self, **namespace: Any) -> Tickwheel:
        """Open a client like `Target.open`. Values of ``namespace`` that are not None replace those of the app."""
        given = {name: value for name, value in namespace.items() if value is not None}
        return self.target.open(**{**self.options, **given})


def load_app_target(target: Target, spec: str) -> AppTarget:
    """Load the app ``module:app``. Raises InvalidArgument."""
    try:
        from tickwheel.worker.app_loader import load_app
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"--app needs {error.name}: {describe_install('worker')}") from error

    app = load_app(spec, partial(_move, spec, target.app_overrides()))
    where = app.where
    options = {name: value for name, value in where.items() if name not in _SET_BY_COMMANDS}
    data_dir = None if where["data_dir"] is None else Path(where["data_dir"])
    place = replace(target, url=where["url"], data_dir=data_dir, namespace=where["namespace"])
    return AppTarget(app, place, options)


def _move(spec: str, overrides: dict[str, str], app: "TaskApp") -> None:
    """Let the options of the command line replace the server and the namespace of the app."""
    before = app.where
    app.move(**cast(WhereOptions, overrides))
    after = app.where
    # An app that names no server leaves the choice to the command line.
    if before["url"] is not None or before["data_dir"] is not None:
        _warn_if_different(spec, "the server", _server(before), _server(after))
    _warn_if_different(spec, "the namespace", before["namespace"], after["namespace"])


def _server(where: dict[str, Any]) -> str:
    settings = ClientSettings.validate(where["url"], where["namespace"], where["data_dir"], None, None, None)
    return settings.display_url


def _warn_if_different(spec: str, label: str, own: str, used: str) -> None:
    if own != used:
        print_status(
            f"Warning: {label} of {spec} is {own}, but the command uses {used}, which the options of the command line"
            " name"
        )


def _parse_timeout(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"TICKWHEEL_TIMEOUT: {error}") from error
