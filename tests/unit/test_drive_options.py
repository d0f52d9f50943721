"""The options that decide who drives: `--drive` and `--kafka` of workers and services, and the default election."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tickwheel.cli.app import app
from tickwheel.cli.drive_option import Drive, last_resort_options
from tickwheel.client.last_resort import LastResortOptions
from tickwheel.client.settings import ClientSettings
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.errors import InvalidArgument

pytestmark = pytest.mark.unit


def test_a_program_drives_unless_it_must_never_drive() -> None:
    assert last_resort_options(Drive.AUTO, None, json=False) == LastResortOptions()
    assert last_resort_options(Drive.AUTO, "host:1", json=True) == LastResortOptions("host:1", True)
    assert last_resort_options(Drive.NEVER, None, json=False) is None


def test_brokers_are_refused_for_a_program_that_never_drives() -> None:
    with pytest.raises(InvalidArgument, match="excludes --drive never"):
        last_resort_options(Drive.NEVER, "host:1", json=False)


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_both_programs_have_the_options(command: str) -> None:
    text = CliRunner().invoke(app, [command, "--help"]).stdout
    assert "--drive" in text
    assert "--kafka" in text


def settings(url: str | None, data_dir: Path | None = None) -> ClientSettings:
    return ClientSettings.validate(url, "tw", data_dir, None, False, None)


@pytest.mark.parametrize("url", ["redis://127.0.0.1", "rediss://127.0.0.1", "unix:///run/redis.sock"])
def test_event_processes_of_one_server_elect_leaders_by_lease(url: str) -> None:
    assert settings(url).election == LeaseOptions()


def test_event_processes_of_a_data_directory_or_a_cluster_have_lock_files(tmp_path: Path) -> None:
    for chosen in (settings(None, tmp_path), settings("redis+cluster://127.0.0.1")):
        assert chosen.election == chosen.election_lock
