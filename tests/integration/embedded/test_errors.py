"""Errors that keep a server from starting are reported with the remedy."""

import platform
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.embedded.programs import client, is_server_alive
from tickwheel.embedded import EmbeddedServer, EmbeddedServerError, valkey_process

pytestmark = pytest.mark.integration


def test_a_file_in_the_place_of_the_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for data_dir in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(EmbeddedServerError, match="exists and is not a folder"):
            EmbeddedServer(data_dir).open()


def test_an_unwritable_directory_is_a_clear_error() -> None:
    with pytest.raises(EmbeddedServerError, match="Pass a data_dir on a local disk that this user"):
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


def test_without_a_bundled_server_the_error_names_a_url_as_the_remedy(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(EmbeddedServerError, match="Pass the URL of a server: redis://"):
        EmbeddedServer(data_dir).open()


def test_a_closed_server_is_not_started_by_accident(data_dir: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"Call open\(\) first"):
        EmbeddedServer(data_dir).ensure_running()
