"""The socket of an embedded server is recognized by its path."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tickwheel.cli.app import app
from tickwheel.client.last_resort import find_obstacle_of_settings
from tickwheel.client.settings import ClientSettings
from tickwheel.embedded.socket_owner import find_data_dir

pytestmark = pytest.mark.unit


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory as each version of Tickwheel leaves it."""
    folder = tmp_path / "my data"
    (folder / "run").mkdir(parents=True)
    (folder / "programs.lock").touch()
    return folder


def url(folder: Path) -> str:
    return f"unix://{str(folder / 'run' / 'valkey.sock').replace(' ', '%20')}"


def test_the_socket_of_a_data_directory_is_recognized(data_dir: Path, tmp_path: Path) -> None:
    assert find_data_dir(url(data_dir)) == data_dir
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "run").symlink_to(data_dir / "run")
    assert find_data_dir(url(tmp_path / "link")) == data_dir


def test_other_servers_are_not_recognized(data_dir: Path) -> None:
    assert find_data_dir(f"unix://{data_dir.parent}/valkey.sock") is None
    assert find_data_dir("redis://127.0.0.1") is None
    (data_dir / "programs.lock").unlink()
    assert find_data_dir(url(data_dir)) is None


def test_nobody_drives_the_server_of_a_data_directory_as_a_last_resort(data_dir: Path) -> None:
    settings = ClientSettings.validate(url(data_dir), "tw", None, None, False, None)
    found = find_obstacle_of_settings(settings)
    assert found is not None
    assert str(data_dir) in found.text


def test_events_refuses_the_socket_of_a_data_directory(data_dir: Path) -> None:
    result = CliRunner().invoke(app, ["events", "--url", url(data_dir)])
    assert result.exit_code == 2
    assert "use --data-dir" in " ".join(result.output.split())
