"""The embedded server: shared by programs, stopped by the last, put right after every crash."""

import json
import os
import platform
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

import tickwheel
from tickwheel import embedded, valkey_process
from tickwheel.datadir_lock import FileLock, is_free
from tickwheel.embedded import EmbeddedServer, EmbeddedServerError
from tickwheel.valkey_process import ValkeyProcess

pytestmark = pytest.mark.integration

# A program of a user, which does what it is told line by line and ends when no more comes.
PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from tickwheel.embedded import EmbeddedServer

server = EmbeddedServer(Path(sys.argv[1]), appendfsync=sys.argv[2])

def fork_a_child_that_closes():
    child = os.fork()
    if child == 0:
        assert not server.is_open
        server.close()
        sys.exit()
    return os.waitpid(child, 0)[1]

def fork_a_child_that_stays():
    child = os.fork()
    if child == 0:
        signal.pause()
    return child

def fork_a_child_that_opens():
    opened, tell = os.pipe()
    child = os.fork()
    if child == 0:
        server.open()
        os.write(tell, b".")
        signal.pause()
    os.read(opened, 1)
    return child

def come_and_go():
    for _ in range(15):
        with server:
            if server.pid is None:
                return "no server"
    return "always a server"

actions = {
    "open": server.open,
    "close": server.close,
    "ensure_running": server.ensure_running,
    "pid": lambda: server.pid,
    "is_open": lambda: server.is_open,
    "come_and_go": come_and_go,
    "fork_a_child_that_closes": fork_a_child_that_closes,
    "fork_a_child_that_stays": fork_a_child_that_stays,
    "fork_a_child_that_opens": fork_a_child_that_opens,
}
for line in sys.stdin:
    print(json.dumps(actions[line.strip()]()), flush=True)
"""


class Program:
    """A process of its own that has an EmbeddedServer."""

    def __init__(self, data_dir: Path, appendfsync: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(data_dir), appendfsync],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(tickwheel.__file__).parents[1])},
        )

    def begin(self, action: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{action}\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def call(self, action: str) -> Any:
        self.begin(action)
        return self.result()

    def end(self) -> None:
        """Let the program come to its end, without telling it to close anything."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


StartProgram = Callable[..., Program]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    yield directory
    ValkeyProcess(directory, directory).kill()


@pytest.fixture
def start_program(data_dir: Path) -> Iterator[StartProgram]:
    programs = []

    def start(appendfsync: str = "always") -> Program:
        programs.append(Program(data_dir, appendfsync))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def is_server_alive(data_dir: Path) -> bool:
    return not is_free(data_dir / "server.lock")


def starts(data_dir: Path) -> int:
    return (data_dir / "valkey.log").read_text().count("Valkey is starting")


def kill_server(server: EmbeddedServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)


# Sharing.


def test_two_programs_share_one_server_and_the_last_to_leave_stops_it(
    data_dir: Path, start_program: StartProgram
) -> None:
    first, second = start_program(), start_program()
    assert first.call("open") == second.call("open")
    assert first.call("pid") == second.call("pid")

    first.call("close")
    assert is_server_alive(data_dir)
    assert second.call("pid") is not None

    second.call("close")
    assert not is_server_alive(data_dir)


def test_eight_programs_opening_at_once_start_exactly_one_server(data_dir: Path, start_program: StartProgram) -> None:
    programs = [start_program() for _ in range(8)]
    for program in programs:
        program.call("is_open")  # it has started, and waits for the next line

    for program in programs:
        program.begin("open")
    for program in programs:
        program.result()

    assert len({program.call("pid") for program in programs}) == 1
    assert starts(data_dir) == 1


def test_eight_programs_closing_at_once_stop_the_server(data_dir: Path, start_program: StartProgram) -> None:
    programs = [start_program() for _ in range(8)]
    for program in programs:
        program.call("open")

    for program in programs:
        program.begin("close")
    for program in programs:
        program.result()

    assert not is_server_alive(data_dir)


