"""Another user puts a server in place of an embedded server, whose clients then send nothing.

Only root can arrange the tests with the fixture `embedded`; CI runs as root.
"""

import asyncio
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.wait_until import eventually
from tickwheel import Tickwheel, TickwheelError, aio
from tickwheel.cli.app import app
from tickwheel.client.settings import ClientSettings
from tickwheel.embedded import EmbeddedServer, EmbeddedServerError
from tickwheel.embedded.connection import check_peer
from tickwheel.embedded.valkey_process import ValkeyProcess
from tickwheel.event_process.assembly import open_event_process
from tickwheel.runtime.private_file import UnsafePath
from tickwheel.service.server import Server

pytestmark = pytest.mark.security

STRANGER = 12_345
TIMEOUT = timedelta(milliseconds=200)


class ForeignServer:
    """A server of another user, which takes the place of an embedded server, and records what it receives."""

    def __init__(self, path: Path) -> None:
        self.received = b""
        self.has_accepted = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        os.seteuid(STRANGER)
        try:
            # From now on, a client sees the user at the other end.
            self._socket.listen()
        finally:
            os.seteuid(0)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.has_accepted = True
                with connection:
                    while data := connection.recv(65_536):
                        self.received += data
                        connection.sendall(b"-ERR of another user\r\n")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._socket.close()


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedServer]:
    """The server of a data directory with a long path, so clients reach the socket by a link."""
    if os.geteuid() != 0:
        pytest.skip("only root can listen as another user")
    # Not inside `tmp_path`, whose path is too long.
    folder = Path(tempfile.mkdtemp(prefix="tw-"))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    server = EmbeddedServer(folder / ("long" * 30))
    yield server
    ValkeyProcess(server.data_dir, server.data_dir).kill()
    shutil.rmtree(folder)


@contextmanager
def replaced_by_a_stranger(embedded: EmbeddedServer) -> Iterator[None]:
    """Replace the folder of the link by a folder of another user, with a server of this user, during the block.

    Then check that a program has connected, and that the server has received nothing.
    """
    socket_path = Path(embedded.socket_path)
    assert socket_path.parent.is_symlink()
    folder = socket_path.parents[1]
    shutil.rmtree(folder)
    socket_path.parent.mkdir(parents=True)
    os.chown(folder, STRANGER, STRANGER)
    foreign = ForeignServer(socket_path)
    try:
        yield
        eventually(lambda: foreign.has_accepted, "a program has connected")
    finally:
        foreign.close()
        shutil.rmtree(folder)
    assert foreign.received == b""


def test_a_blocking_client_sends_nothing_to_a_server_of_another_user(embedded: EmbeddedServer) -> None:
    with Tickwheel(data_dir=embedded.data_dir, drive=False) as client:
        jobs = client.create_queue("jobs")
        with replaced_by_a_stranger(embedded):
            client._io._servers.close()
            with pytest.raises(EmbeddedServerError, match=f"has owner {STRANGER} and mode .*set TMPDIR"):
                jobs.enqueue(b"secret")
        assert jobs.enqueue(b"secret").created


def test_an_asyncio_client_sends_nothing_to_a_server_of_another_user(embedded: EmbeddedServer) -> None:
    async def run() -> None:
        async with aio.Tickwheel(data_dir=embedded.data_dir, drive=False) as client:
            jobs = await client.create_queue("jobs")
            with replaced_by_a_stranger(embedded):
                await client._io._servers.pool("").disconnect()
                with pytest.raises(EmbeddedServerError, match=f"has owner {STRANGER} and mode .*set TMPDIR"):
                    await jobs.enqueue(b"secret")
            assert (await jobs.enqueue(b"secret")).created

    asyncio.run(run())


def open_client(data_dir: Path, lock: Path) -> None:
    Tickwheel(data_dir=data_dir, drive=False, timeout=TIMEOUT)


def open_asyncio_client(data_dir: Path, lock: Path) -> None:
    async def run() -> None:
        async with aio.Tickwheel(data_dir=data_dir, drive=False, timeout=TIMEOUT):
            pass

    asyncio.run(run())


def start_service(data_dir: Path, lock: Path) -> None:
    settings = ClientSettings.validate(None, "tw", data_dir, None, False, TIMEOUT)
    asyncio.run(Server(settings, "127.0.0.1:0").start())


def run_doctor(data_dir: Path, lock: Path) -> None:
    done = CliRunner().invoke(
        app, ["--data-dir", str(data_dir), "doctor", "--timeout", "200ms"], env={"COLUMNS": "999"}
    )
    raise TickwheelError(done.output)


def start_event_process(data_dir: Path, lock: Path) -> None:
    with open_event_process(None, "tw", lock, data_dir):
        pass


@pytest.mark.parametrize("start", [open_client, open_asyncio_client, start_service, run_doctor, start_event_process])
def test_a_program_whose_server_is_replaced_right_after_the_check_of_the_folders_sends_nothing(
    embedded: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[[Path, Path], None]
) -> None:
    monkeypatch.setattr("tickwheel.event_process.assembly._CALL_TIMEOUT_S", 0.2)
    with embedded, replaced_by_a_stranger(embedded), monkeypatch.context() as checked:
        for check in ("open", "ensure_running", "close"):
            checked.setattr(EmbeddedServer, check, lambda server: server.socket_path)
        with pytest.raises(TickwheelError, match=f"runs as the user {STRANGER}.*Nothing was sent"):
            start(embedded.data_dir, tmp_path / "lock")


def test_the_embedded_server_sends_its_own_checks_to_no_server_of_another_user(embedded: EmbeddedServer) -> None:
    with embedded, replaced_by_a_stranger(embedded):
        assert ValkeyProcess(embedded.data_dir, Path(embedded.socket_path)).probe() is None


def test_the_user_of_the_server_is_compared_with_the_allowed_users(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as connection:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        connection.connect(str(tmp_path / "socket"))
        check_peer(connection, "socket")
        with pytest.raises(
            UnsafePath, match=rf"the server at socket runs as the user {os.geteuid()}, .* \[{STRANGER}\]"
        ):
            check_peer(connection, "socket", {STRANGER})
