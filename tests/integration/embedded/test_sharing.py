"""Programs on one directory share a server: the first starts it, and the last to close stops it."""

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.embedded.programs import StartProgram, all_at_once, client, is_server_alive, starts
from tickwheel.embedded import EmbeddedServer, EmbeddedServerError, server as embedded_server
from tickwheel.embedded.file_lock import FileLock

pytestmark = pytest.mark.integration


def test_two_programs_share_one_server_and_the_last_to_close_stops_it(
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
        program.call("is_open")  # the program has started, and waits for the next line

    all_at_once(programs, "open")

    assert len({program.call("pid") for program in programs}) == 1
    assert starts(data_dir) == 1


def test_eight_programs_closing_at_once_stop_the_server(data_dir: Path, start_program: StartProgram) -> None:
    programs = [start_program() for _ in range(8)]
    for program in programs:
        program.call("open")

    all_at_once(programs, "close")

    assert not is_server_alive(data_dir)


def test_programs_that_open_and_close_concurrently_always_have_a_server(
    data_dir: Path, start_program: StartProgram
) -> None:
    programs = [start_program() for _ in range(4)]
    assert set(all_at_once(programs, "come_and_go")) == {"always a server"}
    assert not is_server_alive(data_dir)


def test_no_program_joins_or_leaves_while_another_starts_or_stops_the_server(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_server, "_LOCK_S", 0.1)
    with EmbeddedServer(data_dir) as inside:
        other = FileLock(data_dir / "start.lock")
        other.acquire_exclusive(0)
        for step in (EmbeddedServer(data_dir).open, inside.ensure_running, inside.close):
            with pytest.raises(EmbeddedServerError, match=f"process {os.getpid()} has held the lock"):
                step()
        other.release()
    assert is_server_alive(data_dir), "the killed program cannot stop the server, so the next program does"
    with EmbeddedServer(data_dir):
        pass
    assert not is_server_alive(data_dir)


def test_a_program_that_ends_without_closing_leaves_the_server(data_dir: Path, start_program: StartProgram) -> None:
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


def test_opening_and_closing_twice_equals_once(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    assert server.open() == server.open() == server.socket_path
    server.close()
    server.close()
    assert not is_server_alive(data_dir)


def test_written_data_is_present_when_the_directory_is_opened_again(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    for expected in (None, "1"):
        with server, closing(client(server)) as connection:
            assert connection.get("key") == expected
            connection.set("key", 1)


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
    assert is_server_alive(data_dir), "the fork lost the parent's lock of the directory"


def test_a_forked_child_does_not_keep_the_directory_open_for_its_parent(
    data_dir: Path, start_program: StartProgram
) -> None:
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