def test_programs_that_come_and_go_at_once_always_have_a_server(data_dir: Path, start_program: StartProgram) -> None:
    programs = [start_program() for _ in range(4)]
    for program in programs:
        program.begin("come_and_go")
    for program in programs:
        assert program.result() == "always a server"
    assert not is_server_alive(data_dir)


def test_nobody_joins_or_leaves_while_another_starts_or_stops_the_server(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_LOCK_S", 0.1)
    with EmbeddedServer(data_dir) as inside:
        other = FileLock(data_dir / "start.lock")
        other.exclusive(0)
        for step in (EmbeddedServer(data_dir).open, inside.ensure_running, inside.close):
            with pytest.raises(EmbeddedServerError, match=f"process {os.getpid()} has held"):
                step()
        other.release()
    assert is_server_alive(data_dir), "it could not leave in order, so the next one stops the server"
    with EmbeddedServer(data_dir):
        pass
    assert not is_server_alive(data_dir)


def test_a_program_that_ends_without_closing_leaves_by_itself(data_dir: Path, start_program: StartProgram) -> None:
    program = start_program()
    program.call("open")

    program.end()

    assert not is_server_alive(data_dir)


def test_two_objects_of_one_program_share_the_server(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as one:
        with EmbeddedServer(data_dir) as other:
            assert one.pid == other.pid
        assert is_server_alive(data_dir)
    assert not is_server_alive(data_dir)


def test_opening_and_closing_twice_is_the_same_as_once(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    assert server.open() == server.open() == server.socket_path
    server.close()
    server.close()
    assert not is_server_alive(data_dir)


def test_what_was_written_is_there_when_the_directory_is_opened_again(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    for expected in (None, "1"):
        with server, closing(client(server)) as connection:
            assert connection.get("key") == expected
            connection.set("key", 1)


# Crashes.


def test_a_killed_program_leaves_the_server_to_the_next_which_stops_it(
    data_dir: Path, start_program: StartProgram
) -> None:
    killed = start_program()
    killed.call("open")
    pid = killed.call("pid")
    killed.kill()

    with EmbeddedServer(data_dir) as server:
        assert server.pid == pid
    assert not is_server_alive(data_dir)


def test_a_killed_server_is_started_again_with_all_that_was_acknowledged(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        for number in range(1_000):
            connection.set(f"key {number}", number)
        kill_server(server)

        server.ensure_running()

        assert connection.dbsize() == 1_000


def test_a_server_killed_while_it_rewrites_its_file_is_started_again(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        for number in range(100):
            connection.set(f"key {number}", number)
        # The child that rewrites takes 100 ms for each key, so it survives its parent for a while.
        connection.config_set("rdb-key-save-delay", 100_000)
        connection.bgrewriteaof()
        kill_server(server)

        server.ensure_running()

        assert connection.dbsize() == 100


def test_of_programs_that_restart_a_killed_server_at_once_exactly_one_does(
    data_dir: Path, start_program: StartProgram
) -> None:
    programs = [start_program() for _ in range(4)]
    for program in programs:
        program.call("open")
    os.kill(programs[0].call("pid"), signal.SIGKILL)

    for program in programs:
        program.begin("ensure_running")
    for program in programs:
        program.result()

    assert len({program.call("pid") for program in programs}) == 1
    assert starts(data_dir) == 2


def test_ensuring_that_a_running_server_runs_changes_nothing(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server:
        before = server.pid
        server.ensure_running()
        assert server.pid == before


def test_a_torn_end_of_the_append_only_file_loses_only_what_was_torn(data_dir: Path) -> None:
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


# Nothing foreign is touched.


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

        with pytest.raises(EmbeddedServerError, match=r"a server of .*other, process"):
            EmbeddedServer(data_dir).open()

        assert other.pid is not None


def test_a_frozen_server_is_reported_and_left_alone(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_process, "_ANSWER_S", 0.3)
    with EmbeddedServer(data_dir) as server:
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(EmbeddedServerError, match=f"process {pid} is alive but"):
                EmbeddedServer(data_dir).open()
        finally:
            os.kill(pid, signal.SIGCONT)
        server.ensure_running()
        assert server.pid == pid


def test_the_last_to_leave_ends_a_frozen_server_too(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_process, "_ANSWER_S", 0.3)
    monkeypatch.setattr(valkey_process, "_STOP_S", 0.3)
    with EmbeddedServer(data_dir) as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
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


def test_a_server_whose_directory_was_deleted_is_not_revived_but_ended(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    server.open()
    pid = server.pid
    shutil.rmtree(data_dir)

    with pytest.raises(EmbeddedServerError, match="was deleted while it was open"):
        server.ensure_running()
    server.close()

    assert pid is not None
    assert not Path(f"/proc/{pid}/exe").exists()


# Forks.


def test_a_forked_child_that_closes_or_ends_does_not_stop_the_server(
    data_dir: Path, start_program: StartProgram
) -> None:
    program = start_program()
    program.call("open")

    assert program.call("fork_a_child_that_closes") == 0

    assert program.call("is_open")
    assert is_server_alive(data_dir)
    with EmbeddedServer(data_dir):
        pass
    assert is_server_alive(data_dir), "the parent's share of the directory was lost by the fork"


def test_a_forked_child_does_not_hold_the_directory_for_its_parent(data_dir: Path, start_program: StartProgram) -> None:
    program = start_program()
    program.call("open")
    child = program.call("fork_a_child_that_stays")
    try:
        program.kill()
        with EmbeddedServer(data_dir):
            pass
        assert not is_server_alive(data_dir)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_that_opens_keeps_the_server_beyond_its_parent(
    data_dir: Path, start_program: StartProgram
) -> None:
    program = start_program()
    program.call("open")
    child = program.call("fork_a_child_that_opens")
    try:
        program.call("close")
        assert is_server_alive(data_dir)
    finally:
        os.kill(child, signal.SIGKILL)


# Durability and settings.


def test_the_server_keeps_to_the_settings_that_the_guarantees_need(data_dir: Path) -> None:
    expected = {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "always",
        "aof-load-truncated": "yes",
        "save": "",
        "dir": str(data_dir),
        "maxmemory-policy": "noeviction",
        "busy-reply-threshold": "500",
        "zset-max-listpack-entries": "16",
        "hash-max-listpack-entries": "64",
    }
    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        assert connection.config_get(*expected) == expected


def test_a_shared_server_keeps_to_the_stricter_durability(data_dir: Path) -> None:
    with (
        EmbeddedServer(data_dir, appendfsync="everysec") as lax,
        closing(client(lax)) as connection,
    ):
        assert connection.config_get("appendfsync") == {"appendfsync": "everysec"}

        with EmbeddedServer(data_dir):
            assert connection.config_get("appendfsync") == {"appendfsync": "always"}
            # Whoever starts it again, none of the others gets less than it asked for.
            kill_server(lax)
            lax.ensure_running()
            assert connection.config_get("appendfsync") == {"appendfsync": "always"}


def test_an_unknown_appendfsync_is_refused(data_dir: Path) -> None:
    with pytest.raises(ValueError, match="'always' or 'everysec', not 'no'"):
        EmbeddedServer(data_dir, appendfsync="no")  # type: ignore[arg-type]


# Paths and modes.


def test_only_its_user_can_reach_the_server_and_its_data(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server:
        path = Path(server.socket_path)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert all(not path.stat().st_mode & 0o077 for path in data_dir.rglob("*"))


def test_a_path_too_long_for_a_socket_works_all_the_same(data_dir: Path) -> None:
    long = data_dir / ("long" * 20) / ("longer" * 20)
    with EmbeddedServer(long) as server:
        assert len(server.socket_path) < 104
        short_way = Path(server.socket_path).parents[1]
        assert stat.S_IMODE(short_way.stat().st_mode) == 0o700
        with EmbeddedServer(long) as other, closing(client(other)) as connection:
            assert other.pid == server.pid
            assert connection.ping()
    assert not is_server_alive(long)
    assert not short_way.exists()


def test_programs_with_different_temporary_folders_share_the_server_of_a_long_path(
    data_dir: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = data_dir / ("long" * 30)
    with EmbeddedServer(long) as server:
        elsewhere = tmp_path_factory.mktemp("t")
        monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
        with EmbeddedServer(long) as other:
            assert other.socket_path != server.socket_path
            assert other.pid == server.pid


def test_a_folder_that_another_user_could_have_prepared_is_refused(
    data_dir: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("t")))
    long = EmbeddedServer(data_dir / ("long" * 30))
    prepared = Path(long.socket_path).parents[1]

    prepared.mkdir()
    prepared.chmod(0o755)
    with pytest.raises(EmbeddedServerError, match="with mode 0700, but is drwxr-xr-x"):
        long.open()

    prepared.rmdir()
    prepared.symlink_to(data_dir)
    with pytest.raises(EmbeddedServerError, match="with mode 0700, but is lrwxrwxrwx"):
        long.open()
    assert not is_server_alive(long.data_dir)


def test_any_character_may_be_in_the_path(data_dir: Path) -> None:
    path = data_dir / 'a b?#%20"é\n--port 7'
    with EmbeddedServer(path) as server, closing(client(server)) as connection:
        assert connection.config_get("port", "dir") == {"port": "0", "dir": str(path)}


def test_the_directory_is_by_default_in_the_users_data_folder(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: data_dir / name)
    assert EmbeddedServer().data_dir == data_dir / "tickwheel"


# Errors say what to do.


def test_a_file_in_the_place_of_the_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for data_dir in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(EmbeddedServerError, match="is in the way, which is no folder"):
            EmbeddedServer(data_dir).open()


def test_a_directory_that_nobody_can_write_is_a_clear_error() -> None:
    with pytest.raises(EmbeddedServerError, match="Give a data_dir on a local disk that this user"):
        EmbeddedServer(Path("/proc/tickwheel")).open()


def test_data_of_a_newer_server_is_a_clear_error(data_dir: Path) -> None:
    with EmbeddedServer(data_dir):
        pass
    base = data_dir / "appendonlydir" / "appendonly.aof.1.base.rdb"
    base.write_bytes(b"VALKEY999" + base.read_bytes()[9:])

    with pytest.raises(EmbeddedServerError, match="written by a newer Valkey") as raised:
        EmbeddedServer(data_dir).open()

    assert "Can't handle RDB format version 999" in raised.value.log_tail
    assert raised.value.data_dir == data_dir


def test_damaged_data_is_a_clear_error(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server, closing(client(server)) as connection:
        connection.set("key", 1)
    file = data_dir / "appendonlydir" / "appendonly.aof.1.incr.aof"
    file.write_bytes(b"!" + file.read_bytes()[1:])

    with pytest.raises(EmbeddedServerError, match="append-only file is damaged"):
        EmbeddedServer(data_dir).open()
    assert not is_server_alive(data_dir)


def test_a_start_that_fails_shows_the_end_of_the_log(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "appendonlydir").touch()

    with pytest.raises(EmbeddedServerError, match=r"See .*valkey.log(.|\n)*Not a directory"):
        EmbeddedServer(data_dir).open()


def test_a_full_disk_is_a_clear_error(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_process, "_FREE_BYTES_MIN", 1 << 62)
    with pytest.raises(EmbeddedServerError, match="its disk is full"):
        EmbeddedServer(data_dir).open()


def test_a_machine_without_a_bundled_server_is_told_to_use_a_url(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(EmbeddedServerError, match="Give the URL of a server: redis://"):
        EmbeddedServer(data_dir).open()


def test_a_closed_server_is_not_started_by_accident(data_dir: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"Call open\(\) first"):
        EmbeddedServer(data_dir).ensure_running()
