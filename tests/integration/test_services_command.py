"""`make services-up` and `services-down`: services that outlive their command, in a folder of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from services import background
from tests.support.wait_until import eventually

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]


def services(command: str, folder: Path | str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TICKWHEEL_SERVICES_DIR": str(folder)}
    program = [sys.executable, "-m", "services", command]
    return subprocess.run(program, cwd=REPOSITORY, env=environment, capture_output=True, text=True)


def as_printed(text: str, more: str) -> subprocess.CompletedProcess[str]:
    """Run the printed commands, as a person would paste them, and further commands."""
    commands = "".join(f"{line.strip()}\n" for line in text.splitlines() if line.startswith("  "))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", commands + more], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120
    )


def test_services_outlive_the_command_that_started_them_and_another_command_ends_them(tmp_path: Path) -> None:
    # A relative folder is relative to the directory of this command, not to those of the servers.
    folder = os.path.relpath(tmp_path / "services", REPOSITORY)
    try:
        started = services("up", folder)
        assert started.returncode == 0, started.stderr
        assert started.stderr == ""
        assert services("up", folder).stdout == started.stdout
        record = background.load_record(tmp_path / "services")
        assert record is not None
        assert len(record.pids) == 8
        assert all(background.is_running(tmp_path / "services", pid) for pid in record.pids.values())
        topics = AdminClient({"bootstrap.servers": record.addresses["kafka"]}).list_topics(timeout=30).topics
        assert "tickwheel.transitions" in topics
        done = as_printed(started.stdout, "tickwheel dequeue orders --wait 30s --raw --complete; kill $!; wait $!")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "order 17"), done.stderr
    finally:
        ended = services("down", folder)
    assert ended.returncode == 0, ended.stderr
    assert not any(background.is_running(tmp_path / "services", pid) for pid in record.pids.values())
    assert not (tmp_path / "services").exists()
    assert services("status", folder).returncode == 1


# A separate program starts the servers, which outlive the program, as with `up`.
TWO_SERVERS = """
import pathlib, sys
from services import background
from services.valkey import ValkeyServer

folder = pathlib.Path(sys.argv[1])
servers = [ValkeyServer(name, folder / "cluster" / name) for name in ("one", "two")]
background.claim(folder, ["cluster"])
for server in servers:
    server.start()
background.record(folder, {"zookeeper": "z:1", "kafka": "k:1", "cluster": "c:1"}, servers)
"""


@contextmanager
def two_servers(folder: Path) -> Iterator[background.BackgroundServices]:
    """Start two servers recorded in the folder as `up` does, next to data of the user."""
    subprocess.run([sys.executable, "-c", TWO_SERVERS, str(folder)], cwd=REPOSITORY, check=True)
    (folder / "cluster" / "precious").write_text("mine")
    record = background.load_record(folder)
    assert record is not None
    try:
        yield record
    finally:
        services("down", folder)


def kill(folder: Path, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not background.is_running(folder, pid), "the server has ended")


def test_services_are_left_unchanged_if_some_have_ended(tmp_path: Path) -> None:
    with two_servers(tmp_path) as record:
        kill(tmp_path, record.pids["one"])
        refused = services("up", tmp_path)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == (
            "services: some services have ended (one), and the others still run. Nothing was changed. `make"
            " services-down` ends the others, and deletes the data of all services\n"
        )
        assert background.is_running(tmp_path, record.pids["two"])
        assert background.load_record(tmp_path) == record
        assert (tmp_path / "cluster" / "precious").read_text() == "mine"


def test_services_that_have_all_ended_are_restarted(tmp_path: Path) -> None:
    with two_servers(tmp_path) as record:
        for pid in record.pids.values():
            kill(tmp_path, pid)
        started = services("up", tmp_path)
        assert started.returncode == 0, started.stderr
        assert started.stderr == "All services have ended: they are started again, without their data.\n"
        assert background.list_exited(tmp_path) == []
        assert not (tmp_path / "cluster" / "precious").exists()


def test_a_folder_that_the_services_did_not_create_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "kafka").write_text("mine")
    assert services("down", tmp_path / "precious").returncode == 0
    refused = services("up", tmp_path / "precious")
    assert refused.returncode == 1
    assert f"{tmp_path / 'precious'} is not empty, and does not belong to the services" in refused.stderr
    assert os.listdir(tmp_path / "precious") == ["kafka"]
    assert (tmp_path / "precious" / "kafka").read_text() == "mine"


def test_foreign_files_next_to_the_services_are_kept(tmp_path: Path) -> None:
    background.claim(tmp_path, ["kafka"])
    (tmp_path / "kafka").mkdir()
    (tmp_path / "notes").write_text("mine")
    background.stop_all(tmp_path)
    assert os.listdir(tmp_path) == ["notes"]


def test_services_whose_start_was_interrupted_are_restarted(tmp_path: Path) -> None:
    background.claim(tmp_path, ["kafka"])
    (tmp_path / "kafka").mkdir()
    background.claim(tmp_path, ["kafka"])
    assert os.listdir(tmp_path) == ["running.json"]
