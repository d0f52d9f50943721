"""The search for the module of an app."""

import sys
from pathlib import Path

import pytest

from tickwheel.worker.app_loader import load_app

pytestmark = pytest.mark.unit

NAME = "app_of_the_loader_test"


@pytest.mark.parametrize("is_listed", [False, True])
def test_the_working_directory_is_searched_first_also_if_the_path_lists_it_further_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    for folder in ("here", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{NAME}.py").write_text("from tickwheel.tasks import TaskApp\napp = TaskApp()\n")
    listed = [str(tmp_path / "here")] if is_listed else []
    monkeypatch.setattr(sys, "path", [str(tmp_path / "elsewhere"), *listed, *sys.path])
    monkeypatch.chdir(tmp_path / "here")

    load_app(f"{NAME}:app")

    assert sys.modules.pop(NAME).__file__ == str(tmp_path / "here" / f"{NAME}.py")
