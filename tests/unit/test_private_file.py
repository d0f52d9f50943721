"""Files and folders that only this user and root can change: which ones are accepted, and the errors for the others."""

import os
from pathlib import Path

import pytest

from tickwheel.runtime import private_file
from tickwheel.runtime.private_file import UnsafePath

pytestmark = pytest.mark.unit

STRANGER = 12_345
# What only root can arrange. Every other test runs as any user.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")


def open_private(path: Path) -> None:
    os.close(private_file.open_private(path, os.O_RDWR | os.O_CREAT))


def test_a_new_file_is_private(tmp_path: Path) -> None:
    open_private(tmp_path / "file")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o444])
def test_a_file_that_others_cannot_change_is_opened(tmp_path: Path, mode: int) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(mode)
    os.close(private_file.open_private(tmp_path / "file", os.O_RDONLY))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(mode)
    with pytest.raises(UnsafePath, match=rf"{file} has owner {os.geteuid()} and mode -rw.*chmod go-w {file}"):
        open_private(file)


@needs_root
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(0o600)
    os.chown(file, STRANGER, STRANGER)
    with pytest.raises(UnsafePath, match=f"{file} has owner {STRANGER} and mode -rw-------"):
        open_private(file)


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_never_followed(tmp_path: Path, exists: bool) -> None:
    target = tmp_path / "target"
    if exists:
        target.write_text("precious")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(UnsafePath, match=r"link is a symbolic link.*Remove the link"):
        open_private(tmp_path / "link")
    assert target.exists() == exists
    assert not exists or target.read_text() == "precious"


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UnsafePath, match="pipe must be a file"):
        open_private(tmp_path / "pipe")


def test_entries_that_are_missing_or_private_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(0o700)
    private_file.check_entries([tmp_path / "folder", tmp_path / "none"])
    (tmp_path / "folder").chmod(0o770)
    with pytest.raises(UnsafePath, match="folder has owner"):
        private_file.check_entries([tmp_path / "folder"])


def test_a_data_folder_is_made_private_and_its_parents_are_not_writable_by_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private_file.make_data_folder(tmp_path / "a" / "b" / "data")
    finally:
        os.umask(before)
    modes = [(tmp_path / path).stat().st_mode & 0o7777 for path in ("a", "a/b", "a/b/data")]
    assert modes == [0o755, 0o755, 0o700]
    private_file.check_data_folder(tmp_path / "a" / "b" / "data")


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o2770, 0o1777])
def test_a_data_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(UnsafePath, match=rf"{data} has owner .* pass a folder inside it.*fsGroupChangePolicy"):
        private_file.check_data_folder(data)


@needs_root
def test_a_data_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(0o700)
    os.chown(data, STRANGER, STRANGER)
    with pytest.raises(UnsafePath, match=f"{data} has owner {STRANGER} and mode drwx------"):
        private_file.check_data_folder(data)


@pytest.mark.parametrize(("mode", "accepted"), [(0o1777, True), (0o775, True), (0o777, False), (0o2777, False)])
def test_a_parent_in_which_every_user_can_replace_the_data_folder_is_refused(
    tmp_path: Path, mode: int, accepted: bool
) -> None:
    data = tmp_path / "parent" / "between" / "data"
    private_file.make_data_folder(data)
    (tmp_path / "parent").chmod(mode)
    if accepted:
        private_file.check_data_folder(data)
        return
    with pytest.raises(UnsafePath, match=rf"every user can replace the folder {data}.*chmod \+t {tmp_path}/parent"):
        private_file.check_data_folder(data)


def test_a_path_is_resolved_like_pathlib_resolves_it(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "absolute").symlink_to(tmp_path / "folder")
    (tmp_path / "relative").symlink_to("folder/inner/../inner")
    (tmp_path / "twice").symlink_to("absolute")
    (tmp_path / "dangling").symlink_to("none/below")
    for name in (
        *(
            ".",
            "absolute/inner",
            "relative/..",
            "twice/inner/new",
            "dangling/x",
            "none/../file",
            "file/below",
            "a//b/.",
        ),
    ):
        assert private_file.resolve_path(tmp_path / name) == (tmp_path / name).resolve()
    assert private_file.resolve_path(Path("some/where")) == Path("some/where").resolve()


def test_links_that_lead_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        private_file.resolve_path(tmp_path / "a")


@needs_root
@pytest.mark.parametrize(("mode", "accepted"), [(0o1777, False), (0o755, True)])
def test_a_link_of_another_user_leads_only_out_of_a_folder_that_not_everybody_may_write_to(
    tmp_path: Path, mode: int, accepted: bool
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    os.chown(folder / "link", STRANGER, STRANGER, follow_symlinks=False)
    folder.chmod(mode)
    if accepted:
        assert private_file.resolve_path(folder / "link" / "data") == tmp_path / "data"
        return
    with pytest.raises(UnsafePath, match=f"link is a symbolic link of the user {STRANGER}"):
        private_file.resolve_path(folder / "link" / "data")
