"""Folders and files that other users of the machine make or can change, as in a shared folder or in a container.

Only root can arrange the tests with the fixture `host`; CI runs as root. The tests without the fixture run as any user.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tickwheel
from services.process import free_port
from tests.security.tokens import entry
from tickwheel.cli.app import app
from tickwheel.embedded import EmbeddedServer, EmbeddedServerError
from tickwheel.embedded.valkey_process import ValkeyProcess
from tickwheel.service.token_file import TokenFile

pytestmark = pytest.mark.security

CERTS = Path(__file__).parents[1] / "fault" / "certs"
PROGRAM = Path(__file__).parents[1] / "support" / "program_of_user.py"
# The user of the container, another user, and the group of the container's volumes (fsGroup).
USER, STRANGER, FS_GROUP = 54_321, 12_345, 23_456
TOKENS = entry("tw_One-Of-A-Secret", '["produce"]')


class Host:
    """A folder that every user can enter, and commands of other users."""

    def __init__(self, folder: Path, program: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.made: list[Path] = []
        self._program = program

    def make(self, name: str, owner: int, group: int, mode: int) -> Path:
        """Make a folder with this owner, group and mode."""
        folder = self.folder / name
        folder.mkdir()
        self.made.append(folder)
        os.chown(folder, owner, group)
        folder.chmod(mode)
        return folder

    def run(self, *arguments: str | Path, groups: tuple[int, ...] = ()) -> tuple[int, str]:
        """Run a command as the container's user, who has only these further groups and cannot write to `HOME`.

        Return its exit code, and its output in one line.
        """
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        print(json.dumps([USER, groups, list(map(str, arguments))]), file=self._program.stdin, flush=True)
        code, output = json.loads(self._program.stdout.readline())
        return code, " ".join(output.replace("│", " ").split())


def copy_package(folder: Path) -> Path:
    """Copy the package into the folder, with the scripts, as in the wheel. Other users can then read its files, even if
    they cannot enter the folder of the clone. Return the folder.
    """
    package = Path(tickwheel.__file__).parent
    shutil.copytree(package, folder / "tickwheel", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(package.parents[1] / "lua", folder / "tickwheel" / "lua")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture(scope="module")
def program() -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """The program that runs commands of other users, and its folder. pytest's own folders are private."""
    if os.geteuid() != 0:
        pytest.skip("only root can make files of other users, and run programs as other users")
    folder = Path(tempfile.mkdtemp(prefix="tickwheel-host-"))
    folder.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(copy_package(folder / "package")),
        "HOME": "/",
        "COLUMNS": "300",
    }
    with subprocess.Popen(
        [sys.executable, PROGRAM, folder],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        yield folder, started
        assert started.stdin is not None
        started.stdin.close()
    shutil.rmtree(folder)


@pytest.fixture
def host(program: tuple[Path, subprocess.Popen[str]]) -> Iterator[Host]:
    folder, started = program
    made_by = Host(folder, started)
    yield made_by
    for made in made_by.made:
        for lock in made.rglob("server.lock"):
            ValkeyProcess(lock.parent, lock.parent).kill()
    # A folder can contain another one.
    for made in made_by.made:
        shutil.rmtree(made, ignore_errors=True)


def plant_links(folder: Path, victim: Path) -> list[Path]:
    """Put a link to a file of the victim in place of each file that the embedded server or its clients write."""
    targets = []
    for name in ("start.lock", "programs.lock", "server.lock", "valkey.log", "valkey.pid"):
        targets.append(victim / f"precious-{name}")
        targets[-1].write_text("precious")
        os.chown(targets[-1], USER, USER)
        (folder / name).symlink_to(targets[-1])
    return targets


def test_a_data_directory_of_another_user_is_refused_and_its_links_are_not_followed(host: Host) -> None:
    home = host.make("home", USER, USER, 0o700)
    host.make("shared", 0, 0, 0o1777)
    data = host.make("shared/data", STRANGER, STRANGER, 0o777)
    targets = plant_links(data, home)

    code, output = host.run("--data-dir", data, "queue", "create", "jobs")

    assert code != 0
    assert f"{data} has owner {STRANGER} and mode drwxrwxrwx, so other users can change it" in output
    assert f"Allowed are the owners {USER} and 0 (root)" in output
    assert f"pass a folder inside it, such as {data}/tickwheel" in output
    assert [target.read_text() for target in targets] == ["precious"] * len(targets)
    assert not (data / "run").exists()


def test_a_link_of_another_user_does_not_lead_to_a_folder_of_this_user(host: Host) -> None:
    home = host.make("home", USER, USER, 0o700)
    shared = host.make("shared", 0, 0, 0o1777)
    (shared / "link").symlink_to(home)
    os.chown(shared / "link", STRANGER, STRANGER, follow_symlinks=False)
    _, output = host.run("--data-dir", shared / "link", "queue", "create", "jobs")
    assert f"link is a symbolic link of the user {STRANGER}" in output
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("name", ["start.lock", "programs.lock", "server.lock", "valkey.log", "valkey.pid"])
def test_each_link_in_a_data_directory_is_refused_and_not_followed(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    data.mkdir(0o700)
    (tmp_path / "precious").write_text("precious")
    (data / name).symlink_to(tmp_path / "precious")

    with pytest.raises(EmbeddedServerError, match=rf"{data / name} is a symbolic link.*Remove the link"):
        EmbeddedServer(data).open()

    assert (tmp_path / "precious").read_text() == "precious"


def test_a_link_in_the_folder_of_the_append_only_file_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedServer(data):
        pass
    [file] = (data / "appendonlydir").glob("*.incr.aof")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EmbeddedServerError, match=f"{file} is a symbolic link"):
        EmbeddedServer(data).open()


def test_a_data_directory_that_others_may_write_to_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    done = CliRunner().invoke(app, ["--data-dir", str(data), "queue", "create", "jobs"], env={"COLUMNS": "300"})
    assert done.exit_code != 0
    assert "so other users can change it" in done.output
    assert list(data.iterdir()) == []


def test_a_folder_of_this_user_in_a_sticky_folder_is_accepted_and_the_sticky_folder_itself_is_not(host: Host) -> None:
    shared = host.make("tmp", 0, 0, 0o1777)
    _, output = host.run("--data-dir", shared, "queue", "create", "jobs")
    assert f"pass a folder inside it, such as {shared}/tickwheel" in output
    code, output = host.run("--data-dir", shared / "tickwheel", "queue", "create", "jobs")
    assert code == 0, output


def test_a_parent_that_every_user_may_rename_in_is_refused_until_root_makes_it_sticky(host: Host) -> None:
    volume = host.make("volume", 0, 0, 0o777)
    _, output = host.run("--data-dir", volume / "data", "queue", "create", "jobs")
    assert f"every user can replace the folder {volume}/data" in output
    volume.chmod(0o1777)
    code, output = host.run("--data-dir", volume / "data", "queue", "create", "jobs")
    assert code == 0, output


def test_a_volume_with_an_fs_group_holds_the_data_directory_as_a_folder(host: Host) -> None:
    volume = host.make("volume", 0, FS_GROUP, 0o2770)
    code, output = host.run("--data-dir", volume, "queue", "create", "jobs", groups=(FS_GROUP,))
    assert code != 0
    assert "On a Kubernetes volume with fsGroup, pass a folder inside the volume" in output
    for command in (("queue", "create", "jobs"), ("enqueue", "jobs", "hello")):
        code, output = host.run("--data-dir", volume / "data", *command, groups=(FS_GROUP,))
        assert code == 0, output

    # With the default fsGroupChangePolicy, Kubernetes makes all folders writable for the group.
    (volume / "data").chmod(0o2770)
    _, output = host.run("--data-dir", volume / "data", "counts", "jobs", groups=(FS_GROUP,))
    assert "fsGroupChangePolicy: OnRootMismatch" in output


@pytest.fixture
def secret(host: Host) -> Path:
    """Files as Kubernetes mounts a secret: each name is a link over `..data`, and the files belong to root."""
    mount = host.make("secret", 0, FS_GROUP, 0o3777)
    version = mount / "..2027_01_01"
    version.mkdir()
    for name, source in (("tls.crt", "server.pem"), ("tls.key", "server-key.pem"), ("tokens.toml", None)):
        (version / name).write_text(TOKENS if source is None else (CERTS / source).read_text())
        (mount / name).symlink_to(f"..data/{name}")
    (mount / "..data").symlink_to(version.name)
    return mount


def serve(host: Host, secret: Path, mode: int, groups: tuple[int, ...]) -> str:
    """Return what `tickwheel serve` prints. No server listens at its URL, so it ends after its checks of the files."""
    for file in (secret / "..data").iterdir():
        os.chown(file, 0, FS_GROUP)
        file.chmod(mode)
    options = [f"--tls-cert={secret}/tls.crt", f"--tls-key={secret}/tls.key", f"--tokens={secret}/tokens.toml"]
    url = f"redis://127.0.0.1:{free_port()}"
    code, output = host.run(
        "serve", "--url", url, "--timeout", "100ms", "--listen", "127.0.0.1:0", *options, groups=groups
    )
    assert code != 0
    return output


@pytest.mark.parametrize("mode", [0o440, 0o640])
def test_the_service_reads_a_mounted_secret_by_its_group(host: Host, secret: Path, mode: int) -> None:
    assert "Error 111 connecting to" in serve(host, secret, mode, (FS_GROUP,))


def test_a_mounted_secret_that_everybody_can_read_is_refused_with_the_remedy(host: Host, secret: Path) -> None:
    said = serve(host, secret, 0o444, (FS_GROUP,))
    assert f"{secret}/tls.key is accessible to every user of this machine" in said
    assert "For a Kubernetes secret, set defaultMode: 0440, and fsGroup" in said


@pytest.mark.parametrize(("mode", "groups"), [(0o400, (FS_GROUP,)), (0o440, ())])
def test_a_mounted_secret_that_the_user_cannot_read_is_refused_with_the_remedy(
    host: Host, secret: Path, mode: int, groups: tuple[int, ...]
) -> None:
    said = serve(host, secret, mode, groups)
    assert f"{secret}/tls.key cannot be read by this user ({USER}): it has owner 0, group {FS_GROUP}" in said
    assert "set defaultMode: 0440, and fsGroup" in said


def test_the_tokens_of_a_mounted_secret_are_replaced_when_kubernetes_replaces_the_link(tmp_path: Path) -> None:
    for name, token in (("..old", "tw_Old-Of-A-Secret"), ("..new", "tw_New-Of-A-Secret")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokens.toml").touch(0o600)
        (tmp_path / name / "tokens.toml").write_text(entry(token, '["produce"]'))
    (tmp_path / "..data").symlink_to("..old")
    (tmp_path / "tokens.toml").symlink_to("..data/tokens.toml")
    tokens = TokenFile(tmp_path / "tokens.toml")

    (tmp_path / "..data_tmp").symlink_to("..new")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    tokens.reload_if_changed()

    metadata = [("authorization", "Bearer tw_New-Of-A-Secret")]
    assert tokens.token_store.authenticate(metadata).name == "New-Of-A-Secret"
