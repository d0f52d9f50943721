"""What a client starts on its own machine: the embedded server, the event process as a child, and a check of others."""

from tickwheel.client.last_resort import LastResort, LastResortOptions
from tickwheel.client.settings import ClientSettings
from tickwheel.client.undriven_notice import UndrivenNotice
from tickwheel.embedded import EmbeddedServer
from tickwheel.redis import url as redis_url
from tickwheel.runtime.child_process import ChildProcess
from tickwheel.runtime.python_command import python_module


class LocalProcesses:
    """Starts, restarts and stops the local processes of one client, if its settings ask for them."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.server: EmbeddedServer | None = None
        if settings.url is None:
            always = settings.durability.name == "fsync"
            self.server = EmbeddedServer(settings.data_dir, appendfsync="always" if always else "everysec")
        self._child: ChildProcess | LastResort | None = None
        self.notice = UndrivenNotice(settings)

    def open(self) -> str:
        """Start or join the embedded server, if the client uses it. Return the URL to connect to."""
        if self.server is not None:
            self.server.open()
        return self._connect_url

    def restart_embedded_server(self) -> None:
        """Restart the embedded server if it was killed. Call this after a lost connection."""
        if self.server is not None and self.server.is_open:
            self.server.ensure_running()

    def start_driving(self) -> None:
        """Start the event process, if the settings ask for one. Does not wait until the process drives shards.

        A child process keeps the wheel on time while this program's interpreter is busy. The child ends when this
        program ends, also if this program is killed. If several programs use one data directory, one of their children
        is elected to drive. The child of a program with the URL of a server drives only while no `tickwheel events`
        does, and only a namespace that it can serve whole.
        """
        settings = self._settings
        if not settings.drives:
            return
        if settings.uses_lease_election:
            self._child = LastResort(settings, LastResortOptions(is_demanded=True))
            self._child.start()
            return
        # The client has opened the namespace. If the namespace is lost, a program decides whether to create it again.
        command = python_module("tickwheel.event_process", "--until-eof", "--existing")
        command += ["--namespace", settings.namespace, "--lock", str(settings.election_lock)]
        if self.server is not None:
            command += ["--data-dir", str(self.server.data_dir)]
        # The URL may contain a password, and every user of the host can read a process's arguments.
        self._child = ChildProcess(command, {redis_url.VARIABLE: self._connect_url})

    def close(self) -> None:
        """Stop the child and the check, and close the embedded server."""
        self.notice.close()
        child, self._child = self._child, None
        if child is not None:
            child.stop()
        if self.server is not None:
            self.server.close()

    @property
    def _connect_url(self) -> str:
        return self._settings.url or "" if self.server is None else self.server.url
