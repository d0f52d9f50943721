"""Durability and settings, paths and file modes of the embedded server."""

import stat
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.embedded.programs import client, is_server_alive, kill_server
from tickwheel.embedded import EmbeddedServer, EmbeddedServerError

pytestmark = pytest.mark.integration


def test_the_server_keeps_the_settings_that_the_guarantees_need(data_dir: Path) -> None:
    expected = {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
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
            # A restart by any program keeps the strictest durability that a program requested.
            kill_server(lax)
            lax.ensure_running()
            assert connection.config_get("appendfsync") == {"appendfsync": "always"}


def test_an_unknown_appendfsync_is_refused(data_dir: Path) -> None:
    with pytest.raises(ValueError, match="'always' or 'everysec', not 'no'"):
        EmbeddedServer(data_dir, appendfsync="no")  # type: ignore[arg-type]


def test_only_its_user_can_reach_the_server_and_its_data(data_dir: Path) -> None:
    with EmbeddedServer(data_dir) as server:
        path = Path(server.socket_path)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert all(not path.stat().st_mode & 0o077 for path in data_dir.rglob("*"))


def test_a_path_too_long_for_a_socket_works(data_dir: Path) -> None:
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
    with pytest.raises(EmbeddedServerError, match=r"and mode 0700, but has owner .* and mode drwxr-xr-x.*set TMPDIR"):
        long.open()

    prepared.rmdir()
    prepared.symlink_to(data_dir)
    with pytest.raises(EmbeddedServerError, match=r"and mode 0700, but has owner .* and mode lrwxrwxrwx"):
        long.open()
    assert not is_server_alive(long.data_dir)


def test_a_temporary_folder_in_which_every_user_can_replace_the_link_is_refused(
    data_dir: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path_factory.mktemp("t")
    link = tmp_path_factory.mktemp("u") / "tmp"
    link.symlink_to(shared)
    monkeypatch.setattr("tempfile.tempdir", str(link))
    long = EmbeddedServer(data_dir / ("long" * 30))

    shared.chmod(0o777)
    with pytest.raises(EmbeddedServerError, match=f"{shared} has .* every user can replace the folder .*set TMPDIR"):
        long.open()
    assert list(shared.iterdir()) == []

    shared.chmod(0o1777)
    with long:
        assert link in Path(long.socket_path).parents


def test_any_character_may_be_in_the_path(data_dir: Path) -> None:
    path = data_dir / 'a b?#%20"é\n--port 7'
    with EmbeddedServer(path) as server, closing(client(server)) as connection:
        assert connection.config_get("port", "dir") == {"port": "0", "dir": str(path)}


def test_the_directory_is_by_default_in_the_users_data_folder(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_data_path", lambda name: data_dir / name)
    assert EmbeddedServer().data_dir == data_dir / "tickwheel"
