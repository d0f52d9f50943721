"""After a kill, a freeze or the loss of files the next program repairs the server and touches no foreign process."""

import os
import shutil
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.embedded.programs import StartProgram, all_at_once, client, is_server_alive, kill_server, starts
from tests.support.paused_process import pause
from tickwheel.embedded import EmbeddedServer, EmbeddedServerError, valkey_process
from tickwheel.embedded.valkey_process import ValkeyProcess

pytestmark = pytest.mark.integration


def test_the_next_program_adopts_and_stops_the_server_of_a_killed_program(
    data_dir: Path, start_program: StartProgram
) -> None:
    killed = start_program()
    killed.call("open")
    pid = killed.call("pid")
    killed.kill()

    with EmbeddedServer(data_dir) as server:
        assert server.pid == pid
    assert not is_server_alive(data_dir)


def test_a_killed_server_is_restarted_with_all_acknowledged_data(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        for number in range(1_000):
            connection.set(f"key {number}", number)
        kill_server(server)

        server.ensure_running()

        assert connection.dbsize() == 1_000


def test_a_server_killed_while_it_rewrites_its_file_is_restarted(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        for number in range(100):
            connection.set(f"key {number}", number)
        # The child that rewrites takes 100 ms for each key, so it outlives its parent for some time.
        connection.config_set("rdb-key-save-delay", 100_000)
        connection.bgrewriteaof()
        kill_server(server)

        server.ensure_running()

        assert connection.dbsize() == 100


@pytest.mark.parametrize("crashes", [2, 3])
def test_a_server_that_ends_while_it_loads_is_started_twice_more(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, crashes: int
) -> None:
    wait_until_loaded, ended = ValkeyProcess.wait_until_loaded, 0

    def wait_after_a_crash(process: ValkeyProcess) -> None:
        nonlocal ended
        if ended < crashes:
            ended += 1
            process.kill()
        wait_until_loaded(process)

    monkeypatch.setattr(ValkeyProcess, "wait_until_loaded", wait_after_a_crash)
    server = EmbeddedServer(data_dir)
    if crashes < 3:
        with server:
            assert server.pid is not None
    else:
        with pytest.raises(EmbeddedServerError, match="the server ended while it loaded its data"):
            server.open()
    assert starts(data_dir) == 3


def test_exactly_one_of_several_concurrent_programs_restarts_a_killed_server(
    data_dir: Path, start_program: StartProgram
) -> None:
    programs = [start_program() for _ in range(4)]
    for program in programs:
        program.call("open")
    os.kill(programs[0].call("pid"), signal.SIGKILL)

    all_at_once(programs, "ensure_running")

    assert len({program.call("pid") for program in programs}) == 1
    assert starts(data_dir) == 2


def test_ensure_running_changes_nothing_for_a_running_server(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server:
        before = server.pid
        server.ensure_running()
        assert server.pid == before


def test_a_server_closed_during_a_check_stays_stopped(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread checks the server after a lost connection while another thread closes the client."""
    server = EmbeddedServer(data_dir)
    server.open()
    is_current = server._membership.is_current

    def closed_then() -> bool:
        current = is_current()
        server.close()
        return current

    monkeypatch.setattr(server._membership, "is_current", closed_then)
    with pytest.raises(EmbeddedServerError, match="the directory is not open in this process"):
        server.ensure_running()
    assert not is_server_alive(data_dir)
    assert starts(data_dir) == 1


def test_a_torn_append_only_file_loses_only_its_torn_commands(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        connection.set("first", 1)
        connection.set("second", 2)
    file = data_dir / "appendonlydir" / "appendonly.aof.1.incr.aof"
    os.truncate(file, file.stat().st_size - 3)

    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        assert connection.keys() == ["first"]


def test_a_server_is_open_only_when_its_data_is_loaded(data_dir: Path) -> None:
    with EmbeddedServer(data_dir):
        pass
    command = "*3\r\n$3\r\nSET\r\n$6\r\n{:06d}\r\n$1\r\nx\r\n"
    file = data_dir / "appendonlydir" / "appendonly.aof.1.incr.aof"
    file.write_text("".join(map(command.format, range(200_000))), newline="")

    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        assert connection.dbsize() == 200_000


def test_a_foreign_process_named_by_a_stale_pid_file_is_left_alone(data_dir: Path) -> None:
    with (
        subprocess.Popen(["sleep", "1000"]) as foreign,
        EmbeddedServer(data_dir) as server,
    ):
        kill_server(server)
        (data_dir / "valkey.pid").write_text(f"{foreign.pid}\n")

        server.ensure_running()
        assert server.pid != foreign.pid
        server.close()

        assert foreign.poll() is None
        foreign.kill()


def test_a_stale_socket_file_is_replaced(data_dir: Path) -> None:
    folder = data_dir / "run"
    folder.mkdir(mode=0o700, parents=True)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / "valkey.sock"))

    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        assert connection.ping()


def test_a_server_of_another_directory_is_neither_used_nor_stopped(data_dir: Path, tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "other") as other:
        (data_dir / "run").mkdir(mode=0o700, parents=True)
        (data_dir / "run" / "valkey.sock").symlink_to(other.socket_path)

        with pytest.raises(EmbeddedServerError, match=r"a server of another directory, .*other, answers on its socket"):
            EmbeddedServer(data_dir).open()

        assert other.pid is not None


def test_a_frozen_server_is_reported_and_left_alone(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_process, "_ANSWER_S", 0.3)
    with EmbeddedServer(data_dir) as server:
        pid = server.pid
        assert pid is not None
        pause(pid)
        try:
            with pytest.raises(EmbeddedServerError, match=f"process {pid} is alive but"):
                EmbeddedServer(data_dir).open()
        finally:
            os.kill(pid, signal.SIGCONT)
        server.ensure_running()
        assert server.pid == pid


def test_the_last_program_to_close_ends_a_frozen_server(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_process, "_ANSWER_S", 0.3)
    monkeypatch.setattr(valkey_process, "_STOP_S", 0.3)
    with EmbeddedServer(data_dir) as server:
        assert server.pid is not None
        pause(server.pid)
    assert not is_server_alive(data_dir)


def test_a_server_whose_socket_was_deleted_is_replaced_and_keeps_its_data(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey_process, "_ANSWER_S", 0.3)
    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        connection.set("key", 1)
        Path(server.socket_path).unlink()

        server.ensure_running()

        assert connection.get("key") == "1"
    assert not is_server_alive(data_dir)


def test_a_server_whose_directory_was_deleted_is_ended_and_not_restarted(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    server.open()
    pid = server.pid
    shutil.rmtree(data_dir)

    with pytest.raises(EmbeddedServerError, match="was deleted while it was open"):
        server.ensure_running()
    server.close()

    assert pid is not None
    assert not Path(f"/proc/{pid}/exe").exists()
